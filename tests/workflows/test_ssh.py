"""A rollout whose sandbox is on a host that its worker reaches through ssh."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clotho.config import SandboxSettings
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.sandbox.local.backend import LocalBackend
from clotho.testing.script import Conversation, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.sandbox.ssh_host import SshServer
from tests.support import eventually, start
from tests.workflows.losses import WAITS, output
from tests.workflows.scripts import run, say


@pytest.fixture
def sshd(private_cluster: Cluster) -> Iterator[SshServer]:
    with SshServer(private_cluster.folder / "sshd") as server:
        yield server


@pytest.mark.slow
async def test_a_rollout_on_another_host_goes_on_when_its_connection_is_cut(
    private_cluster: Cluster, sshd: SshServer
) -> None:
    host, rollout = sshd.host("alpha"), "away/g000000/r0"
    folder = SandboxSettings(root=Path(host.root)).folder_of(private_cluster.store_identity)
    hosts = json.dumps([host.model_dump(mode="json")])
    await private_cluster.start_worker(CLOTHO_SANDBOX__BACKEND="ssh", CLOTHO_PLUGINS__SSH__HOSTS=hosts)
    turns = (run("echo 1 > log"), run(f"echo 2 >> log; {WAITS}; cat log"), say("Done."))

    async def waiting() -> list[Path]:
        return list(folder.glob("sandboxes/*/disk/work/waiting"))

    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        handle = await start(private_cluster, "away", url, settings=RunSettings(sandbox="ssh"))
        (seen,) = await eventually(waiting, "the second command running")
        sshd.end_sessions()
        seen.with_name("go").touch()
        await handle.result()
    assert (await output(private_cluster, rollout, "0001-00")).split() == ["1", "2"]
    end = await read_end(private_cluster.open_journal(), rollout)
    assert end is not None and end.summary.score == 1.0
    assert end.summary.losses == ()

    async def nothing_left() -> bool:
        return not await LocalBackend(folder).leases()

    await eventually(nothing_left, "the sandbox gone")

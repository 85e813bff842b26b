"""Real harnesses in containers and on a host behind ssh, with a scripted model: `make harnesses` installs them."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clotho.identifiers.keys import agent_key
from clotho.rollouts.agent_program import ProgramEntry
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.containers import engine
from tests.harness.test_real_harnesses import INSTALLED, MOUNTED, TASKS, require, script, start
from tests.machine_image import IMAGE
from tests.sandbox.ssh_host import SshServer

__all__ = ["engine"]

AGENTS = ("mini-swe-agent", "codex")
OF_HOSTS = Path("/usr/lib")
"""Sandboxes see what a host has here."""

pytestmark = pytest.mark.slow


@pytest.fixture
def sshd(private_cluster: Cluster) -> Iterator[SshServer]:
    with SshServer(private_cluster.folder / "sshd") as server:
        yield server


@pytest.fixture
def installed_there() -> Iterator[Path]:
    """The folder with the harnesses on the host behind ssh, which is this one."""
    if not os.access(OF_HOSTS, os.W_OK):
        pytest.skip(f"installing on a host takes the right to write to {OF_HOSTS}")
    with tempfile.TemporaryDirectory(prefix="clotho-test-", dir=OF_HOSTS) as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(INSTALLED, folder / "agents", symlinks=True, copy_function=linked)
        yield folder / "agents"


def linked(source: str, target: str) -> None:
    """A file is there twice without its bytes, where both are on one disk."""
    with suppress(OSError):
        os.link(source, target, follow_symlinks=False)
        return
    shutil.copy2(source, target, follow_symlinks=False)


@pytest.mark.parametrize("agent", AGENTS)
async def test_it_solves_a_task_in_a_container(private_cluster: Cluster, engine: str, agent: str) -> None:
    await private_cluster.start_worker(CLOTHO_PLUGINS__CONTAINERS__DOCKER_HOST=engine)
    settings = MOUNTED.model_copy(update={"sandbox": "docker", "image": IMAGE})
    await solve(private_cluster, agent, settings)


@pytest.mark.parametrize("agent", AGENTS)
async def test_it_solves_a_task_through_ssh(
    private_cluster: Cluster, sshd: SshServer, installed_there: Path, agent: str
) -> None:
    hosts = json.dumps([sshd.host("alpha").model_dump(mode="json")])
    await private_cluster.start_worker(CLOTHO_SANDBOX__BACKEND="ssh", CLOTHO_PLUGINS__SSH__HOSTS=hosts)
    settings = RunSettings(sandbox="ssh", plugins={"harness": {"path": f"{installed_there}/bin"}})
    await solve(private_cluster, agent, settings)


async def solve(cluster: Cluster, agent: str, settings: RunSettings) -> None:
    require(agent)
    model, rollout = ScriptedModel(script(agent)), "elsewhere/g000000/r0"
    async with serving(model) as url:
        await (await start(cluster, agent, "elsewhere", url, settings=settings)).result()
    assert set(model.calls.requests.values()) == {1}
    journal = cluster.open_journal()
    end = await read_end(journal, rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (0.75, ())
    entry = await journal.read_required(agent_key(rollout, 0), ProgramEntry)
    assert (entry.calls, entry.repeated) == (len(TASKS[0]) + 1, 0)

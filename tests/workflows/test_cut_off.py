"""A process that is cut off from Temporal goes on with its step, while another takes over on the same host."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.link import Link
from clotho.embedded.temporal_server import TemporalServer
from clotho.identifiers.keys import blob_key, call_key, lease_key
from clotho.rollouts.call import CallEntry
from clotho.rollouts.item import Item
from clotho.rollouts.lease import Fidelity
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import eventually, start
from tests.workflows.losses import journalled, kill_sandbox, made, output
from tests.workflows.scripts import run, say

pytestmark = pytest.mark.slow
"""Each waits until a partition counts as one."""

RUN = "cut-off"
ROLLOUT = f"{RUN}/g000000/r0"
LOGGED = (
    run("echo 0 >> /work/log"),
    run("echo 1 >> /work/log"),
    run("echo $(cat /work/log); echo -n 1 > /work/score"),
)


@pytest.fixture
async def link(temporal: TemporalServer) -> AsyncIterator[Link]:
    """To Temporal, for the worker that is cut off by its end."""
    link = Link(temporal.port)
    await link.start()
    yield link
    await link.stop()


def model(*turns: ScriptedTurn) -> ScriptedModel:
    return ScriptedModel(Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),)))


class Stops:
    """Points where a worker of sandboxes stops until it is released."""

    def __init__(self, cluster: Cluster, *rules: str) -> None:
        self.cluster = cluster
        self.folder = cluster.folder / f"fail-{len(cluster.workers)}"
        self.variables = {"CLOTHO_FAIL": ",".join(rules), "CLOTHO_FAIL_FOLDER": str(self.folder)}

    async def start_worker(self, address: str = "") -> "Stops":
        self.folder.mkdir()
        cluster = replace(self.cluster, address=address or self.cluster.address)
        self.worker = await cluster.start_worker("tools", **self.variables)
        return self

    async def reached(self, point: str) -> None:
        await eventually(lambda: asyncio.to_thread(self.file(point).exists), point)

    def release(self, point: str) -> None:
        self.file(point).unlink()

    def file(self, point: str) -> Path:
        return self.folder / point


async def cut_off_after_second_call(cluster: Cluster, link: Link) -> Stops:
    """It has made the call and taken a checkpoint; neither is in the store, and the sandbox is lost."""
    worker = await Stops(cluster, f"checkpoint.taken[{ROLLOUT}/*]:pause@2").start_worker(link.address)
    await worker.reached("checkpoint.taken")
    await link.stop()
    await kill_sandbox(cluster, ROLLOUT)
    return worker


async def test_a_checkpoint_that_a_late_call_replaces_while_it_is_restored(
    private_cluster: Cluster, link: Link
) -> None:
    cluster = private_cluster
    first, second = (call_key(ROLLOUT, call) for call in ("0000-00", "0001-00"))
    await cluster.start_worker("workflows,llm")
    async with serving(model(*LOGGED)) as url:
        handle = await start(cluster, RUN, url)
        late = await cut_off_after_second_call(cluster, link)
        other = await Stops(cluster, "restore.chosen:pause").start_worker()
        await other.reached("restore.chosen")
        late.release("checkpoint.taken")
        await journalled(cluster, second)
        older = (await cluster.open_journal().read_required(first, CallEntry)).checkpoint
        assert older is not None
        blob = cluster.store / blob_key(ROLLOUT, older.digest)

        async def replaced() -> bool:
            return not blob.exists()

        await eventually(replaced, "the first checkpoint deleted")
        other.release("restore.chosen")
        await handle.result()
    assert (await output(cluster, ROLLOUT, "0002-00")).split() == ["0", "1"]
    end = await read_end(cluster.open_journal(), ROLLOUT)
    assert end is not None and end.summary.losses == (Fidelity.EXACT,)


async def test_a_restore_tried_again_after_a_late_call_has_its_effect(
    private_cluster: Cluster, link: Link
) -> None:
    """A sandbox that a killed process restored from an older checkpoint isn't taken for the newer one's."""
    cluster = private_cluster
    await cluster.start_worker("workflows,llm")
    async with serving(model(*LOGGED)) as url:
        handle = await start(cluster, RUN, url)
        late = await cut_off_after_second_call(cluster, link)
        killed = await Stops(cluster, "restore.unpacked:pause").start_worker()
        await killed.reached("restore.unpacked")
        await killed.worker.kill()
        late.release("checkpoint.taken")
        await journalled(cluster, call_key(ROLLOUT, "0001-00"))
        await cluster.start_worker("tools")
        await handle.result()
    assert (await output(cluster, ROLLOUT, "0002-00")).split() == ["0", "1"]
    end = await read_end(cluster.open_journal(), ROLLOUT)
    assert end is not None and end.summary.losses == (Fidelity.EXACT,)


async def test_files_of_the_item_are_put_into_a_sandbox_once(private_cluster: Cluster, link: Link) -> None:
    cluster, lease = private_cluster, lease_key(ROLLOUT, 0)
    item: Item = {
        "kind": "append",
        "path": "/work/notes",
        "text": "last",
        "lines": ["first"],
        "prompt": "Append.",
    }
    append = run("echo last >> /work/notes")
    waits = run("touch /work/waiting; while [ ! -e /work/go ]; do sleep 0.05; done")
    await cluster.start_worker("workflows,llm")
    async with serving(model(append, waits)) as url:
        handle = await cluster.start(RUN, url, environment="file_tasks", items=(item,))
        rules = f"sandbox.created[{lease}]:pause", f"journal.write[{lease}]:pause"
        late = await Stops(cluster, *rules).start_worker(link.address)
        await late.reached("sandbox.created")
        await link.stop()
        await cluster.start_worker("tools")
        file = await eventually(lambda: made(cluster, ROLLOUT, 0, "waiting"), "the second command")
        late.release("sandbox.created")
        await late.reached("journal.write")
        late.release("journal.write")
        file.with_name("go").touch()
        await handle.result()
    end = await read_end(cluster.open_journal(), ROLLOUT)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())

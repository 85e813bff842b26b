"""The journal outlives Temporal, and isn't made up where it is lost."""

import asyncio
import re
import shutil
import threading
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from clotho.embedded.temporal_binary import temporal_binary
from clotho.embedded.temporal_server import TemporalServer
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Question, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster, cluster_in
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.scripts import run, say
from tests.workflows.test_runs import failure


@pytest.mark.slow
async def test_a_run_goes_on_without_its_database(folder: Path) -> None:
    """Server and workers die with the database. The same run, started again, pays for no completed turn again,
    re-runs no finished command, and goes on in the sandboxes that it had."""
    home = folder / "database-lost"
    home.mkdir(mode=0o711)
    server = TemporalServer(
        await temporal_binary(),
        home / "temporal.log",
        ui_port=None,
        db=home / "temporal.db",
    )
    turns = [run(f"echo {number} >> /work/ran") for number in range(4)]
    last = (run("test $(tr -d '\\n' < /work/ran) = 0123 && echo -n 1 > /work/score"), say("Done."))
    script = Script(conversations=(Conversation(variants=((*turns, *last),)),))
    model = Holding(script, held=after_turns(3))
    async with serving(model) as url, server, cluster_in(server, home / "cluster", "default") as cluster:
        worker = await cluster.start_worker()
        await start(cluster, "outlived", url, groups=2, group_size=2)
        await model.held(4)
        await worker.kill()
        await server.kill()
        for file in home.glob("temporal.db*"):
            file.unlink()
        model.release.set()
        journalled = {key for key in await cluster.open_journal().keys("outlived/") if "/turn/" in key}
        await server.start(PATIENCE_SECONDS)
        await cluster.start_worker()
        progress = await (await start(cluster, "outlived", url, groups=2, group_size=2)).result()
        assert (progress.rollouts, progress.reward_sum) == (4, 4.0)
        assert len(journalled) == 12
        assert {model.calls.requests[key] for key in journalled} == {1}
        assert await read_end(cluster.open_journal(), "outlived/g000001/r1") is not None


@pytest.mark.slow
async def test_an_emptied_store_is_said_to_be_one(private_cluster: Cluster) -> None:
    """A group, and one of two siblings, that Temporal has as completed can't be started again by that name."""
    cluster = private_cluster
    halves = threading.Event()

    def policy(question: Question) -> ScriptedTurn:
        if question.turn:
            return say("Done.")
        return run("sleep 600" if question.sibling and not halves.is_set() else "true")

    model = ScriptedModel(Script(conversations=(Conversation(variants=((say("Done."),),)),)), policy)
    async with serving(model) as url:
        worker = await cluster.start_worker()
        await (await start(cluster, "emptied", url, groups=2)).result()
        half = await start(cluster, "half", url, group_size=2)

        async def first_done() -> bool:
            handle = cluster.client.get_workflow_handle("half/g000000/r0")
            return await read_end(cluster.open_journal(), "half/g000000/r0") is not None and (
                (await handle.describe()).status is WorkflowExecutionStatus.COMPLETED
            )

        await eventually(first_done, "the first sibling's end")
        await half.terminate("by a test")
        await cluster.client.get_workflow_handle("half/g000000").terminate("by a test")
        await worker.kill()
        halves.set()
        shutil.rmtree(cluster.store)
        await cluster.start_worker()
        for name, size, lost in (("emptied", 1, "emptied/g00000[01]"), ("half", 2, "half/g000000/r0")):
            again = await start(cluster, name, url, groups=size % 2 + 1, group_size=size)
            with pytest.raises(WorkflowFailureError) as raised:
                await asyncio.wait_for(again.result(), PATIENCE_SECONDS)
            said = f"{lost} has completed in Temporal, but its result is not in"
            assert re.search(said, failure(raised.value))
            assert "JournalCorrupt" in failure(raised.value)

"""Workers that die: what was done is not done again, and what was under way goes on."""

import asyncio
import json

import pytest

from clotho.identifiers.keys import call_key, turn_key
from clotho.rollouts.call import CallEntry
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedCall, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import PATIENCE_SECONDS, eventually, start
from tests.workflows.holding import Holding, after_turns
from tests.workflows.losses import WAITS, made
from tests.workflows.scripts import run, say

ROLLOUT = "{run}/g000000/r0"


async def written(cluster: Cluster, key: str) -> None:
    """Wait until the journal has an entry, before or after its rollout is sealed."""

    async def there() -> bool:
        loose, sealed = cluster.store / key, cluster.store / "/".join(key.split("/")[:3]) / "sealed"
        return loose.exists() or sealed.exists()

    await eventually(there, f"journal entry {key}")


async def call(cluster: Cluster, rollout: str, turn: int) -> CallEntry:
    return await cluster.open_journal().read_required(call_key(rollout, f"{turn:04}-00"), CallEntry)


async def test_a_new_worker_goes_on_from_the_last_completed_step(private_cluster: Cluster) -> None:
    """The only worker is killed three times: after a turn, after a command, and in the middle of a call."""
    cluster, rollout = private_cluster, ROLLOUT.format(run="killed")
    turns = [run(f"echo {number} >> /work/ran") for number in range(6)]
    turns[1] = run(f"{WAITS}; echo 1 >> /work/ran")
    script = Script(conversations=(Conversation(variants=((*turns, run("cat /work/ran"), say("Done.")),)),))
    model = Holding(script, held=after_turns(3))
    async with serving(model) as url:
        worker = await cluster.start_worker()
        handle = await start(cluster, "killed", url)
        waiting = await eventually(lambda: made(cluster, rollout, 0, "waiting"), "the command after a turn")
        await worker.kill()
        worker = await cluster.start_worker()
        waiting.with_name("go").touch()
        await model.held(1)
        assert (cluster.store / call_key(rollout, "0002-00")).exists()
        await worker.kill()
        worker = await cluster.start_worker()
        model.hold(after_turns(5))
        await model.held(1)
        await worker.kill()
        model.release.set()
        await cluster.start_worker()
        await handle.result()
    assert model.calls.paid_twice == {}
    ran = json.loads((await call(cluster, rollout, 6)).content)["output"]
    assert ran.split() == ["0", "1", "2", "3", "4", "5"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.turns, end.summary.tool_calls) == (8, 7)


async def test_a_command_outlives_its_worker_and_is_attached_to(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, ROLLOUT.format(run="attach")
    lines = "for i in $(seq 60); do echo line $i; sleep 0.1; done"
    command = f"touch /work/begun; {lines}; {WAITS}; echo once >> /work/count; wc -l < /work/count"
    script = Script(conversations=(Conversation(variants=((run(command), say("Done.")),)),))
    async with serving(ScriptedModel(script)) as url:
        worker = await cluster.start_worker()
        handle = await start(cluster, "attach", url)

        waiting = await eventually(lambda: made(cluster, rollout, 0, "begun"), "the command running")
        for _ in range(2):
            await worker.kill()
            worker = await cluster.start_worker()
        waiting.with_name("go").touch()
        await handle.result()
    result = json.loads((await call(cluster, rollout, 0)).content)
    assert result["output"].split("\n")[:60] == [f"line {number}" for number in range(1, 61)]
    assert result["output"].split()[-1] == "1"


@pytest.mark.slow
async def test_a_worker_told_to_stop_finishes_its_calls(private_cluster: Cluster) -> None:
    """SIGTERM in the middle of a model call: the call is journalled, and the next worker doesn't ask again."""
    cluster, rollout = private_cluster, ROLLOUT.format(run="drained")
    script = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),), latency=2.0)
    model = ScriptedModel(script)
    async with serving(model) as url:
        worker = await cluster.start_worker(CLOTHO_WORKER__DRAIN_SECONDS=f"{PATIENCE_SECONDS:g}")
        handle = await start(cluster, "drained", url)

        async def asked() -> bool:
            return bool(model.calls.requests)

        await eventually(asked, "the first turn asked for")
        await worker.stop(2 * PATIENCE_SECONDS)
        assert (cluster.store / turn_key(rollout, 0)).exists(), "the call in flight was lost"
        await cluster.start_worker()
        await handle.result()
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_a_worker_told_to_stop_leaves_a_call_that_is_not_answered(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, ROLLOUT.format(run="unanswered")
    script = Script(conversations=(Conversation(variants=((run("true"), say("Done.")),)),))
    model = Holding(script, held=b"")
    async with serving(model) as url:
        worker = await cluster.start_worker(CLOTHO_WORKER__DRAIN_SECONDS="1")
        handle = await start(cluster, "unanswered", url)
        await model.held(1)
        worker.terminate()
        assert await asyncio.wait_for(worker.wait(), PATIENCE_SECONDS) == 0
        model.release.set()
        await cluster.start_worker()
        await handle.result()
    assert await read_end(cluster.open_journal(), rollout) is not None


@pytest.mark.slow
async def test_models_and_tools_in_processes_of_their_own_die_together(private_cluster: Cluster) -> None:
    cluster = private_cluster
    turns = (run("true"), run("true"), say("Done."))
    model = ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),), latency=0.2))
    async with serving(model) as url:
        llm = await cluster.start_worker("llm")
        tools = await cluster.start_worker("workflows,tools")
        handle = await start(cluster, "apart", url, groups=4, group_size=2)
        await written(cluster, turn_key("apart/g000001/r0", 0))
        await asyncio.gather(llm.kill(), tools.kill())
        journalled = {key for key in await cluster.open_journal().keys("apart/") if "/turn/" in key}
        await cluster.start_worker("llm")
        await cluster.start_worker("workflows,tools")
        progress = await handle.result()
    assert (progress.scored, progress.rollouts) == (4, 8)
    assert journalled
    assert {model.calls.requests[key] for key in journalled} == {1}


@pytest.mark.slow
async def test_a_file_is_patched_once_though_its_worker_dies_before_that_is_journalled(
    private_cluster: Cluster,
) -> None:
    """Between the two attempts something else appends to the file: a second write would take that away."""
    cluster, rollout = private_cluster, ROLLOUT.format(run="once")
    watcher = "until grep -q new /work/file; do sleep 0.05; done; echo later >> /work/file"
    patch = {"mode": "replace", "path": "/work/file", "old_string": "old", "new_string": "new"}
    calls = (
        ScriptedCall(name="terminal", arguments={"command": "echo old > /work/file"}),
        ScriptedCall(name="terminal", arguments={"command": watcher, "background": True}),
        ScriptedCall(name="patch", arguments={**patch}),
    )
    turns = (*(ScriptedTurn(calls=(call,)) for call in calls), run("cat /work/file"), say("Done."))
    armed = f"call.made[{call_key(rollout, '0002-00')}]:kill"
    async with serving(ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))) as url:
        worker = await cluster.start_worker(CLOTHO_FAIL=armed)
        handle = await start(cluster, "once", url)
        await asyncio.wait_for(worker.wait(), PATIENCE_SECONDS)

        async def appended() -> bool:
            [file] = cluster.folder.glob("sandboxes/*/sandboxes/*/disk/work/file")
            return file.read_text() == "new\nlater\n"

        await eventually(appended, "the file changed by somebody else")
        await cluster.start_worker()
        await handle.result()
    patched, shown = [json.loads((await call(cluster, rollout, turn)).content) for turn in (2, 3)]
    assert patched["success"]
    assert shown["output"].split() == ["new", "later"]

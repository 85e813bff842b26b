"""Steps that workflows try in their own process first, and those that go on as regular activities."""

from collections.abc import Sequence

import pytest
from temporalio.api.history.v1 import HistoryEvent

from clotho.identifiers.keys import lease_key
from clotho.rollouts.lease import LeaseEntry
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import (
    LOOK_UPS,
    PATIENCE_SECONDS,
    beyond_the_budget,
    events_of,
    eventually,
    regular_steps,
    start,
    step_of,
    steps_done,
)
from tests.workflows.scripts import run, say, scoring

BEYOND_THE_BUDGET = "echo ran >> ran; sleep 3; echo -n 1 > score"


def played(*turns: ScriptedTurn) -> Script:
    return Script(conversations=(Conversation(variants=((*turns, say("Done.")),)),))


def not_done_here(history: Sequence[HistoryEvent]) -> list[str]:
    """The steps that weren't done here in time, as may happen to any on a busy machine."""
    return [step for event in history if beyond_the_budget(event) and (step := step_of(event)) is not None]


async def score_of(cluster: Cluster, rollout: str) -> float | None:
    end = await read_end(cluster.open_journal(), rollout)
    return None if end is None else end.summary.score


async def test_nothing_is_a_regular_activity_where_nothing_is_slow(cluster: Cluster) -> None:
    """But the first turn from a server that is new: nobody knows yet how long it takes."""
    async with serving(ScriptedModel(Script(conversations=(scoring(0.5),)))) as url:
        await (await start(cluster, "first-steps", url)).result()
        await (await start(cluster, "quick-steps", url)).result()
    for workflow, regular in (
        ("first-steps/g000000/r0", ["turn 0"]),
        ("quick-steps/g000000/r0", []),
        ("quick-steps/g000000", []),
    ):
        history = await events_of(cluster, workflow)
        slow = not_done_here(history)
        elsewhere = dict.fromkeys(regular_steps(history))
        assert [step for step in elsewhere if step not in (*slow, *LOOK_UPS)] == regular
        assert len(slow) < 5, "most were done here"


async def test_a_long_command_goes_on_as_a_regular_activity_and_runs_once(cluster: Cluster) -> None:
    script = played(run(BEYOND_THE_BUDGET), run("test $(wc -l < ran) = 1 || echo -n 0 > score"))
    async with serving(ScriptedModel(script)) as url:
        await (await start(cluster, "long-step", url)).result()
    history = await events_of(cluster, "long-step/g000000/r0")
    (call,) = [step for step in steps_done(history) if step.startswith("0.0 ")]
    assert call in not_done_here(history), "tried here"
    assert call in regular_steps(history)
    assert await score_of(cluster, "long-step/g000000/r0") == 1.0


async def test_a_process_without_sandboxes_leaves_their_steps_to_others(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "apart/g000000/r0"
    await cluster.start_worker("workflows")
    await cluster.start_worker("tools")
    await cluster.start_worker("llm")
    async with serving(ScriptedModel(Script(conversations=(scoring(0.5),)))) as url:
        await (await start(cluster, "apart", url)).result()
    found = regular_steps(await events_of(cluster, rollout))
    call = "0.0 `terminal` `echo -n 0.5 > /work/score`"
    assert {"create sandbox", call, "verify", "write end", "release sandbox"} <= set(found)
    assert await score_of(cluster, rollout) == 0.5


@pytest.mark.slow
async def test_a_worker_that_is_stopped_in_a_local_step_cancels_nothing(private_cluster: Cluster) -> None:
    """Its step ends with the process; the next worker makes it again and finds the command that runs."""
    cluster, rollout = private_cluster, "stopped-here/g000000/r0"
    worker = await cluster.start_worker()
    script = played(run("echo ran >> ran; sleep 1.5; test $(wc -l < ran) = 1 && echo -n 1 > score"))
    async with serving(ScriptedModel(script)) as url:
        handle = await start(cluster, "stopped-here", url)

        async def under_way() -> bool:
            return await cluster.open_journal().read(lease_key(rollout, 0), LeaseEntry) is not None

        await eventually(under_way, "the sandbox is made, and its command is asked for")
        await worker.stop(PATIENCE_SECONDS)
        await cluster.start_worker()
        await handle.result()
    assert await score_of(cluster, rollout) == 1.0

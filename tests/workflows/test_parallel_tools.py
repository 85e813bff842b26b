"""Calls of a turn that only read, side by side: their order, a worker's death, and the loss of their sandbox."""

import os
from functools import partial
from typing import Any

import pytest

from clotho.identifiers.keys import call_key, lease_key
from clotho.models.messages import FunctionCall, ToolCall
from clotho.rollouts.call import CallEntry
from clotho.rollouts.group import MOST_SIDE_BY_SIDE, OfferedTool, ToolManifest
from clotho.rollouts.lease import Fidelity, LeaseEntry
from clotho.rollouts.outcome import Ending, Limits, Outcome
from clotho.run_settings import RunSettings
from clotho.runs.rollouts import read_end
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.environments.side_by_side import MEETING, NAME, floods, meets
from tests.support import eventually
from tests.workflows.losses import journalled, kill_sandbox, made, output
from tests.workflows.scripts import run, say
from workflows.steps import all_of

PARALLEL = RunSettings(parallel_tools=True)


def played(*turns: ScriptedTurn) -> ScriptedModel:
    return ScriptedModel(Script(conversations=(Conversation(variants=(turns,)),)))


async def results(cluster: Cluster, rollout: str, calls: int) -> list[str]:
    """What the model was shown of the first turn's calls."""
    journal = cluster.open_journal()
    keys = [call_key(rollout, f"0000-{index:02}") for index in range(calls)]
    return [(await journal.read_required(key, CallEntry)).content for key in keys]


async def test_calls_that_read_meet_and_those_that_write_part_them(cluster: Cluster) -> None:
    async with serving(played(*MEETING)) as url:
        handle = await cluster.start("meeting", url, environment=NAME, settings=PARALLEL)
        await handle.result()
    rollout = "meeting/g000000/r0"
    _, left, before, right, _, after, score = await results(cluster, rollout, 7)
    assert (left, right) == ("left met right", "right met left")
    assert "before" in before and "after" in after and "1|1" in score
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.tool_calls) == (1.0, 7)


WAITING = (
    ScriptedTurn(calls=(meets("left", "go"), meets("right", "go"))),
    run("cat /work/left /work/right; echo -n 1 > /work/score"),
    say("Done."),
)


async def both(cluster: Cluster, rollout: str, lease: int) -> Any:
    """The file that both calls in a lease's sandbox wait for, once they do."""
    waiting = [await made(cluster, rollout, lease, name) for name in ("left", "right")]
    return waiting[0].with_name("go") if all(waiting) and waiting[0] else None


@pytest.mark.slow
async def test_a_worker_that_dies_in_both_makes_neither_twice(private_cluster: Cluster) -> None:
    cluster, rollout = private_cluster, "died/g000000/r0"
    async with serving(played(*WAITING)) as url:
        worker = await cluster.start_worker()
        handle = await cluster.start("died", url, environment=NAME, settings=PARALLEL)
        go = await eventually(partial(both, cluster, rollout, 0), "both calls waiting")
        await worker.kill()
        await cluster.start_worker()
        go.touch()
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, ())
    assert await results(cluster, rollout, 2) == ["left met go", "right met go"]
    assert (await output(cluster, rollout, "0001-00")).split() == ["left", "right"]


async def test_a_sandbox_lost_in_both_is_restored_once(cluster: Cluster) -> None:
    rollout = "both-lost/g000000/r0"
    async with serving(played(*WAITING)) as url:
        handle = await cluster.start("both-lost", url, environment=NAME, settings=PARALLEL)
        await eventually(partial(both, cluster, rollout, 0), "both calls waiting")
        await kill_sandbox(cluster, rollout)
        go = await eventually(partial(both, cluster, rollout, 1), "both waiting in the next sandbox")
        go.touch()
        await handle.result()
    assert await results(cluster, rollout, 2) == ["left met go", "right met go"]
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.score, end.summary.losses) == (1.0, (Fidelity.EXACT,))
    assert await cluster.open_journal().read(lease_key(rollout, 2), LeaseEntry) is None


@pytest.mark.parametrize(
    ("names", "parallel", "batches"),
    [
        ("rr", False, [1, 1]),
        ("rrwr", True, [2, 1, 1]),
        ("wrrrw", True, [1, 3, 1]),
        ("r?r", True, [1, 1, 1]),
        ("r" * (MOST_SIDE_BY_SIDE + 1), True, [MOST_SIDE_BY_SIDE, 1]),
        ("w" + "r" * 12, True, [1, 8, 1, 1, 1, 1]),
    ],
)
def test_neighbours_that_only_read_are_run_together(names: str, parallel: bool, batches: list[int]) -> None:
    offered = tuple(
        OfferedTool(name=name, toolset="x", sandboxed=True, read_only=name == "r", tool_schema={})
        for name in "rw"
    )
    tools = ToolManifest(toolsets=("x",), tools=offered, unavailable={})
    calls = [ToolCall(id="x", function=FunctionCall(name=name, arguments="{}")) for name in names]
    found = tools.batches(calls, Limits(parallel_tools=parallel, max_calls_per_turn=9))
    assert [len(each) for each in found] == batches
    assert [index for each in found for index in each] == list(range(len(names)))


async def test_a_call_that_finished_beside_one_that_loses_its_sandboxes_counts_once(cluster: Cluster) -> None:
    rollout = "one-lost/g000000/r0"
    turns = (ScriptedTurn(calls=(meets("left", "go"), meets("right", "never"))), say("Done."))

    async def waiting(lease: int, name: str) -> Any:
        return await made(cluster, rollout, lease, name)

    async with serving(played(*turns)) as url:
        limit = {"max_active_seconds": 900.0}
        handle = await cluster.start(
            "one-lost", url, environment=NAME, settings=PARALLEL, overrides=limit, group_size=1
        )
        go = await eventually(partial(both, cluster, rollout, 0), "both calls waiting")
        go.touch()
        await journalled(cluster, call_key(rollout, "0000-00"))
        for lease in range(3):
            await eventually(partial(waiting, lease, "right"), f"the other waiting in sandbox {lease}")
            await kill_sandbox(cluster, rollout, lease)
        last = await eventually(partial(waiting, 3, "right"), "the other waiting in the last sandbox")
        last.with_name("never").touch()
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and end.summary.tool_calls == 2
    finished = await cluster.open_journal().read_required(call_key(rollout, "0000-00"), CallEntry)
    assert finished.seconds_left is not None and finished.seconds_left <= 450, "half of what is left"


@pytest.mark.skipif(os.geteuid() != 0, reason="disks of their own need root")
async def test_a_call_that_finished_counts_where_the_one_beside_it_ends_every_sandbox(
    cluster: Cluster,
) -> None:
    """The policy's doing by evidence: the rollout ends within the turn, with a reward."""
    rollout = "one-floods/g000000/r0"
    turns = (ScriptedTurn(calls=(meets("left", "go"), floods("right", "full"))), say("Done."))

    async def waiting(lease: int) -> Any:
        return await made(cluster, rollout, lease, "right")

    async with serving(played(*turns)) as url:
        settings = RunSettings(parallel_tools=True, disk_mb=40)
        handle = await cluster.start("one-floods", url, environment=NAME, settings=settings, group_size=1)
        go = await eventually(partial(both, cluster, rollout, 0), "both calls waiting")
        go.touch()
        await journalled(cluster, call_key(rollout, "0000-00"))
        for lease in range(3):
            here = await eventually(partial(waiting, lease), f"the other waiting in sandbox {lease}")
            here.with_name("full").touch()
        await handle.result()
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None
    assert end.summary.ending == Ending(outcome=Outcome.POLICY_KILLED, limit="disk")
    assert (end.summary.tool_calls, len(end.summary.losses)) == (1, 3)


@pytest.mark.parametrize("lost", [0, 1])
async def test_the_loss_of_a_sandbox_comes_before_other_errors(lost: int) -> None:
    """It is mended by another sandbox, in which the other calls are made again, too."""

    async def fails(number: int) -> None:
        raise (LookupError if number == lost else ValueError)(number)

    with pytest.raises(LookupError):
        await all_of([fails(0), fails(1)], foremost=lambda error: isinstance(error, LookupError))
    with pytest.raises((LookupError, ValueError), match="0"):
        await all_of([fails(0), fails(1)])

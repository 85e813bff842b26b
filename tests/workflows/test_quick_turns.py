"""Turns that are sampled within their workflow's task, and those that go on as regular activities."""

import os
import signal
from datetime import timedelta

import pytest

from clotho.identifiers.keys import turn_key
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.rollouts import read_end
from clotho.temporal.states import is_running
from clotho.testing.script import Conversation, Script, ScriptedTurn
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cluster import Cluster
from tests.support import events_of, eventually, regular_steps, start, steps_done
from tests.workflows.holding import Holding, after_turns
from tests.workflows.scripts import run, say

TURNS = 6


def script(latency: float = 0.0, turns: int = TURNS) -> Script:
    said: tuple[ScriptedTurn, ...] = (*[run("true")] * (turns - 1), say("Done."))
    return Script(conversations=(Conversation(variants=(said,)),), latency=latency)


def model_queue(cluster: Cluster, number: int) -> str:
    """The own queue of one of the processes that call models."""
    return f"{TaskQueues().model.queue}-{cluster.host_name}-{number}"


async def test_slow_turns_are_regular_activities(cluster: Cluster) -> None:
    async with serving(ScriptedModel(script(latency=2.2))) as url:
        await (await start(cluster, "slow", url)).result()
    found = regular_steps(await events_of(cluster, "slow/g000000/r0"))
    assert [step for step in found if step.startswith("turn")] == [f"turn {turn}" for turn in range(TURNS)]


def often_silent() -> TaskQueues:
    """Turns whose heartbeats are due every second."""
    own = TaskQueues()
    seconds = {"heartbeat_timeout": timedelta(seconds=1)}
    return own.model_copy(update={"model": own.model.model_copy(update=seconds)})


async def silences(cluster: Cluster, rollout: str) -> list[float]:
    """Seconds for which each of a rollout's turns was allowed to be silent."""
    return [
        event.activity_task_scheduled_event_attributes.heartbeat_timeout.ToTimedelta().total_seconds()
        for event in await events_of(cluster, rollout)
        if event.activity_task_scheduled_event_attributes.activity_type.name == "sample_turn"
    ]


@pytest.mark.slow
async def test_a_slow_turn_lets_the_next_ones_be_silent_for_longer(cluster: Cluster) -> None:
    """Those of its rollout, and those of rollouts that begin after it."""
    async with serving(ScriptedModel(script(latency=8.5, turns=2))) as url:
        for name in ("silent", "silent-later"):
            await (await start(cluster, name, url, task_queues=often_silent())).result()
    first, *later = [
        seconds
        for name in ("silent", "silent-later")
        for seconds in await silences(cluster, f"{name}/g000000/r0")
    ]
    assert first == 1.0
    assert len(later) == 2 * 2 - 1
    assert all(2 <= seconds <= 4 for seconds in later), later


@pytest.mark.slow
async def test_turns_beside_many_others_may_be_silent_for_longer(cluster: Cluster) -> None:
    model, many = Holding(script(turns=1), held=b'"task '), 60
    async with serving(model) as url:
        handle = await start(cluster, "beside", url, group_size=many, task_queues=often_silent())
        names = [f"beside/g000000/r{number}" for number in range(many)]

        async def all_asked() -> bool:
            begun = [await is_running(cluster.client, name) for name in names]
            return all(begun) and all([await silences(cluster, name) for name in names])

        await eventually(all_asked, "a turn of each rollout")
        model.release.set()
        await handle.result()
    allowed = sorted([(await silences(cluster, name))[0] for name in names])
    assert allowed[0] == 1.0, "the first one is alone"
    assert 3 <= allowed[-1] <= 4


@pytest.mark.slow
async def test_a_turn_that_turns_out_slow_goes_on_elsewhere_and_is_asked_for_once(cluster: Cluster) -> None:
    model, rollout = Holding(script(), held=after_turns(2)), "turning-slow/g000000/r0"
    async with serving(model) as url:
        handle = await start(cluster, "turning-slow", url)
        await model.held(1)

        async def regular() -> bool:
            return "turn 2" in regular_steps(await events_of(cluster, rollout))

        await eventually(regular, "the turn as a regular activity")
        model.release.set()
        await handle.result()
    assert "turn 1" not in regular_steps(await events_of(cluster, rollout)), "the one before was quick"
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.slow
async def test_a_process_that_is_frozen_in_a_turn_pays_for_nothing_twice(private_cluster: Cluster) -> None:
    """Its workflow goes on in another process, which leaves the turn to it.

    When it goes on, it holds a task that has timed out, and may roll the rollout out to its end.
    """
    cluster, rollout = private_cluster, "frozen-turn/g000000/r0"
    model = Holding(script(), held=after_turns(1))
    frozen = await cluster.start_worker()
    async with serving(model) as url:
        handle = await start(cluster, "frozen-turn", url)
        await model.held(1)
        assert frozen.pid is not None
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            async with cluster.present(model_queue(cluster, 0)):  # not for so long that it is taken for gone
                await cluster.start_worker()

                async def moved() -> bool:
                    return "turn 1" in regular_steps(await events_of(cluster, rollout))

                await eventually(moved, "the workflow in the other process")
                os.kill(frozen.pid, signal.SIGCONT)
                model.release.set()
                await handle.result()
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
    assert set(model.calls.requests.values()) == {1}
    end = await read_end(cluster.open_journal(), rollout)
    assert end is not None and (end.summary.turns, end.summary.losses) == (TURNS, ())
    assert "restore sandbox (1)" not in steps_done(await events_of(cluster, rollout))


@pytest.mark.slow
async def test_a_process_that_was_frozen_before_it_asked_leaves_the_turn_to_another(
    private_cluster: Cluster,
) -> None:
    """It is silent for so long that the other one asks in its place."""
    cluster, name = private_cluster, "frozen-before"
    journal = cluster.open_journal()
    rollout, asking = f"{name}/g000000/r0", cluster.folder / "fail" / "turn.asking"
    asking.parent.mkdir()
    model, turn = Holding(script(), held=after_turns(2)), turn_key(rollout, 1)
    frozen = await cluster.start_worker(
        CLOTHO_FAIL=f"turn.asking[{turn}]:pause", CLOTHO_FAIL_FOLDER=str(asking.parent)
    )
    async with serving(model) as url:
        handle = await start(cluster, name, url)

        async def before_it_asks() -> bool:
            return asking.exists()

        await eventually(before_it_asks, "the process before its request")
        assert frozen.pid is not None
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            asking.unlink()
            await cluster.start_worker()

            async def another_serves() -> bool:
                return bool(await journal.keys(f"~present/{model_queue(cluster, 1)}/"))

            await eventually(another_serves, "the other process")
            await model.held(1)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        model.release.set()
        await handle.result()
        await frozen.stop()  # once it has nothing to ask for any more
    assert set(model.calls.requests.values()) == {1}


@pytest.mark.parametrize("point", ["turn.asking", "turn.answered", "journal.write", "turn.journalled"])
@pytest.mark.slow
async def test_a_process_that_is_killed_in_a_turn_loses_an_answer_at_most(
    private_cluster: Cluster, point: str
) -> None:
    cluster, name = private_cluster, f"killed-{point.replace('.', '-')}"
    rollout = f"{name}/g000000/r0"
    model = ScriptedModel(script())
    doomed = await cluster.start_worker(CLOTHO_FAIL=f"{point}[{turn_key(rollout, 1)}]:kill")
    async with serving(model) as url:
        handle = await start(cluster, name, url)
        await doomed.wait()
        await cluster.start_worker()
        await handle.result()
    lost = {turn_key(rollout, 1)} if point in ("turn.answered", "journal.write") else set()
    assert set(model.calls.paid_twice) == lost
    assert "turn 0" in regular_steps(history := await events_of(cluster, rollout)), (
        "nothing known of the server"
    )
    assert f"turn {TURNS - 1}" not in regular_steps(history)

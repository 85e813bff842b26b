"""A process that is behind begins no further rollouts."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from clotho.models.gate import LEAST_IN_USE, Gate, Room
from clotho.processes.load import LONGEST_WAIT, MEMORY_SECONDS, MOST_COMPUTING, ProcessLoad
from clotho.temporal.workflow_slots import WorkflowSlots

STICKY: Any = SimpleNamespace(is_sticky=True)
OTHER: Any = SimpleNamespace(is_sticky=False)


def busy() -> ProcessLoad:
    load = ProcessLoad()
    for _ in range(MOST_COMPUTING):
        load.begin_task()
    return load


async def waits(reserving: asyncio.Task[Any]) -> bool:
    await asyncio.sleep(0.1)
    return not reserving.done()


async def test_a_busy_process_takes_tasks_of_its_own_workflows_alone() -> None:
    load = busy()
    slots = WorkflowSlots(MOST_COMPUTING + 2, load)
    await asyncio.wait_for(slots.reserve_slot(STICKY), 5)
    other = asyncio.create_task(slots.reserve_slot(OTHER))
    assert await waits(other)
    with load.stepping():  # such as a model's answer: the task that waits for it computes nothing
        await asyncio.wait_for(other, 5)


async def test_a_process_has_so_many_tasks_at_most() -> None:
    slots = WorkflowSlots(2, ProcessLoad())
    permit, _ = await slots.reserve_slot(STICKY), await slots.reserve_slot(OTHER)
    third = asyncio.create_task(slots.reserve_slot(STICKY))
    assert await waits(third)
    released: Any = SimpleNamespace(slot_info=None, permit=permit)
    await asyncio.to_thread(slots.release_slot, released)
    await asyncio.wait_for(third, 5)


async def test_a_process_asks_for_one_further_workflow_at_a_time() -> None:
    slots = WorkflowSlots(10, ProcessLoad())
    permit = await slots.reserve_slot(OTHER)
    second = asyncio.create_task(slots.reserve_slot(OTHER))
    assert await waits(second)
    used: Any = SimpleNamespace(slot_info=OTHER, permit=permit)
    await asyncio.to_thread(slots.mark_slot_used, used)
    await asyncio.wait_for(second, 5)


async def test_a_request_for_a_further_workflow_that_is_cancelled_keeps_out_none() -> None:
    load = busy()
    slots = WorkflowSlots(10, load)
    first = asyncio.create_task(slots.reserve_slot(OTHER))
    assert await waits(first)
    first.cancel()
    load.end_task()
    await asyncio.wait_for(slots.reserve_slot(OTHER), 5)


async def test_a_process_that_is_behind_begins_no_rollout() -> None:
    """But for a few: something else may keep the machine busy. Those that have begun go on."""
    load = busy()
    gate = Gate(100, Room(500, load))
    for _ in range(LEAST_IN_USE):
        await asyncio.wait_for(gate.acquire("run"), 5)
    new = asyncio.create_task(gate.acquire("run"))
    assert await waits(new)
    await asyncio.wait_for(gate.acquire("run", begun=True), 5)
    load.end_task()
    await asyncio.wait_for(new, 5)  # without another request that ends
    assert gate.in_use == LEAST_IN_USE + 2


async def test_rollouts_begin_one_after_another() -> None:
    gate = Gate(100, Room(500, ProcessLoad()))
    waiting = [asyncio.create_task(gate.acquire("run")) for _ in range(LEAST_IN_USE + 3)]
    await asyncio.sleep(0)
    assert gate.in_use == LEAST_IN_USE
    await asyncio.wait_for(asyncio.gather(*waiting), 5)


@pytest.mark.parametrize(("answer", "bearable"), [(0.5, 0.3), (8.0, 1.0), (300.0, LONGEST_WAIT)])
def test_turns_of_a_slow_model_may_wait_longer(
    answer: float, bearable: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("clotho.processes.load.time.monotonic", lambda: now)
    load = ProcessLoad()
    for _ in range(100):
        load.note_wait(bearable * 0.9)
    assert not load.is_behind(answer)
    for _ in range(100):
        load.note_wait(bearable * 1.1)
    assert load.is_behind(answer)
    now += MEMORY_SECONDS
    assert not load.is_behind(answer)

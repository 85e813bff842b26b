"""Turns that take time: their cost, the gaps between them, and workflow tasks that time out, with many at once."""

import asyncio
import itertools
import statistics
from collections.abc import Sequence

from temporalio.api.enums.v1 import EventType

from benchmarks.cpu import cpu_seconds, memory_bytes
from benchmarks.loop import DONE, NO_OP, Bench
from benchmarks.table import Row
from benchmarks.width import peak_memory
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import turn_key
from clotho.journal import Journal
from clotho.rollouts.turn import TurnEntry
from clotho.testing.script import Conversation, Script

GROUP_SIZE = 4
MEDIAN_SECONDS, SIGMA = 1.64, 1.1
"""Of a log-normal time: 3 s in the mean, 10 s in the 95th percentile."""
TOKENS_PER_SECOND = 50.0
HISTORIES_AT_ONCE = 16


async def real(measured: Bench, rollouts: int = 300, turns: int = 10) -> list[Row]:
    """`rollouts` at once, whose turns take as long as those of a real model."""
    script = Script(
        conversations=(Conversation(variants=((*[NO_OP] * (turns - 1), DONE),)),),
        latency=MEDIAN_SECONDS,
        latency_sigma=SIGMA,
        tokens_per_second=TOKENS_PER_SECOND,
    )
    async with measured.model(script) as url:
        used = cpu_seconds()
        name, _ = await measured.rollouts(url, rollouts // GROUP_SIZE, GROUP_SIZE)
        cpu = (cpu_seconds() - used) / rollouts / turns * 1e3
    gaps, starts = await times(measured.cluster.open_journal(), names(name, rollouts), turns)
    tasks, late = await workflow_tasks(measured, names(name, rollouts))
    what = f"{rollouts} rollouts at once, turns of 3 s"
    return [
        Row(f"{what}: CPU a turn", f"{cpu:.0f} ms", "≤ 25 ms"),
        Row("… workflow tasks that timed out", f"{late} of {tasks}", "0"),
        Row("… gap between turns, median", f"{statistics.median(gaps):.2f} s", "≤ 0.1 s"),
        Row(
            "… gap between turns, 99th percentile", f"{statistics.quantiles(gaps, n=100)[-1]:.2f} s", "≤ 2 s"
        ),
        Row("… from the first of their first turns to the last", f"{max(starts) - min(starts):.1f} s"),
    ]


async def quick(
    measured: Bench, rollouts: int = 1_000, turns: int = 10, seconds: float = 0.5, width: int = 64
) -> list[Row]:
    """`rollouts` at once, with turns of `seconds`, of which the server answers `width` at a time."""
    script = Script(
        conversations=(Conversation(variants=((*[NO_OP] * (turns - 1), DONE),)),),
        latency=seconds,
        most_at_once=width,
    )
    before = memory_bytes()
    async with measured.model(script) as url:
        sampling = asyncio.create_task(peak_memory())
        name, took = await measured.rollouts(url, rollouts // GROUP_SIZE, GROUP_SIZE)
        sampling.cancel()
    tasks, late = await workflow_tasks(measured, names(name, rollouts))
    best = rollouts * turns * seconds / width
    memory = (await sampling - before) / 2**30
    what = f"{rollouts:,} rollouts at once, calls of {seconds} s, {width} at a time"
    return [
        Row(f"{what}: rate beside the model's own", f"{best / took:.2f}", "≥ 0.8"),
        Row("… workflow tasks that timed out", f"{late} of {tasks}", "0"),
        Row("… memory beyond that of idle processes", f"{memory:.2f} GiB", "≤ 1.5 GiB"),
    ]


def names(run: str, rollouts: int) -> list[str]:
    return [
        rollout_id(group_id(run, number // GROUP_SIZE), number % GROUP_SIZE) for number in range(rollouts)
    ]


async def times(journal: Journal, rollouts: Sequence[str], turns: int) -> tuple[list[float], list[float]]:
    """Seconds from each answer to the next request, and when each rollout's first request was made."""
    gaps, starts = [], []
    for rollout in rollouts:
        entries = await journal.read_many([turn_key(rollout, turn) for turn in range(turns)], TurnEntry)
        sampled = [entry.sampled for entry in entries if entry is not None and entry.sampled is not None]
        starts.append(sampled[0].started)
        gaps += [
            later.started - earlier.started - earlier.seconds
            for earlier, later in itertools.pairwise(sampled)
        ]
    return gaps, starts


async def workflow_tasks(measured: Bench, rollouts: Sequence[str]) -> tuple[int, int]:
    """Workflow tasks of `rollouts` that were scheduled, and those that timed out."""
    free = asyncio.Semaphore(HISTORIES_AT_ONCE)

    async def kinds(rollout: str) -> list[int]:
        async with free:
            history = await measured.cluster.client.get_workflow_handle(rollout).fetch_history()
            return [event.event_type for event in history.events]

    found = [kind for each in await asyncio.gather(*map(kinds, rollouts)) for kind in each]
    scheduled = found.count(EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED)
    return scheduled, found.count(EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT)

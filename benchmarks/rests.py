"""The CPU that paused rollouts take while they rest."""

import asyncio
import time

from temporalio import workflow
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.pauses import PauseActivities
from benchmarks.cpu import cpu_seconds
from benchmarks.loop import Bench
from benchmarks.table import Row
from clotho.identifiers.ids import group_id, rollout_id
from clotho.identifiers.keys import pause_prefix
from clotho.rollouts.run import PAUSED_BY_HAND, PauseEntry
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.pauses import pause, resume_whole
from clotho.temporal.search_attributes import OUTCOME, PAUSED, RUN, identify
from workflows.pausing import rest

QUEUE, NAME = "rests", "resting"
STARTED_AT_ONCE = 32
SETTLING_SECONDS, WATCHED_SECONDS = 20.0, 60.0
"""Before, and while, CPU is counted: several looks for rests whose process has died."""
FALLING = 0.8
"""A share of the CPU before that tells of work that is being finished."""


@workflow.defn
class Rests:
    """A rollout that is paused before its first turn, and has nothing else to do."""

    @workflow.run
    async def run(self) -> None:
        await rest(TaskQueues().model.with_queue(QUEUE))


async def measure(measured: Bench, rollouts: int = 10_000, group_size: int = 8) -> list[Row]:
    """Measure the rests of groups that are paused one by one, then of a run that is paused as a whole."""
    client, journal = measured.cluster.client, measured.cluster.open_journal()
    pauses, free = PauseActivities(journal, client), asyncio.Semaphore(STARTED_AT_ONCE)
    groups = [group_id(NAME, number) for number in range(rollouts // group_size)]
    names = [rollout_id(group, sibling) for group in groups for sibling in range(group_size)]

    async def start(name: str) -> None:
        async with free:
            shown = identify(NAME, QUEUE)
            await client.start_workflow(Rests.run, id=name, task_queue=QUEUE, search_attributes=shown)

    async def reached(resting: int) -> float:
        query, clock = f"{RUN} = '{NAME}' AND ExecutionStatus = 'Running'", time.monotonic()
        query += f" AND {OUTCOME} = '{PAUSED}'" if resting else ""
        while (await client.count_workflows(query)).count != resting:  # noqa: ASYNC110  # visibility tells nobody
            await asyncio.sleep(0.5)
        return time.monotonic() - clock

    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[Rests],
        activities=[pauses.await_resume],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        keeping = asyncio.create_task(pauses.run())
        idle = await load()
        each = dict.fromkeys(groups, PAUSED_BY_HAND)
        await journal.append(pause_prefix(NAME), PauseEntry(paused=each, at=time.time()))
        await asyncio.gather(*map(start, names))
        await reached(rollouts)
        of_groups = await load()
        await pause(journal, NAME, PAUSED_BY_HAND)
        of_run = await load()
        await resume_whole(journal, NAME)
        resumed = await reached(0)
        keeping.cancel()
    return [
        Row(f"{rollouts:,} rollouts of a paused run, of a core", f"{of_run - idle:.1%}", "≤ 5 %"),
        Row(f"{rollouts:,} rollouts of {len(groups):,} paused groups", f"{of_groups - idle:.1%}", "≤ 5 %"),
        Row("the same processes without them", f"{idle:.1%}"),
        Row(f"until {rollouts:,} go on", f"{resumed:.0f} s"),
    ]


async def load() -> float:
    """The CPU that all processes take, of a core, once the server has finished what it had left to do."""
    before = await _load_for(SETTLING_SECONDS)
    while (now := await _load_for(SETTLING_SECONDS)) < FALLING * before:
        before = now
    return await _load_for(WATCHED_SECONDS)


async def _load_for(seconds: float) -> float:
    clock, began = time.monotonic(), cpu_seconds()
    await asyncio.sleep(seconds)
    return (cpu_seconds() - began) / (time.monotonic() - clock)

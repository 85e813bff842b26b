"""Rests of many workflows that are resumed at once, and of a run whose pauses can't be read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from temporalio import workflow
from temporalio.client import (
    Client,
    Interceptor,
    ListWorkflowsInput,
    OutboundInterceptor,
    WorkflowExecutionAsyncIterator,
    WorkflowHandle,
)
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities import pauses as activities_of_pauses
from activities.pauses import RESTING, Pace, PauseActivities
from clotho.identifiers.ids import group_id, rollout_id, run_of
from clotho.identifiers.keys import pause_prefix
from clotho.rollouts.run import PAUSED_BY_HAND
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.pauses import pause, resume_whole
from clotho.temporal.search_attributes import ENVIRONMENT, RUN, identify
from tests.cluster import Cluster
from tests.support import eventually
from workflows.pausing import rest

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Of the workflows that a worker which stops has in memory."""
FOREVER = 1e9


@workflow.defn
class Rests:
    """A rollout that is paused before its first turn, and has nothing else to do."""

    @workflow.run
    async def run(self, queue: str) -> None:
        await rest(TaskQueues().model.with_queue(queue))


Handles = Sequence[WorkflowHandle[Rests, None]]


@asynccontextmanager
async def resting(cluster: Cluster, queue: str, names: Sequence[str]) -> AsyncIterator[Handles]:
    """Workflows that rest, with no worker any more; their rests are completed from then on."""
    client = cluster.client
    pauses = PauseActivities(cluster.open_journal(), client)
    async with worker(cluster, queue, pauses):
        starts = (
            client.start_workflow(
                Rests.run,
                queue,
                id=name,
                task_queue=queue,
                search_attributes=identify(run_of(name), queue),
            )
            for name in names
        )
        handles = await asyncio.gather(*starts)

        async def all_rest() -> bool:
            found = await client.count_workflows(f"{ENVIRONMENT} = '{queue}' AND {RESTING}")
            return found.count == len(names)

        await eventually(all_rest, f"{len(names)} rests")
    keeping = asyncio.create_task(pauses.run())
    yield handles
    keeping.cancel()


def worker(cluster: Cluster, queue: str, pauses: PauseActivities) -> Worker:
    return Worker(
        cluster.client,
        task_queue=queue,
        workflows=[Rests],
        activities=[pauses.await_resume],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )


async def over(handles: Handles) -> int:
    """How many rests are."""
    described = await asyncio.gather(*(handle.describe() for handle in handles))
    return sum(not each.raw_description.pending_activities for each in described)


async def test_no_more_rests_end_than_workflows_go_on(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "LOST_SECONDS", FOREVER)
    journal, clock = cluster.open_journal(), asyncio.get_running_loop().time
    await pause(journal, "many", PAUSED_BY_HAND)
    names = [rollout_id(group_id("many", 0), number) for number in range(3 * Pace.FEWEST)]
    async with resting(cluster, "many-rests", names) as handles:
        await resume_whole(journal, "many")

        async def some_are_over() -> bool:
            return await over(handles) >= Pace.FEWEST

        await eventually(some_are_over, f"the end of {Pace.FEWEST} rests")
        since = clock()

        async def looked_again() -> bool:
            return clock() - since > 3 * Pace.SLOW_SECONDS

        await eventually(looked_again, "further looks")
        assert await over(handles) == Pace.FEWEST
        async with worker(cluster, "many-rests", PauseActivities(journal, cluster.client)):
            await asyncio.gather(*(handle.result() for handle in handles))


async def test_a_run_whose_pauses_are_damaged_holds_up_no_other(cluster: Cluster) -> None:
    journal = cluster.open_journal()
    for run in ("damaged", "sound"):
        await pause(journal, run, PAUSED_BY_HAND)
    await journal.write_bytes(f"{pause_prefix('damaged')}000001", b"no entry")
    names = ["damaged/g000000/r0", "sound/g000000/r0"]
    async with resting(cluster, "damaged-rests", names) as handles:
        await resume_whole(journal, "sound")
        async with worker(cluster, "damaged-rests", PauseActivities(journal, cluster.client)):
            await asyncio.gather(*(handle.result() for handle in handles))


class Listings(Interceptor):
    """The queries that a client lists workflows by."""

    def __init__(self) -> None:
        self.queries: list[str] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Noting(next, self.queries)


class _Noting(OutboundInterceptor):
    def __init__(self, next: OutboundInterceptor, queries: list[str]) -> None:
        super().__init__(next)
        self._queries = queries

    def list_workflows(self, input: ListWorkflowsInput) -> WorkflowExecutionAsyncIterator:
        self._queries.append(input.query or "")
        return super().list_workflows(input)


async def test_rests_are_listed_again_when_other_parts_of_their_run_are_paused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("ORPHANS_SECONDS", "MOST_ORPHANS_SECONDS", "LOOK_SECONDS"):
        monkeypatch.setattr(activities_of_pauses, constant, 0.05)
    journal, listings = cluster.open_journal(), Listings()
    groups = [group_id("parts", number) for number in range(3)]
    for group in groups[:2]:
        await pause(journal, group, PAUSED_BY_HAND)

    def listed() -> int:
        return sum(f"{RUN} = 'parts'" in query for query in listings.queries)

    async def is_listed(times: int) -> None:
        async def so_often() -> bool:
            return listed() >= times

        await eventually(so_often, f"{times} listings of the rests")
        already = len(listings.queries)

        async def further() -> bool:
            return len(listings.queries) >= already + 10

        await eventually(further, "further looks for rests")
        assert listed() == times

    names = [rollout_id(group, 0) for group in groups[:2]]
    async with resting(cluster, "parts-rests", names) as handles:
        noting = Client(
            cluster.client.service_client,
            namespace=cluster.client.namespace,
            data_converter=cluster.client.data_converter,
            interceptors=[listings],
        )
        looking = asyncio.create_task(PauseActivities(journal, noting).run())
        await is_listed(times=2)
        await pause(journal, groups[2], PAUSED_BY_HAND)
        await is_listed(times=4)
        looking.cancel()
        async with worker(cluster, "parts-rests", PauseActivities(journal, cluster.client)):
            await resume_whole(journal, "parts")
            await asyncio.gather(*(handle.result() for handle in handles))


def test_the_pace_follows_what_is_done() -> None:
    pace, now = Pace(), 100.0

    def end_all(at: float) -> int:
        begun = pace.free
        pace.ended |= {f"{at}-{number}": at for number in range(begun)}
        return begun

    widths = []
    for _ in range(6):
        widths.append(end_all(now))
        now += 0.5
        pace.adapt((), now)
    assert widths == [16, 32, 64, 128, 256, 256]
    end_all(now)
    late = dict(pace.ended)
    pace.adapt(late, now + 2)
    pace.adapt(late, now + 3)  # late for the reason that is known already
    pace.adapt((), now + 4)
    assert end_all(now + 4) == 128
    pace.drop_lost(now + 4 + Pace.LOST_SECONDS)
    assert pace.free == 128

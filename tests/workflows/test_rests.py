"""Rests of many workflows that are resumed at once, and of those whose process has died."""

import asyncio
import time
from datetime import timedelta

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.pauses import Pace, PauseActivities
from clotho.identifiers.ids import group_id, rollout_id
from clotho.rollouts.run import PAUSED_BY_HAND
from clotho.rollouts.task_queues import TaskQueues
from clotho.runs.pauses import pause, resume_whole
from clotho.temporal.search_attributes import OUTCOME, PAUSED, RUN, identify
from tests.cluster import Cluster
from tests.support import eventually
from workflows.pausing import rest

QUEUE, NAME = "many-rests", "many-rests"
ROLLOUTS = 12 * Pace.FEWEST
STICKY = timedelta(seconds=2)
"""As in `worker.py`."""
TIMED_OUT = EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT


@workflow.defn
class RestsThenWorks:
    """A rollout whose next step takes its worker a while."""

    @workflow.run
    async def run(self) -> None:
        await rest(TaskQueues().model.with_queue(QUEUE))
        time.sleep(0.01)  # work of the worker's one processor


async def test_resumed_workflows_go_on_before_their_tasks_time_out(cluster: Cluster) -> None:
    client, journal = cluster.client, cluster.open_journal()
    pauses = PauseActivities(journal, client)
    names = [rollout_id(group_id(NAME, 0), number) for number in range(ROLLOUTS)]
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[RestsThenWorks],
        activities=[pauses.await_resume],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_workflow_tasks=2,
        max_cached_workflows=ROLLOUTS,
        sticky_queue_schedule_to_start_timeout=STICKY,
    )
    async with worker:
        shown = identify(NAME, QUEUE)
        starts = (
            client.start_workflow(RestsThenWorks.run, id=name, task_queue=QUEUE, search_attributes=shown)
            for name in names
        )
        handles = await asyncio.gather(*starts)

        async def all_rest() -> bool:
            resting = f"{RUN} = '{NAME}' AND {OUTCOME} = '{PAUSED}'"
            return (await client.count_workflows(resting)).count == ROLLOUTS

        await eventually(all_rest, f"{ROLLOUTS} rests")
        await pause(journal, NAME, PAUSED_BY_HAND)
        keeping = asyncio.create_task(pauses.run())
        await resume_whole(journal, NAME)
        await asyncio.gather(*(handle.result() for handle in handles))
        keeping.cancel()
    histories = await asyncio.gather(*(handle.fetch_history() for handle in handles))
    assert TIMED_OUT not in {event.event_type for history in histories for event in history.events}

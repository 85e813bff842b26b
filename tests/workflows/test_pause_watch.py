"""The look-up of a run's pause, while the campaign that watches it ends or continues as new."""

import asyncio

from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from clotho.rollouts.task_queues import TaskQueues
from tests.cluster import Cluster
from tests.support import eventually
from workflows.pausing import PausedWithRun

QUEUE = "watches"
LOOKS_UP = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
CANCELS = EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED
ENDS = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


@workflow.defn
class Watches(PausedWithRun):
    """Watches until it is told to end."""

    over = False

    @workflow.run
    async def run(self) -> None:
        watch = asyncio.create_task(self.watch_pause("run", TaskQueues().model.with_queue(QUEUE)))
        await workflow.wait_condition(lambda: self.over)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    @workflow.signal
    def end(self) -> None:
        self.over = True

    async def show_pause(self, reason: str | None) -> None:
        pass


async def test_a_watch_that_is_cancelled_ends_though_its_look_up_completes(cluster: Cluster) -> None:
    answer = asyncio.Event()

    @activity.defn
    async def reason_for(run: str) -> None:
        await answer.wait()

    worker = Worker(
        cluster.client,
        task_queue=QUEUE,
        workflows=[Watches],
        activities=[reason_for],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with worker:
        handle = await cluster.client.start_workflow(Watches.run, id="watches", task_queue=QUEUE)

        async def has(event: "EventType.ValueType") -> bool:
            return event in {one.event_type for one in (await handle.fetch_history()).events}

        await eventually(lambda: has(LOOKS_UP), "the pause to be looked up")
        await handle.signal(Watches.end)
        await eventually(lambda: has(CANCELS), "the look-up to be cancelled")
        answer.set()
        await eventually(lambda: has(ENDS), "the workflow to end")

"""Pausing at a boundary: of a workflow by updates, of a whole run by the store."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.pauses import PauseActivities
    from clotho.rollouts.task_queues import ActivityQueue

from workflows.steps import RETRIES, without_deadline


class Pausable:
    """A workflow that can be paused and resumed by updates, any number of times."""

    paused = False
    past_pausing: str | None = None
    """The reason why it can no longer be paused, if it can't."""

    @workflow.update
    async def pause(self) -> None:
        """Pause at the next boundary."""
        self.paused = True

    @pause.validator
    def check_pause(self) -> None:
        if self.past_pausing is not None:
            raise ApplicationError(self.past_pausing, type="PastPausing", non_retryable=True)

    @workflow.update
    async def resume(self) -> None:
        self.paused = False

    async def own_resume(self) -> None:
        """Wait while this workflow is paused."""
        await workflow.wait_condition(lambda: not self.paused)


async def run_resume(run: str, activity_queue: ActivityQueue) -> None:
    """Wait while the run is paused, without a deadline."""
    await workflow.execute_activity_method(
        PauseActivities.await_resume,
        run,
        task_queue=activity_queue.queue,
        summary="wait while paused",
        schedule_to_close_timeout=without_deadline(activity_queue).schedule_to_close_timeout,
        heartbeat_timeout=activity_queue.heartbeat_timeout,
        retry_policy=RETRIES,
        # It holds nothing that a cancel would have to wait for.
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
    )

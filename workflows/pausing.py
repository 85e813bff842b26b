"""Pausing at a boundary: a workflow by itself, or a whole run by what the store says."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.pauses import PauseActivities
    from clotho.rollouts.task_queues import ActivityQueue

from workflows.steps import RETRIES, without_deadline


class Pausable:
    """A workflow that can be paused and resumed by acknowledged updates, any number of times over."""

    paused = False
    past_pausing: str | None = None
    """Why there is nothing left to pause, once that is so."""

    @workflow.update
    async def pause(self) -> None:
        """Stop at the next boundary."""
        self.paused = True

    @pause.validator
    def check_pause(self) -> None:
        if self.past_pausing is not None:
            raise ApplicationError(self.past_pausing, type="PastPausing", non_retryable=True)

    @workflow.update
    async def resume(self) -> None:
        self.paused = False

    async def own_resume(self) -> None:
        """Wait for as long as this workflow itself is paused."""
        await workflow.wait_condition(lambda: not self.paused)


async def run_resume(run: str, activity_queue: ActivityQueue) -> None:
    """Wait for as long as the run is paused, which may be for ever: it counts toward no time-out."""
    await workflow.execute_activity_method(
        PauseActivities.await_resume,
        run,
        task_queue=activity_queue.queue,
        summary="wait while paused",
        schedule_to_close_timeout=without_deadline(activity_queue).schedule_to_close_timeout,
        heartbeat_timeout=activity_queue.heartbeat,
        retry_policy=RETRIES,
        # It holds nothing that a cancel would have to wait for.
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
    )

"""Rest of workflows that are paused, and the campaign's look at the pause of its run (`clotho/runs/pauses.py`)."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.pauses import REST, PauseActivities
    from clotho.rollouts.task_queues import ActivityQueue
    from clotho.temporal.search_attributes import PAUSED

from workflows import attributes
from workflows.steps import RETRIES, raise_if_cancelled, run_activity, without_deadline


async def rest(activity_queue: ActivityQueue) -> None:
    """Wait until nothing that this workflow is part of is paused."""
    # before the rest: where its process dies, others find the workflow by this attribute
    attributes.show_outcome(PAUSED)
    try:
        await workflow.execute_activity_method(
            PauseActivities.await_resume,
            activity_id=REST,
            task_queue=activity_queue.queue,
            summary="wait while paused",
            schedule_to_close_timeout=without_deadline(activity_queue).schedule_to_close_timeout,
            retry_policy=RETRIES,
            # It holds nothing that a cancel would have to wait for.
            cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        )
    finally:
        attributes.show_no_outcome()
    raise_if_cancelled()


class PausedWithRun:
    """A workflow that shows the pause of its run, and looks it up in the store again when it is told to."""

    pause_may_have_changed = True

    async def show_pause(self, reason: str | None) -> None:
        """Show why the run is paused; None: it goes on."""
        raise NotImplementedError

    @workflow.signal
    def refresh_pause(self) -> None:
        """Look up in the store again whether the run is paused."""
        self.pause_may_have_changed = True

    async def watch_pause(self, run: str, activity_queue: ActivityQueue) -> None:
        while True:
            await workflow.wait_condition(lambda: self.pause_may_have_changed)
            await self.hold_while_paused(run, activity_queue)

    async def hold_while_paused(self, run: str, activity_queue: ActivityQueue) -> None:
        """Show the pause until the run isn't paused."""
        while True:
            # before the look-up: a signal that comes meanwhile asks for another one
            self.pause_may_have_changed = False
            reason = await run_activity(PauseActivities.reason_for, run, activity_queue, "look up pause")
            if reason is not None:
                await self.show_pause(reason)
                await rest(activity_queue)
            elif not self.pause_may_have_changed:
                break
        await self.show_pause(None)

"""Pausing at a boundary: of a workflow by updates, of a whole run by the store (`clotho/runs/pauses.py`)."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.pauses import PauseActivities
    from clotho.rollouts.task_queues import ActivityQueue

from workflows.steps import run_activity, run_activity_uncancelled, without_deadline


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
    await run_activity_uncancelled(
        PauseActivities.await_resume,
        run,
        without_deadline(activity_queue),
        "wait while paused",
        # It holds nothing that a cancel would have to wait for.
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
    )


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
            self.pause_may_have_changed = False
            because = await run_activity(PauseActivities.paused_because, run, activity_queue, "look up pause")
            if because is not None:
                await self.show_pause(because)
                await run_resume(run, activity_queue)
            elif not self.pause_may_have_changed:
                break
        await self.show_pause(None)

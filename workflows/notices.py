"""Notices of what has become of a run, each given by a workflow of its own: a run waits for no hook.

`Campaign` has `Notices.give` start `GiveNotice`, whose activities (`activities/notices.py`) call the functions that
plugins name as their hooks (`Plugin.hooks`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import FailureError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.notices import Hooks
    from clotho.errors import ClothoError
    from clotho.rollouts.campaign import CampaignProgress
    from clotho.rollouts.notice import HookCall, Notice, NoticeRequest, RunEvent
    from clotho.rollouts.task_queues import ActivityQueue
    from clotho.temporal.failures import classified_cause
    from clotho.temporal.search_attributes import identify

from workflows.steps import all_of, clean_up, run_activity


@workflow.defn
class GiveNotice:
    """Tell each hook of the plugins; fails where one of them can't be told in time."""

    @workflow.run
    async def run(self, request: NoticeRequest) -> None:
        notice, queue = request.notice, request.queue
        hooks = await run_activity(Hooks.list_hooks, notice.run, queue, "find hooks")
        await all_of(
            run_activity(Hooks.call_hook, HookCall(hook=hook, notice=notice), queue, f"tell {hook}")
            for hook in hooks
        )


class Notices:
    """The notices of one run of a campaign; each tells the campaign's `progress`."""

    def __init__(
        self, run: str, environment: str, queue: ActivityQueue, progress: Callable[[], CampaignProgress]
    ) -> None:
        self._run = run
        self._environment = environment
        self._queue = queue
        self._progress = progress
        self._given = 0

    async def give(self, event: RunEvent, reason: str = "") -> None:
        """Start the workflow that gives the notice; it outlives this one."""
        # Kept by a reset, after which the same notice has the same id.
        notice_id = f"{self._run}/~notice-{workflow.info().original_execution_run_id}-{self._given}"
        self._given += 1
        progress = self._progress()
        notice = Notice(
            id=notice_id,
            event=event,
            run=self._run,
            reason=reason,
            groups=progress.groups,
            scored=progress.scored + progress.skipped,
            failed=progress.failed,
        )
        # after a reset, the same notice was given before
        with suppress(WorkflowAlreadyStartedError):
            given = await workflow.start_child_workflow(
                GiveNotice.run,
                NoticeRequest(notice=notice, queue=self._queue),
                id=notice_id,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
                search_attributes=identify(self._run, self._environment),
            )
            # a notice that fails shows that in its own workflow; asyncio would log an exception that nobody takes
            given.add_done_callback(lambda done: done.cancelled() or done.exception())

    @asynccontextmanager
    async def give_at_end(self) -> AsyncIterator[None]:
        """Give notice of the end of the body, whatever it is; a campaign that continues as new hasn't ended."""
        try:
            yield
        except asyncio.CancelledError:
            await self._give_last(RunEvent.CANCELLED)
            raise
        except (FailureError, ClothoError) as error:
            await self._give_last(RunEvent.FAILED, str(classified_cause(error)))
            raise
        await self._give_last(RunEvent.SCORED)

    async def _give_last(self, event: RunEvent, reason: str = "") -> None:
        await clean_up(asyncio.ensure_future(self.give(event, reason)), "notice of the run's end")

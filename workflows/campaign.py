"""Many groups from a run's manifest, a bounded number at a time, as a durable workflow."""

import asyncio

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    WorkflowAlreadyStartedError,
)

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from activities.llm import Model
    from activities.pauses import PauseActivities
    from clotho.errors import IsolationUnavailable
    from clotho.escaping import for_markdown
    from clotho.failure_policy import GroupAction, policy_for
    from clotho.identifiers.ids import group_id
    from clotho.rollouts.campaign import (
        MOST_REQUEUED,
        CampaignGrowth,
        CampaignProgress,
        CampaignRequest,
        FailureStreak,
        PauseRequest,
    )
    from clotho.rollouts.failures import failure_of, failures_within
    from clotho.rollouts.group import AwaitAnyClosed, GroupSummary, SiblingFailure
    from clotho.rollouts.notice import RunEvent
    from clotho.rollouts.run import PAUSED_BY_HAND
    from clotho.temporal.search_attributes import identify

from workflows import attributes
from workflows.notices import Notices
from workflows.pausing import PausedWithRun
from workflows.pending_items import PendingItems
from workflows.rollout_group import RolloutGroup
from workflows.slots import Slots
from workflows.steps import clean_up, run_activity, without_deadline

UNISOLATED = IsolationUnavailable.__name__


@workflow.defn
class Campaign(PausedWithRun):
    """Start groups in the manifest's order, with at most `max_open_groups` running.

    Started again, it skips scored groups and retries failed ones. If one rollout after the other fails for the same
    reason, the run pauses itself; resumed, it retries them. Items may be added while it runs.

    A group outlives the campaign that started it, so that a campaign can continue as new while groups run: the next
    run adopts them. Only a cancel of the campaign cancels its groups.
    """

    @workflow.init
    def __init__(self, request: CampaignRequest) -> None:
        self.request = request
        self.task_queues = request.task_queues
        self.environment = request.task_queues.environment
        self.items = PendingItems(request)
        self.progress = request.progress or CampaignProgress()
        self.streak = request.streak or FailureStreak()
        self.failed_alike = dict(request.failed_alike)
        self.slots = Slots(request.max_open_groups, request.open)
        self.stopping = False
        self.stops = 0
        self.notices = Notices(request.run, request.environment, self.environment, lambda: self.progress)

    @workflow.run
    async def run(self, request: CampaignRequest) -> CampaignProgress:
        async with self.notices.give_at_end():
            if request.progress is None:
                await self.hold_while_paused(request.run, self.task_queues.model)
                await self.prepare()
            watch = self.slots.background(self.watch_pause(request.run, self.task_queues.model))
            try:
                while True:
                    await self.run_groups()
                    await self.recheck_failed()
                    if not self.items.left:
                        return self.conclude()
            except asyncio.CancelledError:
                await clean_up(asyncio.ensure_future(self.cancel_groups()), "cancelling groups")
                raise
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)

    async def prepare(self) -> None:
        """Check the model server, then write the items into the store."""
        await run_activity(Model.check_model, self.request.run, self.task_queues.model, "check model server")
        await self.items.enumerate()
        self.count(groups=self.items.groups)

    @workflow.signal
    def grow(self, growth: CampaignGrowth) -> None:
        """Roll out items that were added to the run too, and so many groups at a time."""
        self.items.wanted = max(self.items.wanted, growth.groups)
        self.slots.size = growth.max_open_groups

    async def run_groups(self) -> None:
        """Fill every slot that is free, until nothing is left to start and nothing runs.

        An error of the campaign itself is raised after the running groups have ended.
        """
        while True:
            await workflow.wait_condition(self.something_to_do)
            self.slots.reap()
            for items in self.slots.to_follow():
                self.slots.follow(self.follow(items))
            self.count(running=self.slots.open)
            if self.may_continue_as_new():
                self.continue_as_new()
            if self.needs_items():
                try:
                    await self.items.fetch()
                    self.count(groups=self.items.groups, skipped=self.items.skipped)
                except ActivityError as error:
                    self.slots.fail(error)
            elif self.may_start():
                item = self.items.waiting.pop(0)
                self.slots.start(item, self.run_group(item))
                self.count(running=self.slots.open)
            elif self.is_over():
                break
        self.slots.require_whole()

    def something_to_do(self) -> bool:
        return (
            self.slots.changed()
            or self.needs_items()
            or self.may_start()
            or self.may_continue_as_new()
            or self.is_over()
        )

    def needs_items(self) -> bool:
        return self.items.to_fetch and not self.slots.broken

    def may_start(self) -> bool:
        held = self.progress.paused is not None or self.stopping or self.slots.broken or is_long()
        return bool(self.items.waiting) and self.slots.free and not held

    def may_continue_as_new(self) -> bool:
        """Whether the history is long and nothing is being started; the next run adopts running groups."""
        # Temporal may drop the start of a child whose parent closes first; the next run takes all wanted items for
        # enumerated ones, and knows of no pause or error that is being dealt with here
        settled = self.slots.started and not self.stopping and not self.slots.broken and not self.items.added
        return settled and is_long()

    def is_over(self) -> bool:
        return self.slots.idle and (self.slots.broken or not self.items.left)

    async def run_group(self, item: int) -> None:
        # a group may outlast a whole pause of the run: if it failed meanwhile, it is tried again as well
        stops = self.stops
        try:
            self.note_scored(await self.roll_out(item))
        except WorkflowAlreadyStartedError:
            self.slots.adopt(item)
        except ChildWorkflowError as error:
            if workflow.cancellation_reason() is not None:
                raise
            await self.note_failure(item, error, stopped_meanwhile=self.stops > stops)

    async def follow(self, items: list[int]) -> None:
        """Wait for groups that another run of this campaign, or an operator, has started."""
        groups = {group_id(self.request.run, item): item for item in items}
        while groups:
            request = AwaitAnyClosed(run=self.request.run, groups=tuple(groups))
            endless, what = without_deadline(self.environment), f"wait for {len(groups)} groups"
            for closed in await run_activity(Groups.await_any_closed, request, endless, what):
                item = groups.pop(closed.group)
                self.slots.release(item)
                if closed.scored is not None:
                    self.note_scored(closed.scored)
                else:
                    self.items.waiting.append(item)

    def note_scored(self, scored: GroupSummary) -> None:
        self.progress = self.progress.with_group(scored)
        self.streak = FailureStreak()

    async def note_failure(self, item: int, error: ChildWorkflowError, *, stopped_meanwhile: bool) -> None:
        """Count the group as failed; requeue it if it failed while the run was being paused."""
        group = group_id(self.request.run, item)
        failures = failures_within(group, error)
        cancelled = any(policy_for(one.kind).cancels_group for one in failures)
        stopped = stopped_meanwhile or self.stopping or self.progress.paused is not None
        if stopped and not cancelled:
            self.items.waiting.append(item)
            return
        self.progress = self.progress.with_failure(failure_of(group, error))
        if not self.progress.scored and any(one.kind == UNISOLATED for one in failures):
            self.slots.fail(
                error
            )  # the first groups could have no sandbox: nothing is gained by trying others
            return
        failures = tuple(one for one in failures if policy_for(one.kind).group is not GroupAction.DROP)
        if cancelled or not failures:
            return
        # sorted: a set's order may be another in a replay
        for kind in sorted({one.kind for one in failures}):
            self.failed_alike[kind] = (*self.failed_alike.get(kind, ()), item)[-MOST_REQUEUED:]
        self.streak = self.streak.with_group(failures)
        if self.streak.rollouts >= self.request.stop_after_failures:
            await self.pause_for(self.streak)

    async def pause_for(self, streak: FailureStreak) -> None:
        """Pause the run, and requeue all groups that failed for this reason."""
        # until the pause is in the store, nothing else keeps groups from being started
        self.stopping = True
        self.stops += 1
        self.streak = FailureStreak()
        self.requeue(streak.kind)
        request = PauseRequest(run=self.request.run, reason=str(streak))
        try:
            await run_activity(PauseActivities.pause, request, self.task_queues.model, "pause the run")
            await self.show_pause(str(streak))
        finally:
            self.stopping = False
        self.pause_may_have_changed = True

    def requeue(self, kind: str) -> None:
        items = self.failed_alike.pop(kind)
        requeued = frozenset(items)
        # one group's rollouts may have failed in several ways, and the group is requeued once
        for other, failed in self.failed_alike.items():
            self.failed_alike[other] = tuple(item for item in failed if item not in requeued)
        groups = {group_id(self.request.run, item) for item in items}
        kept = tuple(failure for failure in self.progress.failures if failure.workflow not in groups)
        self.items.waiting += items
        self.count(failed=self.progress.failed - len(items), failures=kept)

    async def show_pause(self, reason: str | None) -> None:
        before = self.progress.paused
        self.count(paused=reason)
        if reason is not None and reason not in (before, PAUSED_BY_HAND):
            await self.notices.give(RunEvent.PAUSED, reason)

    async def roll_out(self, item: int) -> GroupSummary:
        """Run the group as a child; raises WorkflowAlreadyStartedError if it is running already."""
        request = self.request
        try:
            child = await workflow.start_child_workflow(
                RolloutGroup.run,
                request.group(item),
                id=group_id(request.run, item),
                task_queue=self.task_queues.workflows,
                task_timeout=self.task_queues.workflow_task_timeout,
                # A completed group is scored for good; one that failed or was cancelled may begin again.
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                # Temporal applies this policy when the parent continues as new, too: its groups must run on.
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                search_attributes=identify(request.run, request.environment),
            )
        finally:
            # also where Temporal refuses the start: continuing as new waits for it otherwise
            self.slots.has_started(item)
        return await child

    async def cancel_groups(self) -> None:
        """Cancel all running groups, and wait for those that this run of the campaign started."""
        adopted = [group_id(self.request.run, item) for item in self.slots.adopted]
        # adopted groups are no children of this run: its cancel doesn't reach them by itself
        cancels = [workflow.get_external_workflow_handle(group).cancel() for group in adopted]
        await asyncio.gather(self.slots.cancel(), *cancels, return_exceptions=True)

    def continue_as_new(self) -> None:
        state = {
            "groups": self.items.wanted,
            "max_open_groups": self.slots.size,
            "next_group": self.items.next_group,
            "waiting": tuple(self.items.waiting),
            "open": self.slots.items,
            "progress": self.progress,
            "streak": self.streak,
            "failed_alike": self.failed_alike,
        }
        workflow.continue_as_new(self.request.model_copy(update=state))

    def conclude(self) -> CampaignProgress:
        progress = self.progress
        if progress.failed:
            attributes.show_outcome(attributes.INFRASTRUCTURE_FAILURE)
            raise ApplicationError(
                f"{progress.failed} of {progress.groups} groups failed; start the run again to retry them. "
                + "".join(f"First: {first.workflow}: {first.reason}" for first in progress.failures[:1]),
                type="GroupsFailed",
                non_retryable=True,
            )
        attributes.show_outcome("scored")
        return progress

    async def recheck_failed(self) -> None:
        """Look up failed groups again, if there are any: an operator may have retried them."""
        if not self.progress.failed:
            return
        unscored = await self.items.unscored()
        self.items.skipped = self.items.groups - len(unscored) - self.progress.scored
        groups = {group_id(self.request.run, item) for item in unscored}
        failures = tuple(failure for failure in self.progress.failures if failure.workflow in groups)
        # or a group that was scored since would be requeued with those that failed for its reason
        left = frozenset(unscored)
        for kind, items in self.failed_alike.items():
            self.failed_alike[kind] = tuple(item for item in items if item in left)
        self.count(failed=len(unscored), failures=failures, skipped=self.items.skipped)

    def count(self, **counts: int | str | tuple[SiblingFailure, ...] | None) -> None:
        self.progress = self.progress.model_copy(update=counts)
        progress = self.progress
        paused = f"**paused:** {for_markdown(progress.paused)}\n\n" if progress.paused is not None else ""
        workflow.set_current_details(
            f"{paused}**{progress.scored + progress.skipped} of {progress.groups} groups scored**, "
            f"{progress.running} running, {progress.failed} failed\n\n`clotho status {self.request.run}`"
        )

    @workflow.query(name="progress")
    def current_progress(self) -> CampaignProgress:
        return self.progress


def is_long() -> bool:
    """Whether the history is to end soon: no group is started in it any more."""
    return workflow.info().is_continue_as_new_suggested()

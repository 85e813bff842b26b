"""Many groups from a run's manifest, a bounded number at a time, as a durable workflow."""

import asyncio

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from activities.llm import Model
    from activities.pauses import WaitingRoom
    from clotho.identifiers import group_id
    from clotho.records.campaign import (
        TAKEN_BACK,
        CampaignProgress,
        CampaignRequest,
        ItemsRequest,
        ModelCheck,
        PauseRequest,
        Streak,
        UnfinishedRequest,
    )
    from clotho.records.group import AwaitClosed, GroupSummary, SiblingFailure
    from clotho.search_attributes import identify

from workflows import attributes
from workflows.failures import CANCELLED, DELIBERATE, failure_of, failures_within
from workflows.pausing import run_resume
from workflows.rollout_group import RolloutGroup
from workflows.steps import all_of, endless, step

LOOK_AHEAD = 500
"""Groups whose end is looked up at once; what is scored already is skipped without a workflow."""


@workflow.defn
class Campaign:
    """Start groups in the manifest's order, with at most `max_open_groups` running.

    Starting it again by name skips what is scored and tries again what failed. A run in which one rollout
    after the other fails for the same reason pauses itself; resumed, it tries them again.
    """

    @workflow.init
    def __init__(self, request: CampaignRequest) -> None:
        self.request = request
        self.stations = request.stations
        self.next_group = request.next_group
        self.progress = request.progress or CampaignProgress()
        self.streak = request.streak or Streak()
        self.failed_alike = dict(request.failed_alike)
        self.stopping = False
        self.stops = 0
        self.again: list[int] = []
        self.pause_may_have_changed = False

    @workflow.run
    async def run(self, request: CampaignRequest) -> CampaignProgress:
        await self.hold_while_paused()
        watch = asyncio.ensure_future(self.watch_pause())
        try:
            await self.prepare()
            while self.next_group < self.progress.groups:
                await self.run_groups(await self.unfinished(self.next_group))
                self.continue_as_new_if_long()
            return await self.conclude()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def prepare(self) -> None:
        """Fail now what would fail every group; then have the items in the store."""
        run = self.request.run
        await step(Model.check_model, ModelCheck(run=run), self.stations.model, "check model server")
        items = ItemsRequest(run=run, groups=self.request.groups)
        station = self.stations.environment
        self.count(groups=await step(Groups.enumerate_items, items, station, "enumerate items"))

    async def unfinished(self, first: int) -> list[int]:
        """The next items from `first` whose groups aren't scored."""
        self.next_group = min(first + LOOK_AHEAD, self.progress.groups)
        request = UnfinishedRequest(run=self.request.run, first=first, groups=self.next_group - first)
        station = self.stations.environment
        items = await step(Groups.unfinished_groups, request, station, f"look up groups from {first}")
        self.count(skipped=self.progress.skipped + request.groups - len(items))
        return items

    async def run_groups(self, items: list[int]) -> None:
        """Returns when none is running any more, and none waits for another try."""
        free = asyncio.Semaphore(self.request.max_open_groups)

        async def run(item: int) -> None:
            async with free:
                await workflow.wait_condition(lambda: self.progress.paused is None and not self.stopping)
                await self.run_group(item)

        while items:
            await all_of(run(item) for item in items)
            items, self.again = self.again, []

    async def run_group(self, item: int) -> None:
        self.count(running=self.progress.running + 1)
        stops = self.stops
        try:
            scored = await self.roll_out(group_id(self.request.run, item), item)
            self.progress = self.progress.with_group(scored)
            self.streak = Streak()
        except ChildWorkflowError as error:
            if workflow.cancellation_reason() is not None:
                raise
            await self.note_failure(item, error, stopped_meanwhile=self.stops > stops)
        finally:
            self.count(running=self.progress.running - 1)

    async def note_failure(self, item: int, error: ChildWorkflowError, *, stopped_meanwhile: bool) -> None:
        """Count the group as failed, or try it again when the run goes on from what it stopped for."""
        failure = failure_of(group_id(self.request.run, item), error)
        failures = failures_within(failure, error)
        cancelled = any(one.kind == CANCELLED for one in failures)
        stopped = stopped_meanwhile or self.stopping or self.progress.paused is not None
        if stopped and not cancelled:
            self.again.append(item)
            return
        self.progress = self.progress.with_failure(failure)
        failures = tuple(one for one in failures if one.kind not in DELIBERATE)
        if cancelled or not failures:
            return
        for kind in sorted({one.kind for one in failures}):
            self.failed_alike[kind] = (*self.failed_alike.get(kind, ()), item)[-TAKEN_BACK:]
        self.streak = self.streak.with_group(failures)
        if self.streak.rollouts >= self.request.stop_after_failures:
            await self.stop_for(self.streak)

    async def stop_for(self, streak: Streak) -> None:
        """Pause the run, and take back all that failed for this reason: it will be tried again."""
        self.stopping = True
        self.stops += 1
        self.streak = Streak()
        self.take_back(streak.kind)
        request = PauseRequest(run=self.request.run, reason=str(streak))
        try:
            await step(WaitingRoom.pause, request, self.stations.model, "pause the run")
            self.count(paused=str(streak))
        finally:
            self.stopping = False
        self.pause_may_have_changed = True

    def take_back(self, kind: str) -> None:
        items = self.failed_alike.pop(kind)
        taken = frozenset(items)
        for other, failed in self.failed_alike.items():
            self.failed_alike[other] = tuple(item for item in failed if item not in taken)
        groups = {group_id(self.request.run, item) for item in items}
        kept = tuple(failure for failure in self.progress.failures if failure.workflow not in groups)
        self.again += items
        self.count(failed=self.progress.failed - len(items), failures=kept)

    async def watch_pause(self) -> None:
        while True:
            await workflow.wait_condition(lambda: self.pause_may_have_changed)
            await self.hold_while_paused()

    async def hold_while_paused(self) -> None:
        """Keep `progress.paused` as the store has it until the run isn't paused."""
        run, station = self.request.run, self.stations.model
        while True:
            self.pause_may_have_changed = False
            because = await step(WaitingRoom.paused_because, run, station, "look up pause")
            if because is not None:
                self.count(paused=because)
                await run_resume(run, station)
            elif not self.pause_may_have_changed:
                break
        self.count(paused=None)

    @workflow.signal
    def look_at_pause(self) -> None:
        """The store has a new word on whether the run is paused."""
        self.pause_may_have_changed = True

    async def roll_out(self, group: str, item: int) -> GroupSummary:
        """Run the group as a child; one that somebody else started is waited for instead."""
        request, station = self.request, self.stations.environment
        while True:
            try:
                return await workflow.execute_child_workflow(
                    RolloutGroup.run,
                    request.group(item),
                    id=group,
                    task_queue=self.stations.workflows,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                    cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                    search_attributes=identify(request.run, request.environment),
                )
            except WorkflowAlreadyStartedError:
                await step(
                    Groups.await_closed, AwaitClosed(workflow=group), endless(station), f"wait for {group}"
                )
                scored = await step(Groups.find_scored, group, station, f"look up {group}")
                if scored is not None:
                    return scored

    def continue_as_new_if_long(self) -> None:
        """Only between chunks, when no group is running: a parent's end would cancel its children."""
        if workflow.info().is_continue_as_new_suggested():
            state = {
                "next_group": self.next_group,
                "progress": self.progress,
                "streak": self.streak,
                "failed_alike": self.failed_alike,
            }
            workflow.continue_as_new(self.request.model_copy(update=state))

    async def conclude(self) -> CampaignProgress:
        if self.progress.failed:
            await self.look_again()
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

    async def look_again(self) -> None:
        """Failed groups that somebody started again by hand may have been scored meanwhile."""
        unfinished: list[int] = []
        self.count(skipped=0)
        for first in range(0, self.progress.groups, LOOK_AHEAD):
            unfinished += await self.unfinished(first)
        done = self.progress.groups - len(unfinished)
        groups = {group_id(self.request.run, item) for item in unfinished}
        failures = tuple(failure for failure in self.progress.failures if failure.workflow in groups)
        self.count(failed=len(unfinished), failures=failures, skipped=done - self.progress.scored)

    def count(self, **counts: int | str | tuple[SiblingFailure, ...] | None) -> None:
        self.progress = self.progress.model_copy(update=counts)
        progress = self.progress
        paused = f"**paused: {progress.paused}**\n\n" if progress.paused is not None else ""
        workflow.set_current_details(
            f"{paused}**{progress.scored + progress.skipped} of {progress.groups} groups scored**, "
            f"{progress.running} running, {progress.failed} failed"
        )

    @workflow.query(name="progress")
    def current_progress(self) -> CampaignProgress:
        return self.progress

"""Many groups from a run's manifest, a bounded number at a time, as a durable workflow."""

import asyncio

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from activities.llm import Model
    from clotho.identifiers import group_id
    from clotho.records import (
        AwaitClosed,
        CampaignProgress,
        CampaignRequest,
        GroupRequest,
        GroupSummary,
        ItemsRequest,
        ModelCheck,
        SiblingFailure,
        UnfinishedRequest,
    )

from workflows import attributes
from workflows.rollout_group import RolloutGroup, reason
from workflows.steps import all_of, endless, step

LOOK_AHEAD = 500
"""Groups whose end is looked up at once; what is scored already is skipped without a workflow."""


@workflow.defn
class Campaign:
    """Start groups in the manifest's order, with at most `max_open_groups` running.

    Starting it again by name skips what is scored and tries again what failed.
    """

    @workflow.init
    def __init__(self, request: CampaignRequest) -> None:
        self.request = request
        self.stations = request.stations
        self.next_group = request.next_group
        self.progress = request.progress or CampaignProgress()

    @workflow.run
    async def run(self, request: CampaignRequest) -> CampaignProgress:
        await self.prepare()
        while self.next_group < self.progress.groups:
            await self.run_groups(await self.unfinished())
            self.continue_as_new_if_long()
        return self.conclude()

    async def prepare(self) -> None:
        """Fail now what would fail every group; then have the items in the store."""
        run = self.request.run
        await step(Model.check_model, ModelCheck(run=run), self.stations.model, "check model server")
        items = ItemsRequest(run=run, groups=self.request.groups)
        station = self.stations.environment
        self.count(groups=await step(Groups.enumerate_items, items, station, "enumerate items"))

    async def unfinished(self) -> list[int]:
        """The next items whose groups aren't scored."""
        first = self.next_group
        self.next_group = min(first + LOOK_AHEAD, self.progress.groups)
        request = UnfinishedRequest(run=self.request.run, first=first, groups=self.next_group - first)
        station = self.stations.environment
        items = await step(Groups.unfinished_groups, request, station, f"look up groups from {first}")
        self.count(skipped=self.progress.skipped + request.groups - len(items))
        return items

    async def run_groups(self, items: list[int]) -> None:
        """Returns when none is running any more."""
        free = asyncio.Semaphore(self.request.max_open_groups)

        async def run(item: int) -> None:
            async with free:
                await self.run_group(item)

        await all_of(run(item) for item in items)

    async def run_group(self, item: int) -> None:
        group = group_id(self.request.run, item)
        self.count(running=self.progress.running + 1)
        try:
            scored = await self.roll_out(group, item)
            self.progress = self.progress.with_group(scored)
        except ChildWorkflowError as error:
            if workflow.cancellation_reason() is not None:
                raise
            self.progress = self.progress.with_failure(SiblingFailure(workflow=group, reason=reason(error)))
        finally:
            self.count(running=self.progress.running - 1)

    async def roll_out(self, group: str, item: int) -> GroupSummary:
        """Run the group as a child; one that somebody else started is waited for instead."""
        request, station = self.request, self.stations.environment
        while True:
            try:
                return await workflow.execute_child_workflow(
                    RolloutGroup.run,
                    GroupRequest(
                        run=request.run,
                        group=group,
                        environment=request.environment,
                        item=item,
                        size=request.group_size,
                        limits=request.limits,
                        stations=request.stations,
                    ),
                    id=group,
                    task_queue=self.stations.workflows,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                    cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                    search_attributes=attributes.identify(request.run, request.environment),
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
            state = {"next_group": self.next_group, "progress": self.progress}
            workflow.continue_as_new(self.request.model_copy(update=state))

    def conclude(self) -> CampaignProgress:
        progress = self.progress
        if progress.failed:
            first = progress.failures[0]
            attributes.show_outcome(attributes.INFRASTRUCTURE_FAILURE)
            raise ApplicationError(
                f"{progress.failed} of {progress.groups} groups failed; start the run again to retry them. "
                f"First: {first.workflow}: {first.reason}",
                type="GroupsFailed",
                non_retryable=True,
            )
        attributes.show_outcome("scored")
        return progress

    def count(self, **counts: int) -> None:
        self.progress = self.progress.model_copy(update=counts)
        done = self.progress.scored + self.progress.skipped
        workflow.set_current_details(
            f"**{done} of {self.progress.groups} groups scored**, {self.progress.running} running, "
            f"{self.progress.failed} failed"
        )

    @workflow.query(name="progress")
    def current_progress(self) -> CampaignProgress:
        return self.progress

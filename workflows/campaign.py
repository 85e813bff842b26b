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
        CampaignRequest,
        CampaignSummary,
        GroupRequest,
        ItemsRequest,
        ModelCheck,
        SiblingFailure,
        UnfinishedRequest,
    )

from workflows import attributes
from workflows.rollout_group import RolloutGroup, reason
from workflows.steps import BOOKKEEPING, UNLIMITED, all_of, step

LOOK_AHEAD = 500
"""Groups whose end is looked up at once; what is scored already is skipped without a workflow."""
KEPT_FAILURES = 20


@workflow.defn
class Campaign:
    """Start groups in the manifest's order, with at most `max_open_groups` running.

    Starting it again by name skips what is scored and tries again what failed.
    """

    @workflow.init
    def __init__(self, request: CampaignRequest) -> None:
        self.request = request
        self.groups = request.groups
        self.next_group = request.next_group
        self.failed = request.failed
        self.failures = list(request.failures)

    @workflow.run
    async def run(self, request: CampaignRequest) -> CampaignSummary:
        await self.prepare()
        while self.next_group < self.groups:
            await self.run_groups(await self.unfinished())
            self.next_group = min(self.next_group + LOOK_AHEAD, self.groups)
            self.continue_as_new_if_long()
        return self.summary()

    async def run_groups(self, items: list[int]) -> None:
        """All of `items`, so many at a time; returns when none is running."""
        open_groups = asyncio.Semaphore(self.request.max_open_groups)

        async def run(item: int) -> None:
            async with open_groups:
                await self.run_group(item)

        await all_of(run(item) for item in items)

    async def prepare(self) -> None:
        """Fail now what would fail every group; then have the items in the store."""
        request, queues = self.request, self.request.queues
        await step(
            Model.check_model, ModelCheck(run=request.run), queues.llm, BOOKKEEPING, "check model server"
        )
        items = ItemsRequest(run=request.run, groups=request.groups)
        self.groups = await step(
            Groups.enumerate_items, items, queues.environment, BOOKKEEPING, "enumerate items"
        )

    async def unfinished(self) -> list[int]:
        first = self.next_group
        request = UnfinishedRequest(
            run=self.request.run, first=first, groups=min(LOOK_AHEAD, self.groups - first)
        )
        queue = self.request.queues.environment
        return await step(
            Groups.unfinished_groups, request, queue, BOOKKEEPING, f"look up groups from {first}"
        )

    async def run_group(self, item: int) -> None:
        group = group_id(self.request.run, item)
        try:
            await self.roll_out(group, item)
        except ChildWorkflowError as error:
            if workflow.cancellation_reason() is not None:
                raise
            self.failed += 1
            if len(self.failures) < KEPT_FAILURES:
                self.failures.append(SiblingFailure(workflow=group, reason=reason(error)))

    async def roll_out(self, group: str, item: int) -> None:
        request = self.request
        while True:
            try:
                await workflow.execute_child_workflow(
                    RolloutGroup.run,
                    GroupRequest(
                        run=request.run,
                        group=group,
                        environment=request.environment,
                        item=item,
                        size=request.group_size,
                        limits=request.limits,
                        queues=request.queues,
                    ),
                    id=group,
                    task_queue=request.queues.workflows,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                    cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                    search_attributes=attributes.identify(request.run, request.environment),
                )
                return
            except WorkflowAlreadyStartedError:
                queue = request.queues.environment
                await step(
                    Groups.await_closed, AwaitClosed(workflow=group), queue, UNLIMITED, f"wait for {group}"
                )
                if await step(Groups.find_scored, group, queue, BOOKKEEPING, f"look up {group}") is not None:
                    return

    def continue_as_new_if_long(self) -> None:
        """Between chunks no group is running: a parent's end would cancel its children."""
        if workflow.info().is_continue_as_new_suggested():
            state = {"next_group": self.next_group, "failed": self.failed, "failures": tuple(self.failures)}
            workflow.continue_as_new(self.request.model_copy(update=state))

    def summary(self) -> CampaignSummary:
        if self.failures:
            first = self.failures[0]
            raise ApplicationError(
                f"{self.failed} of {self.groups} groups failed; start the run again to retry them. "
                f"First: {first.workflow}: {first.reason}",
                type="GroupsFailed",
                non_retryable=True,
            )
        return CampaignSummary(run=self.request.run, groups=self.groups)

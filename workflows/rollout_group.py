"""One dataset item, rolled out by several siblings with the same tools, as a durable workflow."""

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from activities.rollouts import Rollouts
    from clotho.errors import bounded
    from clotho.identifiers import rollout_id
    from clotho.records import (
        AwaitClosed,
        GroupConclusion,
        GroupRequest,
        GroupSummary,
        RolloutRequest,
        RolloutSummary,
        SiblingFailure,
    )

from workflows import attributes
from workflows.rollout import Rollout
from workflows.steps import all_of, endless, step

REASON_LIMIT = 300


@workflow.defn
class RolloutGroup:
    """Resolve the tools once, run the siblings, and write the scored group: complete, or not at all.

    A sibling's failure leaves the others alone; the group fails after the last of them has ended.
    """

    @workflow.init
    def __init__(self, request: GroupRequest) -> None:
        self.request = request
        self.scored: list[RolloutSummary] = []
        self.failures: list[SiblingFailure] = []

    @workflow.run
    async def run(self, request: GroupRequest) -> GroupSummary:
        if (scored := await self.find_scored()) is not None:
            return scored
        await self.prepare()
        await all_of(self.run_sibling(number) for number in range(request.size))
        if self.failures:
            attributes.show_outcome(attributes.INFRASTRUCTURE_FAILURE)
            raise ApplicationError(self.failure_text(), type="GroupIncomplete", non_retryable=True)
        return await self.conclude()

    async def find_scored(self) -> GroupSummary | None:
        group, station = self.request.group, self.request.stations.environment
        return await step(Groups.find_scored, group, station, "look up scored group")

    async def prepare(self) -> None:
        station = self.request.stations.environment
        prepared = await step(Groups.prepare_group, self.request, station, "resolve tools")
        dropped = f"; unavailable: {', '.join(prepared.unavailable)}" if prepared.unavailable else ""
        self.tools = f"tools: {', '.join(prepared.tools) or 'none'}{dropped}"
        self.show()

    async def run_sibling(self, number: int) -> None:
        rollout = rollout_id(self.request.group, number)
        try:
            self.scored.append(await self.roll_out(rollout))
        except ChildWorkflowError as error:
            if workflow.cancellation_reason() is not None:
                raise
            self.failures.append(SiblingFailure(workflow=rollout, reason=reason(error)))
        self.show()

    async def roll_out(self, rollout: str) -> RolloutSummary:
        """Run the sibling as a child; one that another parent started is waited for instead."""
        request = self.request
        while True:
            try:
                return await workflow.execute_child_workflow(
                    Rollout.run,
                    RolloutRequest(
                        run=request.run,
                        rollout=rollout,
                        environment=request.environment,
                        limits=request.limits,
                        stations=request.stations,
                    ),
                    id=rollout,
                    task_queue=request.stations.workflows,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                    parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                    cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                    search_attributes=attributes.identify(request.run, request.environment),
                    static_summary=f"sibling {rollout.rpartition('/')[2]}",
                )
            except WorkflowAlreadyStartedError:
                station = request.stations.environment
                closed = AwaitClosed(workflow=rollout)
                await step(Groups.await_closed, closed, endless(station), f"wait for {rollout}")
                end = await step(Rollouts.find_end, rollout, station, f"look up end of {rollout}")
                if end is not None:
                    return end

    async def conclude(self) -> GroupSummary:
        siblings = tuple(sorted(self.scored, key=lambda summary: summary.rollout))
        conclusion = GroupConclusion(run=self.request.run, group=self.request.group, siblings=siblings)
        station = self.request.stations.environment
        summary = await step(Groups.conclude_group, conclusion, station, "write scored group")
        mean = sum(sibling.score for sibling in summary.siblings) / len(summary.siblings)
        attributes.show_result("scored", mean)
        return summary

    def failure_text(self) -> str:
        first = self.failures[0]
        return (
            f"{len(self.failures)} of {self.request.size} rollouts failed; the {len(self.scored)} "
            f"scored ones are kept. First: {first.workflow}: {first.reason}"
        )

    def show(self) -> None:
        rewards = ", ".join(f"{summary.score:g}" for summary in self.scored)
        failed = "".join(f"\n\n{failure.workflow} failed: {failure.reason}" for failure in self.failures)
        workflow.set_current_details(
            f"**{len(self.scored)} of {self.request.size} scored**: {rewards or '-'}\n\n{self.tools}{failed}"
        )


def reason(error: BaseException) -> str:
    """The innermost cause of a failed child, as one bounded line."""
    while error.__cause__ is not None:
        error = error.__cause__
    return bounded(str(error), REASON_LIMIT)

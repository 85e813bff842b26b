"""One dataset item, rolled out by several siblings with the same tools, as a durable workflow."""

from collections.abc import Iterable

from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from clotho.escaping import for_markdown
    from clotho.failure_policy import SiblingAction, policy_for
    from clotho.identifiers.ids import sibling_number
    from clotho.rollouts.failures import GROUP_INCOMPLETE, failure_of
    from clotho.rollouts.group import (
        GroupAttempt,
        GroupFailure,
        GroupRequest,
        GroupStart,
        GroupSummary,
        PreparedGroup,
        RepairRequest,
        SiblingFailure,
    )
    from clotho.rollouts.rollout import RolloutSummary

from workflows import attributes
from workflows.children import find_end_when_closed, roll_out
from workflows.steps import all_of, run_activity, run_activity_here_first


@workflow.defn
class RolloutGroup:
    """Resolve the tools once, run the siblings, and write the scored group: complete, or not at all.

    A sibling's failure doesn't stop the others. A sibling that failed for reasons of infrastructure is repaired; if
    that doesn't help, the group fails after the last of its siblings has ended.
    """

    @workflow.init
    def __init__(self, request: GroupRequest) -> None:
        self.request = request
        self.environment = request.task_queues.environment
        self.max_active_seconds: float | None = None
        self.scored: list[RolloutSummary] = []
        self.repaired: list[SiblingFailure] = []
        self.failures: list[SiblingFailure] = []

    @workflow.run
    async def run(self, request: GroupRequest) -> GroupSummary:
        start = await self.begin()
        if start.scored is not None:
            return start.scored
        prepared = start.prepared
        assert prepared is not None
        self.note_prepared(prepared)
        await all_of(self.run_sibling(rollout, prepared.attempt) for rollout in prepared.siblings)
        await all_of(self.recheck_failed(failure) for failure in tuple(self.failures))
        if self.failures:
            raise await self.incomplete(prepared.attempt)
        return await self.conclude()

    async def begin(self) -> GroupStart:
        # an adapter's environment exists in the adapter's process alone, which serves the queue
        run = run_activity if self.request.task_queues.are_an_adapters else run_activity_here_first
        return await run(Groups.begin_group, self.request, self.environment, "look up group, resolve tools")

    def note_prepared(self, prepared: PreparedGroup) -> None:
        dropped = f"; unavailable: {names(prepared.unavailable)}" if prepared.unavailable else ""
        self.tools = f"tools: {names(prepared.tools) or 'none'}{dropped}"
        self.max_active_seconds = prepared.max_active_seconds
        self.show()

    async def run_sibling(self, rollout: str, attempt: int) -> None:
        """Run a sibling until it is scored, with as many repairs as the bounds allow."""
        successor: str | None = rollout
        while successor is not None:
            rollout = successor
            try:
                self.scored.append(await self.roll_out(rollout))
                successor = None
            except ChildWorkflowError as error:
                # The cancel reached the sibling through this group: nothing has failed, and nothing is
                # repaired.
                if workflow.cancellation_reason() is not None:
                    raise
                successor = await self.repair(failure_of(rollout, error), attempt)
            self.show()

    async def repair(self, failure: SiblingFailure, attempt: int) -> str | None:
        """The rollout that continues the failed one: mostly the same one, from its last journalled turn."""
        successor = None
        action = policy_for(failure.kind).sibling
        if action is not SiblingAction.FAIL:
            request = RepairRequest(
                run=self.request.run,
                group=self.request.group,
                attempt=attempt,
                number=len(self.repaired),
                failure=failure,
                from_scratch=action is SiblingAction.REPLACE,
                bounds=self.request.repairs,
            )
            self.repaired.append(failure)
            what = f"repair {failure.workflow}"
            successor = await run_activity(Groups.repair_sibling, request, self.environment, what)
        if successor is None:
            self.failures.append(failure)
        return successor

    async def recheck_failed(self, failure: SiblingFailure) -> None:
        """Look up a failed sibling again: an operator may have retried it."""
        end = await find_end_when_closed(failure.workflow, self.environment)
        if end is not None:
            self.failures.remove(failure)
            self.scored.append(end)

    async def roll_out(self, rollout: str) -> RolloutSummary:
        request = self.request.sibling(rollout, self.max_active_seconds)
        return await roll_out(request, f"sibling {rollout.rpartition('/')[2]}")

    async def conclude(self) -> GroupSummary:
        # By their numbers, not by their ends: whoever writes the entry writes the same.
        siblings = tuple(sorted(self.scored, key=lambda summary: sibling_number(summary.rollout)))
        scored = GroupSummary(group=self.request.group, siblings=siblings)
        summary = await run_activity_here_first(
            Groups.conclude_group, scored, self.environment, "write scored group"
        )
        mean = sum(sibling.score for sibling in summary.siblings) / len(summary.siblings)
        attributes.show_result("scored", mean)
        return summary

    async def incomplete(self, number: int) -> ApplicationError:
        """Keep this attempt in the store; returns the error to fail with."""
        attempt = GroupAttempt(
            group=self.request.group,
            number=number,
            siblings=tuple(self.scored),
            failures=tuple(self.failures),
        )
        await run_activity(Groups.keep_attempt, attempt, self.environment, "keep failed attempt")
        attributes.show_outcome(attributes.INFRASTRUCTURE_FAILURE)
        details = GroupFailure(failures=tuple(self.failures))
        return ApplicationError(self.failure_text(), details, type=GROUP_INCOMPLETE, non_retryable=True)

    def failure_text(self) -> str:
        first = self.failures[0]
        return (
            f"{len(self.failures)} of {self.request.size} rollouts failed; the {len(self.scored)} "
            f"scored ones are kept. First: {first.workflow}: {first.reason}"
        )

    def show(self) -> None:
        rewards = ", ".join(f"{summary.score:g}" for summary in self.scored)
        failed = [f"{one.workflow} failed: {for_markdown(one.reason)}" for one in self.failures]
        repaired = [f"{one.workflow} is repaired: {for_markdown(one.reason)}" for one in self.repaired]
        scored = f"**{len(self.scored)} of {self.request.size} scored**: {rewards or '-'}"
        shown = f"`clotho show {self.request.group}`"
        workflow.set_current_details("\n\n".join([scored, self.tools, *failed, *repaired, shown]))


def names(tools: Iterable[str]) -> str:
    return ", ".join(map(for_markdown, tools))

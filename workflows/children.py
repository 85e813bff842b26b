"""Rollouts as children of other workflows: of groups, and of rollouts that delegate tasks."""

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from activities.groups import Groups
    from activities.rollouts import Rollouts
    from clotho.rollouts.rollout import RolloutRequest, RolloutSummary
    from clotho.rollouts.task_queues import ActivityQueue
    from clotho.temporal.search_attributes import identify

from workflows.steps import run_activity, run_activity_here_first, without_deadline


async def roll_out(request: RolloutRequest, summary: str) -> RolloutSummary:
    """Run a rollout as a child, or wait for it if another parent started it; raises ChildWorkflowError."""
    while True:
        try:
            child = await workflow.start_child_workflow(
                # by name: the module of Rollout imports this one
                "Rollout",
                request,
                id=request.rollout,
                task_queue=request.task_queues.workflows,
                task_timeout=request.task_queues.workflow_task_timeout,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                # the default, TERMINATE, runs no clean-up in the children of a parent that is terminated
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                search_attributes=identify(request.run, request.environment),
                static_summary=summary,
                result_type=RolloutSummary,
            )
        # Temporal's child starts can't attach to a workflow that runs: it is waited for by an activity
        except WorkflowAlreadyStartedError:
            end = await find_end_when_closed(request.rollout, request.task_queues.environment)
            if end is not None:
                return end
        else:
            ended: RolloutSummary = await child
            return ended


async def find_end_when_closed(rollout: str, environment: ActivityQueue) -> RolloutSummary | None:
    """The end of a rollout that another workflow runs, once that has closed; None if it was not scored."""
    endless = without_deadline(environment)
    await run_activity(Groups.await_closed, rollout, endless, f"wait for {rollout}")
    return await run_activity_here_first(Rollouts.find_end, rollout, environment, f"look up end of {rollout}")

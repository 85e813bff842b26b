"""Failed children: what kind of failure it was, and what becomes of it."""

from temporalio import workflow
from temporalio.exceptions import (
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    TerminatedError,
)

with workflow.unsafe.imports_passed_through():
    from clotho.errors import (
        EnvironmentFailed,
        InvalidInput,
        IsolationUnavailable,
        JournalCorrupt,
        ModelRejected,
        SandboxLost,
        truncate_middle,
    )
    from clotho.rollouts.group import GroupFailure, SiblingFailure
    from clotho.temporal.failures import classified_cause

REASON_LIMIT = 300
CANCELLED = "Cancelled"
TERMINATED = "Terminated"
BEYOND_REPAIR = frozenset(
    {
        CANCELLED,
        *(
            kind.__name__
            for kind in (InvalidInput, IsolationUnavailable, ModelRejected, JournalCorrupt, EnvironmentFailed)
        ),
    }
)
"""What another attempt would meet again: somebody has to mend something first, or wanted it so."""
NEEDS_REPLACEMENT = frozenset({SandboxLost.__name__, "SandboxDiverged"})
"""Failures after which a rollout can't go on from its last turn."""
DELIBERATE = frozenset({CANCELLED, TERMINATED})


def failure_of(workflow_id: str, error: ChildWorkflowError) -> SiblingFailure:
    """What kind of failure ended a child workflow, and why."""
    cause = classified_cause(error)
    if isinstance(cause, CancelledError):
        return SiblingFailure(workflow=workflow_id, kind=CANCELLED, reason="it was cancelled")
    if isinstance(cause, TerminatedError):
        return SiblingFailure(workflow=workflow_id, kind=TERMINATED, reason="it was terminated")
    kind = cause.type if isinstance(cause, ApplicationError) else None
    text = truncate_middle(str(cause), REASON_LIMIT)
    return SiblingFailure(workflow=workflow_id, kind=kind or type(cause).__name__, reason=text)


def failures_within(group: SiblingFailure, error: ChildWorkflowError) -> tuple[SiblingFailure, ...]:
    """The failed siblings of a group that failed; the group itself if it didn't come to running them."""
    cause = classified_cause(error)
    details = cause.details if isinstance(cause, ApplicationError) else ()
    return GroupFailure.model_validate(details[0]).failures if details else (group,)

"""The failures of groups and rollouts, from what their workflows ended with."""

from temporalio.exceptions import ApplicationError

from clotho.escaping import truncate_middle
from clotho.rollouts.group import GroupFailure, SiblingFailure
from clotho.temporal.failures import classified_cause, kind_of_cause

REASON_CHARACTERS = 300
GROUP_INCOMPLETE = "GroupIncomplete"
"""Type of the error of a group whose siblings haven't all been scored; its details are a GroupFailure."""


def failure_of(workflow_id: str, error: BaseException) -> SiblingFailure:
    """The kind of failure that ended a workflow, and its reason."""
    cause = classified_cause(error)
    reason = truncate_middle(str(cause), REASON_CHARACTERS)
    return SiblingFailure(workflow=workflow_id, kind=kind_of_cause(cause), reason=reason)


def failures_within(group: str, error: BaseException) -> tuple[SiblingFailure, ...]:
    """The failed siblings of a group that failed; the group's own failure if it failed before they ran."""
    cause = classified_cause(error)
    details = cause.details if isinstance(cause, ApplicationError) and cause.type == GROUP_INCOMPLETE else ()
    return GroupFailure.model_validate(details[0]).failures if details else (failure_of(group, error),)

"""Failures in Temporal's terms: errors classified for it, and the cause of a failed workflow."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError

from clotho.errors import EnvironmentFailed, HostUnavailable, SandboxLost, Unavailable
from clotho.escaping import truncate_middle
from clotho.failure_policy import CANCELLED, TERMINATED, kind_of, policy_for
from clotho.host_failures import described, is_host_failure

LONGEST_DELAY = timedelta(seconds=30)
"""Between two attempts at what failed."""


@dataclass(frozen=True)
class Failure:
    kind: str
    """The error's kind: EnvironmentFailed, ModelRejected, …"""
    message: str
    """The error's text; for an environment's own exception, its traceback."""

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.message.splitlines()) if line.strip()), self.kind)


def classified_cause(error: BaseException) -> BaseException:
    """The error that an activity or workflow ended with; without one, the innermost cause: a time-out, a cancel."""
    while not isinstance(error, ApplicationError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def to_application_error(error: Exception, attempt: int) -> ApplicationError:
    """Classify `error`, raised in attempt number `attempt`, for Temporal."""
    if is_host_failure(error):
        error = HostUnavailable(described(error))
    if isinstance(error, EnvironmentFailed):
        # Temporal also counts attempts that ended with their worker: only those that raised are the author's.
        attempt = error.times or attempt
    kind = kind_of(error)
    # workflows have no other way to tell a loss by a command's doing from one by the host's
    details = (error.exhausted,) if isinstance(error, SandboxLost) and error.exhausted else ()
    asked = error.retry_after if isinstance(error, Unavailable) else None
    # Attempts have no bound: without one in the exponent, the power would be more than a timedelta holds.
    backoff = min(timedelta(seconds=2 ** min(attempt - 1, 10)), LONGEST_DELAY)
    return ApplicationError(
        # an exception may have no text, such as TimeoutError()
        truncate_middle(str(error) or repr(error)),
        *details,
        type=kind,
        non_retryable=not policy_for(kind).retries(attempt),
        next_retry_delay=backoff if asked is None else asked,
    )


def kind_of_cause(cause: BaseException) -> str:
    """The kind, for the failure policy, of a cause that `classified_cause` found."""
    if isinstance(cause, CancelledError):
        return CANCELLED
    if isinstance(cause, TerminatedError):
        return TERMINATED
    return (isinstance(cause, ApplicationError) and cause.type) or type(cause).__name__


async def failure_of(client: Client, execution: WorkflowExecution) -> Failure | None:
    """Why an execution failed; None if it didn't."""
    if execution.status is not WorkflowExecutionStatus.FAILED:
        return None
    try:
        # by run id, since the id may run again by now; of an execution that has ended it doesn't wait
        await client.get_workflow_handle(execution.id, run_id=execution.run_id).result()
    except WorkflowFailureError as error:
        cause = classified_cause(error)
        message = cause.message if isinstance(cause, ApplicationError) else str(cause)
        return Failure(kind_of_cause(cause), message)
    raise AssertionError(f"{execution.id} has not failed")

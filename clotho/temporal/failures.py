"""Why a workflow failed, as Temporal tells it."""

from dataclasses import dataclass

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError


@dataclass(frozen=True)
class Failure:
    kind: str
    """The class of the classified error: EnvironmentFailed, ModelRejected, …"""
    message: str
    """Of an environment's own exception: its traceback."""

    @property
    def last_line(self) -> str:
        return next((line for line in reversed(self.message.splitlines()) if line.strip()), self.kind)


def classified_cause(error: BaseException) -> BaseException:
    """The error that an activity or workflow ended with; without one, the innermost cause: a time-out, a cancel.

    Temporal wraps it in what failed with it, and keeps what it was raised from inside of it.
    """
    while not isinstance(error, ApplicationError) and error.__cause__ is not None:
        error = error.__cause__
    return error


async def failure_of(client: Client, workflow: str, execution: str | None) -> Failure:
    """Why a workflow that has failed did so."""
    try:
        await client.get_workflow_handle(workflow, run_id=execution).result()
    except WorkflowFailureError as error:
        cause = classified_cause(error)
        if isinstance(cause, ApplicationError):
            return Failure(cause.type or type(cause).__name__, cause.message)
        return Failure(type(cause).__name__, str(cause))
    raise AssertionError(f"{workflow} has not failed")

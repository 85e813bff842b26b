"""The guard of an activity attempt: heartbeats, classified errors, and the subject of log lines."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.claims import BegunElsewhere
from clotho.errors import ClothoError, LeaseElsewhere
from clotho.logs import subject
from clotho.monitoring.metrics import count_failed_attempt
from clotho.temporal.failures import to_application_error
from clotho.temporal.states import is_ending

log = logging.getLogger("clotho")

LOCAL_SECONDS = 2.0
"""Time for which a local attempt works before a regular activity goes on with what it has begun."""
CANCEL_LOOK_TIME = timedelta(seconds=2)
"""Time that Temporal has to say whether a workflow ends whose local attempt is cancelled."""
GOES_ON = "GoesOn"
"""Type of the error with which a local attempt tells the workflow to go on with a regular activity."""
ELSEWHERE = "Elsewhere"
"""Type of the error of a local attempt at what another process has to do."""


@asynccontextmanager
async def activity_guard(
    work_for: str,
    progress: Callable[[], int] = lambda: 0,
    on_cancel: Callable[[], None] | None = None,
    queue: str | None = None,
) -> AsyncIterator[None]:
    """Heartbeat with `progress()` until the body ends, and classify its errors for Temporal.

    `on_cancel` is called for a genuine cancel request only: heartbeats that went unacknowledged, a worker
    that shuts down, a pause, a reset and a lost workflow task also arrive as cancellations, and none of them may
    end paid work.

    A local attempt ends after LOCAL_SECONDS; `queue` is where a regular activity finds the work that it has begun.
    Work that another process has begun goes on there, whichever attempt finds that out.
    """
    subject.set(work_for)
    local = activity.info().is_local
    beats = asyncio.create_task(_beat(progress))
    try:
        async with asyncio.timeout(LOCAL_SECONDS if local else None) as budget:
            yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            if on_cancel is not None and (not local or await _workflow_ends()):
                on_cancel()
            raise
        # a local step that ended cancelled would count as a cancel of its workflow
        if local:
            raise _goes_on("this worker shuts down", queue) from None
        raise
    except ApplicationError:
        raise
    except BegunElsewhere as begun:
        raise _goes_on(str(begun), begun.queue, queue) from None
    except Exception as error:
        # not by the exception's type: libraries raise TimeoutError, too
        if budget.expired():
            raise _goes_on(f"not done within {LOCAL_SECONDS:g} s", queue) from None
        if isinstance(error, LeaseElsewhere):
            if local:
                raise ApplicationError(str(error), type=ELSEWHERE) from None
            # A local attempt that had no time to look at the lease sent it to its own process.
            raise _goes_on(str(error), error.queue) from None
        classified = to_application_error(error, activity.info().attempt)
        ours = isinstance(error, ClothoError)
        count_failed_attempt(classified.type or type(error).__name__, retried=not classified.non_retryable)
        log.warning("%s: %s", activity.info().activity_type, classified, exc_info=not ours)
        raise classified from (None if ours else error)  # what a library raised may quote a key
    finally:
        beats.cancel()


async def _workflow_ends() -> bool:
    """Whether the workflow is cancelled, or over.

    The SDK cancels local attempts by request, too, where their workflow's task is lost: the workflow goes on in
    another task, which may be this process's, and asks for the same work.
    """
    try:
        return await is_ending(activity.client(), activity.info().workflow_id or "", CANCEL_LOOK_TIME)
    except RPCError:
        return False  # Temporal doesn't answer, which loses tasks


def _goes_on(message: str, *queues: str | None) -> ApplicationError:
    """The error that tells where to go on: at the first of `queues`; the second is this process's own."""
    details = [queue for queue in queues if queue is not None]
    return ApplicationError(message, *details, type=GOES_ON, non_retryable=True)


async def _beat(progress: Callable[[], int]) -> None:
    """Heartbeat every third of the timeout: cancellations arrive by it, and a worker's death is noticed.

    Most activities end before the first heartbeat is due.
    """
    timeout = activity.info().heartbeat_timeout
    if timeout is None:
        return
    while True:
        await asyncio.sleep(timeout.total_seconds() / 3)
        activity.heartbeat(progress())

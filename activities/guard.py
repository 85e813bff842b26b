"""The guard of an activity attempt: heartbeats, classified errors, and the subject of log lines."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from temporalio import activity
from temporalio.exceptions import ApplicationError

from clotho.errors import ClothoError
from clotho.logs import subject
from clotho.temporal.failures import to_application_error

log = logging.getLogger("clotho")


@asynccontextmanager
async def activity_guard(
    work_for: str, progress: Callable[[], int] = lambda: 0, on_cancel: Callable[[], None] = lambda: None
) -> AsyncIterator[None]:
    """Heartbeat with `progress()` until the body ends, and classify its errors for Temporal.

    `on_cancel` is called for a genuine cancel request only: heartbeats that went unacknowledged, a worker
    that shuts down, a pause and a reset also arrive as cancellations, and none of them may end paid work.
    """
    subject.set(work_for)
    beats = asyncio.create_task(_beat(progress))
    try:
        yield
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            on_cancel()
        raise
    except ApplicationError:
        raise
    except Exception as error:
        classified = to_application_error(error, activity.info().attempt)
        ours = isinstance(error, ClothoError)
        log.warning("%s: %s", activity.info().activity_type, classified, exc_info=not ours)
        raise classified from (error.__cause__ if ours else error)
    finally:
        beats.cancel()


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

"""How workflows do anything: activities that retry until their time is up, and a clean-up that always ends."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, TimeoutType
from temporalio.exceptions import TimeoutError as TimeoutError_

with workflow.unsafe.imports_passed_through():
    from clotho.identifiers.ids import displayable
    from clotho.rollouts.task_queues import ActivityQueue

SUMMARY_LIMIT = 60

Argument = TypeVar("Argument")
Result = TypeVar("Result")


CLEAN_UP_TIME = timedelta(minutes=1)
RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=5)
)
"""Attempts are unbounded, since killed workers use them up; time is bounded.

The intervals are those after attempts that timed out: a partition uses up many, and work goes on soon after it.
Errors bring a delay of their own.
"""


async def run_activity(
    activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
    argument: Argument,
    activity_queue: ActivityQueue,
    summary: str,
    unserved: timedelta | None = None,
) -> Result:
    """Run an activity method; `summary` is what the UI shows for it.

    With `unserved`, nobody's taking it for so long raises an error that `was_unserved` tells from others.
    """
    result = await run_activity_uncancelled(activity, argument, activity_queue, summary, unserved)
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError  # a cancel that meets a completing activity is otherwise lost
    return result


async def run_activity_uncancelled(
    activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
    argument: Argument,
    activity_queue: ActivityQueue,
    summary: str,
    unserved: timedelta | None = None,
) -> Result:
    """As `step`, for clean-up, which goes on after a cancel."""
    return await workflow.execute_activity_method(
        activity,
        argument,
        task_queue=activity_queue.queue,
        summary=displayable(summary, SUMMARY_LIMIT),
        schedule_to_close_timeout=activity_queue.schedule_to_close_timeout,
        schedule_to_start_timeout=unserved,
        heartbeat_timeout=activity_queue.heartbeat,
        retry_policy=RETRIES,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    )


def timed_out_in_queue(error: ActivityError) -> bool:
    """Whether nobody took the activity from its queue in time. That alone is no proof of a death."""
    cause = error.cause
    return isinstance(cause, TimeoutError_) and cause.type is TimeoutType.SCHEDULE_TO_START


def without_deadline(activity_queue: ActivityQueue) -> ActivityQueue:
    """For a wait on somebody else's work, which may go on for as long as a run."""
    return activity_queue.model_copy(update={"schedule_to_close_timeout": timedelta(days=365)})


async def all_of(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for every one of `work`, also when cancelled; then raise the first error, if any."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if result is not None:
            raise result


async def clean_up(task: asyncio.Task[None], what: str) -> None:
    """Wait for `task` to its end however often the workflow is cancelled meanwhile; never raises.

    A clean-up that fails must not replace a paid result: what it leaves behind, lease expiry takes.
    """
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
        except (ActivityError, TimeoutError) as error:
            workflow.logger.warning("%s failed, left to lease expiry: %s", what, error)

"""Activities run from workflows, and clean-up that survives cancellation."""

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

WAIT = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
SUMMARY_CHARACTERS = 60
QUEUE_TIMEOUT = timedelta(seconds=15)
"""Time for which a step may wait in the queue of one process before that process's heartbeat is looked up."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


CLEAN_UP_TIME = timedelta(minutes=1)
RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2, maximum_interval=timedelta(seconds=5)
)
"""Attempts are unbounded, since killed workers use them up; time is bounded.

The intervals apply after attempts that timed out, so that work goes on soon after a partition. Errors bring a delay
of their own.
"""


async def run_activity(
    activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
    argument: Argument,
    activity_queue: ActivityQueue,
    summary: str,
    queue_timeout: timedelta | None = None,
) -> Result:
    """Run an activity method; `summary` is what the UI shows for it.

    With `queue_timeout`, raises an error that `timed_out_in_queue` recognizes if no worker takes it for so long.
    """
    result = await run_activity_uncancelled(activity, argument, activity_queue, summary, queue_timeout)
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError  # a cancel that meets a completing activity is otherwise lost
    return result


async def run_activity_uncancelled(
    activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
    argument: Argument,
    activity_queue: ActivityQueue,
    summary: str,
    queue_timeout: timedelta | None = None,
    cancellation_type: workflow.ActivityCancellationType = WAIT,
) -> Result:
    """Like `run_activity`, but goes on after a cancel: for clean-up."""
    return await workflow.execute_activity_method(
        activity,
        argument,
        task_queue=activity_queue.queue,
        summary=displayable(summary, SUMMARY_CHARACTERS),
        schedule_to_close_timeout=activity_queue.schedule_to_close_timeout,
        schedule_to_start_timeout=queue_timeout,
        heartbeat_timeout=activity_queue.heartbeat_timeout,
        retry_policy=RETRIES,
        cancellation_type=cancellation_type,
    )


def timed_out_in_queue(error: ActivityError) -> bool:
    """Whether no worker took the activity from its queue in time, which alone proves no death."""
    cause = error.cause
    return isinstance(cause, TimeoutError_) and cause.type is TimeoutType.SCHEDULE_TO_START


def without_deadline(activity_queue: ActivityQueue) -> ActivityQueue:
    """The queue with a time-out longer than any run, for waits on other workflows."""
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

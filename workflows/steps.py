"""Activities run from workflows, and clean-up that survives cancellation.

Most steps are tried as a local activity of the workflow's process first, which costs Temporal's server next to
nothing. A step that isn't done in time, failed in a way that is retried, or needs another process goes on as a
regular activity: with heartbeats, retries and a view in the UI. Both are the same method, and a regular attempt
joins the work that a local one has begun.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError, TimeoutType
from temporalio.exceptions import TimeoutError as TimeoutError_

with workflow.unsafe.imports_passed_through():
    from activities.guard import ELSEWHERE, GOES_ON
    from clotho.escaping import displayable, for_markdown
    from clotho.rollouts.task_queues import ActivityQueue

# With the SDK's default, TRY_CANCEL, clean-up would race the step that it comes after.
WAIT = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
# Temporal bounds a summary by its bytes, of which a character may take four
SUMMARY_CHARACTERS = 60
SHARE_OF_TASK = 0.8
"""Of a workflow task's time, for a local activity that doesn't yield: the rest is for its workflow."""
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
    raise_if_cancelled()
    return result


def raise_if_cancelled() -> None:
    """Raise a cancel of the workflow, or of this task, that came while an activity completed: else it is lost."""
    # An activity that returns just before it sees the cancel is completed, and nothing else tells of it:
    # without this, 20 of 20 workflows that were cancelled then ran to their end.
    task = asyncio.current_task()
    if workflow.cancellation_reason() is not None or (task is not None and task.cancelling()):
        raise asyncio.CancelledError


class NotDoneHere(Exception):
    """A local activity wasn't done in this process."""

    def __init__(self, queue: str | None, elsewhere: bool, own: str | None = None) -> None:
        super().__init__(queue)
        self.queue = queue
        """Queue of the process that has begun, if it matters."""
        self.own = own
        """Queue of this process, where another one has begun."""
        self.elsewhere = elsewhere
        """Whether this process can't do such work."""


async def run_here(
    activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
    argument: Argument,
    activity_queue: ActivityQueue,
    summary: str,
) -> Result:
    """Run an activity method in this process, once; raises NotDoneHere where a regular activity has to go on.

    A step that failed goes on after the delay that its error asks for; it fails for good if `activity_queue` allows
    less time than that.
    """
    try:
        return await workflow.execute_local_activity_method(
            activity,
            argument,
            summary=displayable(summary, SUMMARY_CHARACTERS),
            start_to_close_timeout=workflow.info().task_timeout * SHARE_OF_TASK,
            # Retries in here would hold the workflow's task: the regular activity has them.
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=WAIT,
        )
    except ApplicationError as error:
        if error.type == GOES_ON:
            own = str(error.details[1]) if len(error.details) > 1 else None
            raise NotDoneHere(queue_in(error), elsewhere=False, own=own) from None
        delay = error.next_retry_delay or timedelta()
        if error.non_retryable or delay > activity_queue.schedule_to_close_timeout:
            raise _as_activity_error(activity, error) from error
        # here, since the regular activity's first attempt begins at once
        if delay:
            why = for_markdown(displayable(str(error), SUMMARY_CHARACTERS))
            await workflow.sleep(delay, summary=f"{displayable(summary, SUMMARY_CHARACTERS)}: {why}")
        raise NotDoneHere(None, elsewhere=error.type == ELSEWHERE) from None
    # the SDK wraps a time-out where it happens, and doesn't where the workflow is replayed
    except (ActivityError, TimeoutError_) as error:
        if isinstance(error.cause, CancelledError):
            raise
        # it may still be at work, and a regular attempt joins that or finds its entry
        raise NotDoneHere(None, elsewhere=False) from None


def queue_in(error: ApplicationError) -> str | None:
    """The queue of the process that has begun a step, if `error` says to go on there."""
    return str(error.details[0]) if error.type == GOES_ON and error.details else None


def _as_activity_error(activity: Callable[..., Any], error: ApplicationError) -> ActivityError:
    """The error that a regular activity ends with: a local one raises its cause."""
    return ActivityError(
        str(error),
        scheduled_event_id=0,
        started_event_id=0,
        identity="",
        activity_type=activity.__name__,
        activity_id="",
        retry_state=None,
    )


async def run_activity_here_first(
    activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
    argument: Argument,
    activity_queue: ActivityQueue,
    summary: str,
) -> Result:
    """Like `run_activity`, but in this process first."""
    try:
        result = await run_here(activity, argument, activity_queue, summary)
    except NotDoneHere:
        return await run_activity(activity, argument, activity_queue, summary)
    raise_if_cancelled()
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


def queue_of_beginner(error: ActivityError) -> str | None:
    """The queue of a process that lives and has begun the step; None for any other error."""
    return queue_in(error.cause) if isinstance(error.cause, ApplicationError) else None


def timed_out_in_queue(error: ActivityError) -> bool:
    """Whether no worker took the activity from its queue in time, which alone proves no death."""
    cause = error.cause
    return isinstance(cause, TimeoutError_) and cause.type is TimeoutType.SCHEDULE_TO_START


def without_deadline(activity_queue: ActivityQueue) -> ActivityQueue:
    """The queue with a time-out longer than any run, for waits on other workflows."""
    return activity_queue.model_copy(update={"schedule_to_close_timeout": timedelta(days=365)})


def _equally(error: BaseException) -> bool:
    return True


async def all_of(
    work: Iterable[Coroutine[Any, Any, None]], foremost: Callable[[BaseException], bool] = _equally
) -> None:
    """Wait for every one of `work`, also when cancelled; then raise the first error, if any.

    An error that `foremost` is true of is raised before the others.
    """
    # No TaskGroup: it would cancel the others at the first error, and theirs is paid work.
    results = await asyncio.gather(*work, return_exceptions=True)
    if errors := [error for error in results if error is not None]:
        raise next(filter(foremost, errors), errors[0])


async def side_by_side(
    work: Sequence[Coroutine[Any, Any, None]], foremost: Callable[[BaseException], bool] = _equally
) -> None:
    """Like `all_of`; awaits a single coroutine directly."""
    await (work[0] if len(work) == 1 else all_of(work, foremost))


async def clean_up(task: asyncio.Task[None], what: str) -> None:
    """Wait for `task` to its end however often the workflow is cancelled meanwhile; never raises.

    A clean-up that fails must not replace a paid result: what it leaves behind, lease expiry takes.
    """
    while not task.done():
        try:
            # In a loop, since each cancel ends one wait: of clean-ups awaited plainly, none of 15 survived a
            # cancel.
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
        except (ActivityError, TimeoutError) as error:
            workflow.logger.warning("%s failed, left to lease expiry: %s", what, error)

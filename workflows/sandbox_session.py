"""A rollout's sandbox: one lease after the other when sandboxes are lost, also when their host dies mid-command.

A host that died: the call's activity misses its heartbeats, the next attempt waits 15 s in the host's queue without
being taken, and the host's heartbeat in the store is stale (`SandboxSession.host_is_present`). The next lease is
then acquired on another host. Its sandbox is restored from the last checkpoint and by replaying the calls since
(`activities/restore.py`), and the interrupted call is made again in it, as another job under another key. A host
that comes back destroys the sandbox that was given up (`clotho/sandbox/reaper.py`).

A worker that died alone loses nothing: the next attempt attaches to the running command. A host behind ssh counts
as lost after a lease's time out of reach (`clotho/plugins/ssh/host.py`). A call that ends three sandboxes is the
policy's doing (`policy_killed`) if their own evidence tells that commands did it. Other losses are the host's: the
call is made in one more sandbox. Where a backend can't tell them apart (`Lease.proven`) they count, and the end is
marked. A rollout that loses eleven, or three while they are made, fails, or is `policy_killed` if the last one was
ended by the policy's commands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.sandbox import Sandboxes
    from clotho.errors import SandboxDisrupted, SandboxDiverged, SandboxLost
    from clotho.failure_policy import SandboxAction, policy_for
    from clotho.rollouts.delegation import LeftSandbox
    from clotho.rollouts.lease import Fidelity, HostCheck, Lease, LeaseRequest, ReleaseRequest
    from clotho.rollouts.outcome import UNPROVED
    from clotho.rollouts.rollout import RolloutRequest
    from clotho.rollouts.task_queues import ActivityQueue

from workflows.steps import (
    CLEAN_UP_TIME,
    QUEUE_TIMEOUT,
    NotDoneHere,
    queue_of_beginner,
    raise_if_cancelled,
    run_activity_uncancelled,
    run_here,
    timed_out_in_queue,
)

LOSSES_AT_ONE_STEP = 3
"""A command that ended so many sandboxes would end every one."""
MOST_LOSSES = 10
DISRUPTED = "disrupted"

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class SandboxRepeatedlyLost(ApplicationError):
    """A step lost its sandbox each time; as far as that can be told, its commands ended it."""

    def __init__(self, message: str, cause: str | None) -> None:
        super().__init__(message, type=SandboxLost.__name__, non_retryable=True)
        self.limit = cause or UNPROVED
        """What the commands did to the last sandbox: the resource that it ran out of, or DISRUPTED."""
        self.exhausted = None if cause == DISRUPTED else cause
        """The resource that the last sandbox ran out of, if known."""


class SandboxSession:
    """The sandbox of one rollout: created when first used, restored when lost, released at the end."""

    def __init__(self, request: RolloutRequest) -> None:
        self.request = request
        self.shared = request.shared
        self.rollout = request.shared.owner if request.shared else request.rollout
        """The rollout whose leases they are."""
        self.activity_queue = request.task_queues.sandbox
        self.lease = request.state.lease if request.state else None
        self.losses = request.state.losses if request.state else ()
        self.lost = False
        self.acquiring: asyncio.Future[Lease] | None = None
        self.elsewhere: str | None = None
        """The queue of a host that this workflow's process doesn't serve."""

    async def use(self, work: Callable[[Lease], Awaitable[Result]], turns: int) -> Result:
        """Do `work` in the sandbox as it is after `turns` turns; if it is lost, repeat it in a restored one.

        Raises SandboxRepeatedlyLost if that doesn't help.
        """
        losses = unmade = 0
        while True:
            working = False
            try:
                lease = await self.get(turns)
                working = True
                return await work(lease)
            except ActivityError as error:
                if timed_out_in_queue(error):
                    # Only that nobody took it is known: a busy host does so too, and a sandbox that lives is
                    # not given up.
                    self.lost = not await self.host_is_present(lease.queue)
                    raise_if_cancelled()
                elif sandbox_action(error) is SandboxAction.KEEP:
                    raise
                else:
                    self.lost = True
                cause = cause_in_commands(error)
                told = cause is not None or self.lease is None or not self.lease.proven
                losses += working and told and is_loss(error)
                unmade += not working and is_loss(error)
            if losses >= LOSSES_AT_ONE_STEP:
                raise SandboxRepeatedlyLost(f"{losses} sandboxes were lost at the same step", cause)
            if unmade >= LOSSES_AT_ONE_STEP:
                raise lost_too_often(f"{unmade} sandboxes were lost while they were made", self.lease, cause)
            earlier = 0 if self.lease is None else self.lease.number - self.lease.reclaimed
            if self.lost and earlier >= MOST_LOSSES:
                raise lost_too_often(f"{earlier + 1} sandboxes were lost", self.lease, cause)

    async def get(self, turns: int) -> Lease:
        """The current lease, or the next one if it was lost."""
        if self.lease is None or self.lost:
            await self.acquire(turns)
        assert self.lease is not None
        return self.lease

    def begin_acquiring(self, turns: int, early: bool = False) -> asyncio.Future[Lease]:
        """Start to create or restore the sandbox; `get` waits for it, and raises its failure.

        `early`: beside other work of the workflow.
        """
        number = 0 if self.lease is None else self.lease.number + 1
        turns = self.shared.turns if self.shared is not None else turns
        request = LeaseRequest(rollout=self.rollout, number=number, turns=turns)
        summary = f"restore sandbox ({number})" if number else "create sandbox"
        # A cancel doesn't stop it half-way: clean-up must learn of the sandbox to release it.
        if early or number or self.request.task_queues.are_an_adapters:
            # Not here: an adapter's sandboxes are on its host; beside other work, a turn that is asked for would
            # reach the server only once the local activities have ended; and a rollout that was closed elsewhere
            # learns of it before it takes a lease from the one that goes on.
            step = run_activity_uncancelled(Sandboxes.acquire, request, self.activity_queue, summary)
        else:
            step = self.run_on_some_host(Sandboxes.acquire, request, summary)
        self.acquiring = asyncio.ensure_future(step)
        return self.acquiring

    async def finish_acquiring(self) -> None:
        """Wait for the sandbox that is being created, if any; if that fails, a later step creates it anew."""
        if self.acquiring is not None:
            with suppress(ActivityError):
                await self.acquire(turns=0)

    async def acquire(self, turns: int) -> None:
        acquiring = self.acquiring or self.begin_acquiring(turns)
        try:
            # shielded: after a cancel, `release` has to learn which sandbox was made
            self.hold(await asyncio.shield(acquiring))
        except ActivityError:
            self.acquiring = None
            raise

    def hold(self, lease: Lease) -> None:
        self.lease, self.lost, self.acquiring = lease, False, None
        if lease.fidelity is not None:
            self.losses = (*self.losses, lease.fidelity)
            self.require_kept(lease.fidelity)

    def note_replay(self, fidelity: Fidelity) -> None:
        """Record that a late call of the lost sandbox was replayed in this one."""
        order = list(Fidelity)
        # there are none where the earlier sandboxes were given back while they were idle
        *earlier, last = self.losses or (Fidelity.EXACT,)
        self.losses = (*earlier, max(last, fidelity, key=order.index))
        self.require_kept(fidelity)

    def go_on_from(self, left: LeftSandbox) -> None:
        """Go on in the sandbox that a child which shared it has left."""
        if left.lease is not None and (self.lease is None or left.lease.number >= self.lease.number):
            self.lease, self.losses, self.lost = left.lease, left.losses, False

    def require_kept(self, fidelity: Fidelity) -> None:
        if fidelity is Fidelity.DIVERGED and not self.request.limits.keep_diverged:
            raise ApplicationError(
                "the sandbox is not what the lost one was",
                type=SandboxDiverged.__name__,
                non_retryable=True,
            )

    async def run(
        self,
        activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
        argument: Argument,
        lease: Lease,
        summary: str,
    ) -> Result:
        """Run a step in the sandbox of `lease`: here if this process serves its host; else where it has begun."""
        queue = None
        if self.elsewhere != lease.queue:
            try:
                result = await run_here(activity, argument, self.activity_queue, summary)
            except NotDoneHere as begun:
                self.elsewhere = lease.queue if begun.elsewhere else None
                queue = begun.queue
            else:
                raise_if_cancelled()
                return result
        return await self.run_where_begun(
            activity, argument, self.activity_queue_of(lease), summary, queue, QUEUE_TIMEOUT
        )

    async def run_on_some_host(
        self,
        activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
        argument: Argument,
        summary: str,
    ) -> Result:
        """Run a step that has no sandbox yet: here; else where it has begun, while that lives; else on any host.

        A cancel doesn't stop it.
        """
        try:
            return await run_here(activity, argument, self.activity_queue, summary)
        except NotDoneHere as begun:
            queue = begun.queue
        return await self.run_where_begun(
            activity, argument, self.activity_queue, summary, queue, queue_timeout=None, stoppable=False
        )

    async def run_where_begun(
        self,
        activity: Callable[[Any, Argument], Coroutine[Any, Any, Result]],
        argument: Argument,
        anywhere: ActivityQueue,
        summary: str,
        begun_at: str | None,
        queue_timeout: timedelta | None,
        stoppable: bool = True,
    ) -> Result:
        """Run a step at the queue of the process that has begun it, while that lives; else at queue `anywhere`.

        It may wait in `anywhere` for `queue_timeout`. A cancel stops it if it is `stoppable`.
        """
        while True:
            queue = anywhere if begun_at is None else self.activity_queue.with_queue(begun_at)
            waits = queue_timeout if begun_at is None else QUEUE_TIMEOUT
            try:
                result = await run_activity_uncancelled(activity, argument, queue, summary, waits)
            except ActivityError as error:
                if (beginner := queue_of_beginner(error)) is not None:
                    begun_at = beginner
                elif begun_at is None or not timed_out_in_queue(error):
                    raise
                elif not await self.host_is_present(begun_at):
                    begun_at = None
                if stoppable:
                    raise_if_cancelled()
            else:
                if stoppable:
                    raise_if_cancelled()
                return result

    async def host_is_present(self, queue: str) -> bool:
        """Whether the host of a queue is alive, which may only be busy; a cancel doesn't stop the look-up."""
        # any host can look, since heartbeats are in the store: the one that is sought may be dead
        check = HostCheck(rollout=self.request.rollout, queue=queue)
        return await run_activity_uncancelled(
            Sandboxes.host_is_present, check, self.activity_queue, "look for the sandbox's host"
        )

    async def release(self) -> None:
        lease = self.lease
        if self.acquiring is not None:
            # acquiring may last for hours, where no worker serves sandboxes; what it makes is left to lease expiry
            lease = await asyncio.wait_for(asyncio.shield(self.acquiring), CLEAN_UP_TIME.total_seconds())
        if lease is not None:
            request = ReleaseRequest(rollout=self.rollout, number=lease.number)
            activity_queue = self.activity_queue_of(lease).model_copy(
                update={"schedule_to_close_timeout": CLEAN_UP_TIME}
            )
            if self.elsewhere != lease.queue:
                with suppress(NotDoneHere):
                    return await run_here(Sandboxes.release, request, activity_queue, "release sandbox")
            await run_activity_uncancelled(Sandboxes.release, request, activity_queue, "release sandbox")

    def activity_queue_of(self, lease: Lease | None) -> ActivityQueue:
        """The queue of the lease's host; of any sandbox host without a lease."""
        return self.activity_queue.with_queue(lease.queue) if lease else self.activity_queue


def sandbox_action(error: ActivityError) -> SandboxAction:
    kind = error.cause.type if isinstance(error.cause, ApplicationError) else None
    return policy_for(kind).sandbox if kind else SandboxAction.KEEP


def is_loss(error: ActivityError) -> bool:
    return sandbox_action(error) is SandboxAction.RESTORE


def is_mended(error: BaseException) -> bool:
    """Whether `SandboxSession.use` goes on after the error, in another sandbox or on its host."""
    if not isinstance(error, ActivityError):
        return False
    return timed_out_in_queue(error) or sandbox_action(error) is not SandboxAction.KEEP


def lost_too_often(message: str, lease: Lease | None, cause: str | None) -> ApplicationError:
    """An infrastructure failure, unless commands ended the last sandbox; without a lease, no command has run."""
    if lease is not None and cause is not None:
        return SandboxRepeatedlyLost(message, cause)
    return ApplicationError(message, type=SandboxLost.__name__, non_retryable=True)


def cause_in_commands(error: ActivityError) -> str | None:
    """What commands did to end the sandbox: the resource that they used up, or DISRUPTED; None if nothing tells."""
    if not is_loss(error) or not isinstance(error.cause, ApplicationError):
        return None
    if error.cause.details:
        return str(error.cause.details[0])
    return DISRUPTED if error.cause.type == SandboxDisrupted.__name__ else None

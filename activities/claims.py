"""Claims of processes on pieces of work that only one process may do at a time.

A verification or an author's tool goes on in the process that began it while that process lives, and takes tasks of
this namespace: its task queue is in the claim. A process that takes over writes the next claim first. The number of
a verification's claim is the fence under which it works in the sandbox, so that whatever the former process still
asks for there has no effect.

A tool's call has no fence: it shares the agent's instance with other calls, MCP servers and children, which are
under none. The process looks at its claim again before it makes a command (`HeldClaim`).
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from clotho.environment.handles import infrastructure_wait
from clotho.errors import ClothoError, TakenOver
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal
from clotho.journal.journal import Entry
from clotho.processes.liveness import LIVENESS_SECONDS, PERIOD_SECONDS, Presence, boot_seconds

STANDS_SECONDS = LIVENESS_SECONDS - 2 * PERIOD_SECONDS
"""Seconds for which a claim that was looked at stands: a process whose heartbeats come in time isn't taken for gone
earlier than a period after that."""


STEAD_LOOK_SECONDS = 2.0
"""Between two looks for the entry of a process in whose stead work is done."""

log = logging.getLogger("clotho")


class WorkClaim(FrozenModel):
    """A process began, or took over, a piece of work."""

    process: str
    queue: str
    """The task queue that this process alone serves."""


class BegunElsewhere(ClothoError):
    """Another process that lives has begun the work: it goes on at `queue`."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the process at {queue} has begun this work")
        self.queue = queue


async def in_anothers_stead(
    journal: Journal,
    key: str,
    kind: type[Entry],
    work: Coroutine[Any, Any, Entry],
    on_found: Callable[[], None],
) -> Entry:
    """Do `work` until a process that was taken for gone writes its entry: it lived, cut off or frozen."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=STEAD_LOOK_SECONDS))[0]:
            if (entry := await journal.read(key, kind)) is not None:
                log.warning("%s: the process that was taken for gone has done it", key)
                on_found()
                return entry
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class WorkClaims:
    """The claims of this process; `queue` is its own."""

    def __init__(self, journal: Journal, presence: Presence, queue: str) -> None:
        self._journal = journal
        self._presence = presence
        self.queue = queue
        self._mine = WorkClaim(process=uuid.uuid4().hex, queue=queue)

    async def take(self, prefix: str) -> int:
        """Claim the work under `prefix`; returns the claim's number.

        Raises BegunElsewhere while another process lives that claimed it last.
        """
        # the usual case, in which nobody has claimed the work, costs one request
        if await self._journal.write(f"{prefix}{0:06}", self._mine) == self._mine:
            return 0
        while True:
            number, last = await self._last(prefix)
            if last == self._mine:
                return number
            # A queue is served by one process at a time: one that had it before this process is gone.
            if last.queue != self.queue and await self._presence.serves(last.queue):
                raise BegunElsewhere(last.queue)
            if (taken := await self._journal.append_after(prefix, number, self._mine)) is not None:
                return taken

    async def require(self, prefix: str, number: int) -> None:
        """Raises TakenOver where another process has taken over since this one claimed as `number`."""
        if (await self._last(prefix))[0] != number:
            raise TakenOver("another process has taken over this work")

    async def _last(self, prefix: str) -> tuple[int, WorkClaim]:
        last = await self._journal.latest_numbered(prefix, WorkClaim)
        assert last is not None, f"no claim under {prefix}"
        return last


class HeldClaim:
    """This process's claim on the work under `prefix`, once it is taken."""

    def __init__(self, claims: WorkClaims, prefix: str) -> None:
        self._claims = claims
        self._prefix = prefix
        self._number: int | None = None
        self._stood = 0.0

    async def take(self) -> None:
        """Raises BegunElsewhere, as `WorkClaims.take`."""
        # before the claim is looked up: this process may be frozen meanwhile
        now = boot_seconds()
        self._number = await self._claims.take(self._prefix)
        self._stood = now

    async def require(self) -> None:
        """Raise TakenOver where this process was frozen or cut off, and another one has taken the work over."""
        if self._number is None or (now := boot_seconds()) - self._stood < STANDS_SECONDS:
            return
        # the store's time isn't that of the author's code, which waits for it
        with infrastructure_wait():
            await self._claims.require(self._prefix, self._number)
        self._stood = now

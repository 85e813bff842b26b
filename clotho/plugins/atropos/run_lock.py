"""The lock of a run: one adapter serves it at a time, and renews its heartbeat in the store.

Another adapter takes the lock once the holder is proved dead, or has missed several heartbeats. A holder that lost
the lock, since it slept or was cut off, finds out before it delivers anything more.
"""

import asyncio
import logging
import os
import platform
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from clotho.errors import ClothoError, InvalidInput, StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import run_lock_prefix
from clotho.journal import Journal
from clotho.processes.liveness import LIVENESS_SECONDS, PERIOD_SECONDS, Liveness, boot_seconds, last_heartbeat

ENDED = frozenset("ZX")
"""States of processes that are dead and not yet reaped."""
KEPT = 8
LOOK_SECONDS = 1.0
log = logging.getLogger("clotho.plugins.atropos")


class ProcessIdentity(FrozenModel):
    """Identifies a process that holds a lock, even after its pid has gone to another one."""

    host: str
    pid: int
    numbering: str
    """Boot and process namespace of `pid`; empty where the system doesn't say."""
    began: int
    """Clock ticks after that boot."""
    since: float
    """Unix seconds at which it took hold."""

    def lives(self) -> bool | None:
        """Whether the process lives; None if that can't be told from here."""
        if not self.numbering or self.numbering != _numbering():
            return None
        state, began = _look(self.pid) or ("X", 0)
        return began == self.began and state not in ENDED

    @classmethod
    def of(cls, pid: int, since: float) -> "ProcessIdentity":
        """A process of this machine."""
        seen = _look(pid)
        numbering, began = (_numbering(), seen[1]) if seen is not None else ("", 0)
        return cls(host=platform.node(), pid=pid, numbering=numbering, began=began, since=since)


def _look(pid: int) -> tuple[str, int] | None:
    """State and beginning of process `pid` as /proc shows them; None where it doesn't."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the name before the last parenthesis may hold anything; fields[0] is then stat's third, fields[19] starttime
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _numbering() -> str:
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


class RunLockEntry(FrozenModel):
    """The holder of a run, None if it was released: the last entry counts."""

    holder: ProcessIdentity | None


class RunLock:
    """A run's lock. `period`: seconds between heartbeats; `ttl`: seconds without one after which it is free."""

    def __init__(self, journal: Journal, run: str, *, period: float, ttl: float) -> None:
        self._journal = journal
        self._run = run
        self._period = period
        self._ttl = ttl
        self._liveness = Liveness(journal, _name(run))
        self._number = 0
        self._shown = 0.0
        self.lost: InvalidInput | None = None

    async def begin(self) -> None:
        """Take the lock. Raises InvalidInput if a live process holds it, naming that and since when."""
        watch = _Watch(self._journal, self._run, self._ttl)
        while True:
            last, entry = await self._last() or (None, RunLockEntry(holder=None))
            if entry.holder is not None and not await watch.is_over(entry.holder):
                continue
            mine = RunLockEntry(holder=ProcessIdentity.of(os.getpid(), time.time()))
            number = await self._journal.append_after(run_lock_prefix(self._run), last, mine, KEPT)
            if number is not None:
                self._number = number
                return await self.show()

    async def confirm(self) -> None:
        """Raise InvalidInput if the lock was taken over; reads the store only if a heartbeat is overdue."""
        # a period early: once ttl has passed, others may take over at any time
        if boot_seconds() - self._shown > self._ttl - self._period:
            await self.show()

    async def show(self) -> None:
        """Write a heartbeat. Raises InvalidInput if the lock was taken over."""
        # before the heartbeat is written: the store's clock may read any moment from here on
        begun = boot_seconds()
        last, entry = await self._last() or (None, RunLockEntry(holder=None))
        if last != self._number:
            successor = described(entry.holder) if entry.holder is not None else "an adapter that has ended"
            self.lost = InvalidInput(f"run {self._run} was taken over by {successor}: this adapter ends")
            raise self.lost
        await self._liveness.beat()
        self._shown = begun

    async def keep(self, body: "asyncio.Task[object]") -> None:
        """Write heartbeats until the lock is taken over, which cancels `body`."""
        while True:
            await asyncio.sleep(self._period)
            try:
                await self.show()
            # no end: `confirm` reads the store before the next delivery, and an outage may keep others out as well
            except StoreUnavailable as error:
                log.warning("run %s: no heartbeat written: %s", self._run, error)
            except InvalidInput:
                body.cancel()
            except ClothoError as error:  # the lock can't be read, and may be another's
                self.lost = InvalidInput(f"run {self._run}: its lock can't be read: {error}")
                body.cancel()
                return

    async def end(self) -> None:
        """Release the lock, unless another process has it by now."""
        nobody = RunLockEntry(holder=None)
        await self._journal.append_after(run_lock_prefix(self._run), self._number, nobody, KEPT)

    async def _last(self) -> tuple[int, RunLockEntry] | None:
        return await self._journal.latest_numbered(run_lock_prefix(self._run), RunLockEntry)


class _Watch:
    """Observes a lock's holder until it is known whether it is alive."""

    def __init__(self, journal: Journal, run: str, ttl: float) -> None:
        self._journal = journal
        self._run = run
        self._ttl = ttl
        self._begun = time.monotonic()
        self._shown: float | None = None

    async def is_over(self, holder: ProcessIdentity) -> bool:
        """Whether `holder` is gone; False: look again. Raises InvalidInput if it is alive.

        If its process can't be seen from here, a new heartbeat shows that it lives.
        """
        lives = holder.lives()
        now, shown = await last_heartbeat(self._journal, _name(self._run))
        # the heartbeat may be an earlier holder's: this one may have begun just now, and not have shown itself
        quiet = min(now - shown, time.time() - holder.since)
        if lives or (self._shown is not None and shown > self._shown):
            raise InvalidInput(
                f"run {self._run} is served by {described(holder)}: "
                "stop that adapter first, or choose another --env.run"
            )
        waited = time.monotonic() - self._begun
        # clocks of hosts may differ, so a wait of `ttl` here without a new heartbeat counts as well
        if lives is False or max(quiet, waited) >= self._ttl:
            log.info("run %s is taken over from %s, which is gone", self._run, described(holder))
            return True
        if self._shown is None:
            log.warning(
                "run %s was served by %s: waiting for its next heartbeat", self._run, described(holder)
            )
        self._shown = shown
        await asyncio.sleep(LOOK_SECONDS)
        return False


@asynccontextmanager
async def held(
    journal: Journal, run: str, *, period: float = PERIOD_SECONDS, ttl: float = LIVENESS_SECONDS
) -> AsyncIterator[RunLock]:
    """Hold the run's lock. Raises InvalidInput if another process has it, or takes it meanwhile."""
    run_lock = RunLock(journal, run, period=period, ttl=ttl)
    await run_lock.begin()
    body = asyncio.current_task()
    assert body is not None
    renewal = asyncio.create_task(run_lock.keep(body), name=f"{run}: heartbeats")
    try:
        yield run_lock
    except asyncio.CancelledError:
        if run_lock.lost is None:
            raise
        body.uncancel()
        raise run_lock.lost from None
    finally:
        renewal.cancel()
        # a lock that isn't released is free after `ttl`
        with suppress(StoreUnavailable):
            await run_lock.end()


def described(holder: ProcessIdentity) -> str:
    since = datetime.fromtimestamp(holder.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {holder.pid} on {holder.host} since {since}"


def _name(run: str) -> str:
    return f"adapter/{run}"

"""One adapter serves a run at a time: its holder says so in the store, and keeps giving signs of life there.

Another takes the run once the holder is proved dead, or has given no sign for as long as several are due. A
holder that this happened to, since it slept or was cut off, finds out before it delivers anything more.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from clotho.atropos.process_identity import ProcessIdentity
from clotho.errors import InvalidInput, StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.identifiers.run_keys import run_lock_prefix
from clotho.journal import Journal
from clotho.processes.liveness import LIVENESS_SECONDS, PERIOD_SECONDS, Liveness, heartbeat_age

KEPT = 8
LOOK_SECONDS = 1.0
SAME = 0.5
"""Seconds by which the time of one sign, as it is computed, may differ. Two signs are at least a second apart."""

log = logging.getLogger("clotho.atropos")


class TenureEntry(FrozenModel):
    """Who holds a run from here on, None for nobody: the last entry counts."""

    holder: ProcessIdentity | None


class RunLock:
    """A run in this process's hands. `period` and `lapse`: seconds between two signs, and without one."""

    def __init__(self, journal: Journal, run: str, *, period: float, ttl: float) -> None:
        self._journal = journal
        self._run = run
        self._period = period
        self._ttl = ttl
        self._presence = Liveness(journal, _name(run))
        self._number = 0
        self._shown = 0.0
        self.lost: InvalidInput | None = None

    async def begin(self) -> None:
        """Take the run. Raises InvalidInput where somebody alive holds it, saying who and since when."""
        watch = _Watch(self._journal, self._run, self._ttl)
        while True:
            last, entry = await self._last() or (None, TenureEntry(holder=None))
            if entry.holder is not None and not await watch.is_over(entry.holder):
                continue
            mine = TenureEntry(holder=ProcessIdentity.here(time.time()))
            number = await self._journal.append_after(run_lock_prefix(self._run), last, mine, KEPT)
            if number is not None:
                self._number = number
                return await self.show()

    async def confirm(self) -> None:
        """Raises InvalidInput where the run was taken over; asks the store only if a sign is overdue."""
        if time.monotonic() - self._shown > self._ttl - self._period:
            await self.show()

    async def show(self) -> None:
        """Give a sign of life. Raises InvalidInput where the run was taken over."""
        begun = time.monotonic()
        last, entry = await self._last() or (None, TenureEntry(holder=None))
        if last != self._number:
            successor = described(entry.holder) if entry.holder is not None else "an adapter that has ended"
            self.lost = InvalidInput(f"run {self._run} was taken over by {successor}: this adapter ends")
            raise self.lost
        await self._presence.beat()
        self._shown = begun

    async def keep(self, body: "asyncio.Task[object]") -> None:
        """Give signs until the run is taken over, which cancels `body`."""
        while True:
            await asyncio.sleep(self._period)
            try:
                await self.show()
            except StoreUnavailable as error:
                log.warning("run %s: no sign of life given: %s", self._run, error)
            except InvalidInput:
                body.cancel()
                return

    async def end(self) -> None:
        """Let the run go, unless it is somebody else's by now."""
        nobody = TenureEntry(holder=None)
        await self._journal.append_after(run_lock_prefix(self._run), self._number, nobody, KEPT)

    async def _last(self) -> tuple[int, TenureEntry] | None:
        return await self._journal.latest_numbered(run_lock_prefix(self._run), TenureEntry)


class _Watch:
    """Looks whether a run's holder is alive, for as long as it takes to know."""

    def __init__(self, journal: Journal, run: str, ttl: float) -> None:
        self._journal = journal
        self._run = run
        self._ttl = ttl
        self._begun = time.monotonic()
        self._shown: float | None = None

    async def is_over(self, holder: ProcessIdentity) -> bool:
        """Whether `holder` is gone; False asks to look again. Raises InvalidInput where it is alive.

        Where its process can't be seen from here, a new sign shows that it lives. Clocks may differ by a part of
        the lapse.
        """
        lives = holder.lives()
        quiet = min(await heartbeat_age(self._journal, _name(self._run)), time.time() - holder.since)
        shown = time.time() - quiet
        if lives or (self._shown is not None and shown > self._shown + SAME):
            raise InvalidInput(
                f"run {self._run} is served by {described(holder)}: "
                "stop that adapter first, or choose another --env.run"
            )
        waited = time.monotonic() - self._begun
        if lives is False or max(quiet, waited) >= self._ttl:
            log.info("run %s is taken over from %s, which is gone", self._run, described(holder))
            return True
        if self._shown is None:
            log.warning("run %s was served by %s: waiting for a sign of it", self._run, described(holder))
        self._shown = shown
        await asyncio.sleep(LOOK_SECONDS)
        return False


@asynccontextmanager
async def held(
    journal: Journal, run: str, *, period: float = PERIOD_SECONDS, ttl: float = LIVENESS_SECONDS
) -> AsyncIterator[RunLock]:
    """The run for this process alone. Raises InvalidInput where another has it, or takes it meanwhile."""
    run_lock = RunLock(journal, run, period=period, ttl=ttl)
    await run_lock.begin()
    body = asyncio.current_task()
    assert body is not None
    keeper = asyncio.create_task(run_lock.keep(body), name=f"{run}: signs of life")
    try:
        yield run_lock
    except asyncio.CancelledError:
        if run_lock.lost is None:
            raise
        body.uncancel()
        raise run_lock.lost from None
    finally:
        keeper.cancel()
        with suppress(StoreUnavailable):
            await run_lock.end()


def described(holder: ProcessIdentity) -> str:
    since = datetime.fromtimestamp(holder.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"process {holder.pid} on {holder.host} since {since}"


def _name(run: str) -> str:
    return f"adapter/{run}"

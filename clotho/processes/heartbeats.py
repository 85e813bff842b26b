"""The heartbeats of a worker process under all its names: often while it has work, seldom while it has none."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from clotho.errors import StoreUnavailable
from clotho.processes.liveness import IDLE_PERIOD_SECONDS, PERIOD_SECONDS, Liveness, boot_seconds

QUIET_SECONDS = 60.0
"""Time without work after which a process is idle."""
YOUNG_SECONDS = 1.5 * PERIOD_SECONDS
"""Age of a heartbeat up to which work may begin without another: in time they come more often."""

log = logging.getLogger("clotho")


class Heartbeats:
    """Writes heartbeats of all `names` of a worker process, seldom ones while it has nothing under way.

    A process that was silent for LIVENESS_SECONDS is taken for gone. An idle one loses nothing by that, since it
    says that it is there before it begins anything (`working`).
    """

    def __init__(self, names: Sequence[Liveness], holds: Callable[[], bool]) -> None:
        """`holds`: whether this host holds sandboxes, which would be restored elsewhere without it."""
        self._names = names
        self._holds = holds
        self._under_way = 0
        self._worked = boot_seconds()
        self._beaten = self._said_busy = -math.inf
        self._beating = asyncio.Lock()

    async def claim(self) -> None:
        """Wait while another machine may have this one's name; see `Liveness.require_name`."""
        await asyncio.gather(*(name.require_name() for name in self._names))

    async def run(self) -> None:
        """Write heartbeats until cancelled."""
        while True:
            now = boot_seconds()
            idle = not self._under_way and not self._holds() and now - self._worked > QUIET_SECONDS
            if not idle or now - self._beaten >= IDLE_PERIOD_SECONDS:
                await self._beat(idle)
            await asyncio.sleep(PERIOD_SECONDS)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Begin work after a heartbeat that is young; while the store is away, without one."""
        # counted first: `run` must write no idle heartbeat after the one that this work waits for
        self._under_way += 1
        try:
            async with self._beating:  # of what begins side by side, the first writes it
                if boot_seconds() - self._said_busy > YOUNG_SECONDS:
                    await self._beat(idle=False)
            yield
        finally:
            self._under_way -= 1
            self._worked = boot_seconds()

    async def leave(self) -> None:
        """Delete this process's heartbeats, so that nobody waits for its silence; none if it leaves sandboxes."""
        if self._holds():
            return
        await asyncio.gather(*(name.leave() for name in self._names))

    async def _beat(self, idle: bool) -> None:
        begun = boot_seconds()
        try:
            await asyncio.gather(*(name.beat(idle=idle) for name in self._names))
        except StoreUnavailable as error:
            log.warning("heartbeats of this process not written: %s", error)
            return
        self._beaten = begun
        self._said_busy = -math.inf if idle else begun

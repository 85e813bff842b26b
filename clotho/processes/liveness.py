"""Liveness heartbeats of processes and hosts, kept in the store.

A task that waits in a queue proves nothing about the queue's server: it may be busy, restarting, or cut off from
Temporal. Before work is moved away from a process, its heartbeat is looked up here. How old that is goes by the
store's clock alone: those of hosts differ, and one may be set while its host works.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import CLOCK_BOOTTIME, clock_gettime
from typing import NamedTuple

from clotho.config import SettingsFile
from clotho.errors import InvalidInput, StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal

PERIOD_SECONDS = 10.0
"""Between two heartbeats."""
LIVENESS_SECONDS = 30.0
"""Age of the last heartbeat up to which a process counts as alive."""
IDLE_PERIOD_SECONDS = 180.0
"""The same of a process that has nothing under way: each heartbeat costs a request for each of its names."""
IDLE_LIVENESS_SECONDS = IDLE_PERIOD_SECONDS + LIVENESS_SECONDS - PERIOD_SECONDS
QUIET_SECONDS = 60.0
"""Time without work after which a process is idle."""
YOUNG_SECONDS = 1.5 * PERIOD_SECONDS
"""Age of a heartbeat up to which work may begin without another: in time they come more often."""
KEPT_HEARTBEATS = 2
IDLE = "-idle"

log = logging.getLogger("clotho")


class Heartbeat(FrozenModel):
    """Its key names the process, a number that rises, and whether the process is idle."""

    settings_file: SettingsFile | None = None
    machine: str = ""
    """The machine that the process is on; see `clotho.host.machine_id`."""
    version: str = ""


HEARTBEATS_PREFIX = "~present/"


def _prefix(name: str) -> str:
    return f"{HEARTBEATS_PREFIX}{name}/"


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].removesuffix(IDLE))


class Liveness:
    """Writes heartbeats of `name` until cancelled; an outage of the store longer than LIVENESS_SECONDS hides it."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        settings_file: SettingsFile | None = None,
        machine: str = "",
        version: str = "",
    ) -> None:
        self._journal = journal
        self.name = name
        self._heartbeat = Heartbeat(settings_file=settings_file, machine=machine, version=version)
        self._kept: list[str] | None = None

    async def run(self) -> None:
        while True:
            try:
                await self.beat()
            except StoreUnavailable as error:
                log.warning("heartbeat of %s not written: %s", self.name, error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def beat(self, *, idle: bool = False) -> None:
        """Numbers are seconds by this host's clock, and rise where that is set back: the last one is the newest."""
        prefix = _prefix(self.name)
        if self._kept is None:  # what processes of this name have left before
            self._kept = await self._journal.keys(prefix)
        last = max(map(_number, self._kept), default=-1)
        key = f"{prefix}{max(int(time.time()), last + 1):012}{IDLE if idle else ''}"
        await self._journal.write(key, self._heartbeat)
        kept = sorted([*self._kept, key], key=_number)
        old, self._kept = kept[:-KEPT_HEARTBEATS], kept[-KEPT_HEARTBEATS:]
        await self._journal.delete(old)

    async def leave(self) -> None:
        """Delete this process's heartbeats."""
        kept, self._kept = self._kept or [], None
        await self._journal.delete(kept)

    async def require_name(self) -> None:
        """Wait while another machine may answer to the name. Raises InvalidInput once that has shown it lives."""
        first: set[str] | None = None
        while others := await self._other_machines():
            if first is None:
                first = set(others)
                log.info("%s: another machine had this name %.0f s ago", self.name, min(others.values()))
            elif others.keys() - first:
                raise InvalidInput(
                    f"another machine has this one's name, and lives: it writes heartbeats of {self.name}; give "
                    "each a name of its own (CLOTHO_HOST), or a home of its own, in which its name is kept"
                )
            await asyncio.sleep(1)

    async def _other_machines(self) -> dict[str, float]:
        """Key -> age, of heartbeats of machines that had this name and may live."""
        now, times = await self._journal.written(_prefix(self.name))
        ages = {key: now - at for key, at in times.items() if Sign(now - at, key.endswith(IDLE)).alive}
        read = await self._journal.read_many(list(ages), Heartbeat)
        theirs = {
            key
            for key, each in zip(ages, read, strict=True)
            if each is not None and each.machine not in ("", self._heartbeat.machine)
        }
        return {key: age for key, age in ages.items() if key in theirs}


class Presence:
    """The heartbeats of a worker process under all its names, seldom ones while it has nothing under way.

    A process that was silent for LIVENESS_SECONDS is taken for gone. An idle one loses nothing by that, since it
    says that it is there before it begins anything (`working`).
    """

    def __init__(self, names: Sequence[Liveness], holds: Callable[[], bool]) -> None:
        """`holds`: whether this host holds sandboxes, which would be restored elsewhere without it."""
        self._names = names
        self._holds = holds
        self._under_way = 0
        self._worked = clock_gettime(CLOCK_BOOTTIME)
        self._beaten = self._said_busy = -math.inf
        self._beating = asyncio.Lock()

    async def claim(self) -> None:
        """Wait while another machine may have this one's name; see `Liveness.require_name`."""
        await asyncio.gather(*(name.require_name() for name in self._names))

    async def run(self) -> None:
        """Write heartbeats until cancelled."""
        while True:
            now = clock_gettime(CLOCK_BOOTTIME)
            idle = not self._under_way and not self._holds() and now - self._worked > QUIET_SECONDS
            if not idle or now - self._beaten >= IDLE_PERIOD_SECONDS:
                await self._beat(idle)
            await asyncio.sleep(PERIOD_SECONDS)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Begin work only after a heartbeat that is young."""
        self._under_way += 1
        try:
            async with self._beating:  # of what begins side by side, the first writes it
                if clock_gettime(CLOCK_BOOTTIME) - self._said_busy > YOUNG_SECONDS:
                    await self._beat(idle=False)
            yield
        finally:
            self._under_way -= 1
            self._worked = clock_gettime(CLOCK_BOOTTIME)

    async def leave(self) -> None:
        """The process ends; where it leaves no sandboxes, nothing has to wait for its silence."""
        if self._holds():
            return
        await asyncio.gather(*(name.leave() for name in self._names))

    async def _beat(self, idle: bool) -> None:
        begun = clock_gettime(CLOCK_BOOTTIME)
        try:
            await asyncio.gather(*(name.beat(idle=idle) for name in self._names))
        except StoreUnavailable as error:
            log.warning("heartbeats of this process not written: %s", error)
            return
        self._beaten = begun
        self._said_busy = -math.inf if idle else begun


class Sign(NamedTuple):
    """The last heartbeat of a process or a host."""

    age: float
    """Seconds by the store's clock."""
    idle: bool = False

    @property
    def alive(self) -> bool:
        """Whether it would have written another one by now if it lived."""
        return self.age < (IDLE_LIVENESS_SECONDS if self.idle else LIVENESS_SECONDS)


class LastHeartbeat(NamedTuple):
    now: float
    """Unix seconds by the store's clock, as is `at`."""
    at: float
    """Minus infinity if there never was one."""


async def last_heartbeat(journal: Journal, name: str) -> LastHeartbeat:
    now, at = await journal.written(_prefix(name))
    return LastHeartbeat(now, max(at.values(), default=-math.inf))


async def heartbeat_age(journal: Journal, name: str) -> float:
    """Seconds since the last heartbeat of `name`; infinite if there never was one."""
    now, at = await last_heartbeat(journal, name)
    return now - at


async def is_present(journal: Journal, name: str) -> bool:
    return await heartbeat_age(journal, name) < LIVENESS_SECONDS


async def last_signs(journal: Journal) -> dict[str, Sign]:
    """The last heartbeat of each name that ever wrote one, which several processes of a host may write."""
    now, times = await journal.written(HEARTBEATS_PREFIX)
    signs: dict[str, Sign] = {}
    for key, at in times.items():
        name, sign = (
            key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0],
            Sign(now - at, key.endswith(IDLE)),
        )
        signs[name] = min(sign, signs.get(name, sign), key=lambda each: (not each.alive, each.age))
    return signs


async def living_heartbeats(journal: Journal) -> dict[str, list[Heartbeat]]:
    """Those of living processes by their names, the last one at the end."""
    now, times = await journal.written(HEARTBEATS_PREFIX)
    alive = [key for key, at in times.items() if Sign(now - at, key.endswith(IDLE)).alive]
    found: dict[str, list[Heartbeat]] = {}
    # A process's last heartbeat has the highest number.
    keys = sorted(alive, key=_number)
    for key, heartbeat in zip(keys, await journal.read_many(keys, Heartbeat), strict=True):
        if heartbeat is not None:
            found.setdefault(key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0], []).append(heartbeat)
    return found


async def clock_offsets(journal: Journal) -> dict[str, float]:
    """Name -> seconds by which the clock of its last heartbeat was ahead of the store's, to a second or two."""
    _, times = await journal.written(HEARTBEATS_PREFIX)
    newest = sorted(times, key=lambda key: times[key])
    return {
        key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0]: _number(key) - times[key] for key in newest
    }


async def changed_settings(journal: Journal, file: SettingsFile) -> list[str]:
    """Settings that a living worker which read the same `file` read otherwise, or didn't find in it."""
    latest = [heartbeats[-1] for heartbeats in (await living_heartbeats(journal)).values()]
    read = [each.settings_file for each in latest if each.settings_file is not None]
    return sorted({name for each in read if each.path == file.path for name in each.differing(file)})

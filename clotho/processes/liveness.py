"""Liveness heartbeats of processes and hosts, kept in the store.

A task that waits in a queue proves nothing about the queue's server: it may be busy, restarting, or cut off from
Temporal. Before work is moved away from a process, its heartbeat is looked up here. How old that is goes by the
store's clock alone: those of hosts differ, and one may be set while its host works.

A heartbeat names the namespace whose tasks its process takes. A process that lives, but serves another namespace or
another server only, will never take work from this one.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
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
DOUBT_SECONDS = LIVENESS_SECONDS - PERIOD_SECONDS
"""Silence after which a process asks itself whether others take it for gone."""
STORE_SECONDS = 2.0
"""Exactness of ages by the store's clock: S3 tells whole seconds."""
# a reader that has listed the last one can still read it when the next one is written
KEPT_HEARTBEATS = 2
IDLE = "i"
"""Follows the number of an idle process's heartbeat."""

log = logging.getLogger("clotho")


class Heartbeat(FrozenModel):
    """A sign of life. Its key names the process, a number that rises, and the served namespace's id, if any.

    The number ends in IDLE where the process is idle.
    """

    settings_file: SettingsFile | None = None
    namespace: str = ""
    machine: str = ""
    """The machine that the process is on; see `clotho.host.machine_id`."""
    version: str = ""


HEARTBEATS_PREFIX = "~present/"


def _prefix(name: str) -> str:
    return f"{HEARTBEATS_PREFIX}{name}/"


def boot_seconds() -> float:
    """Seconds of a clock that goes on while the process, or its host, is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ServedNamespace:
    """The namespace of Temporal whose tasks this process takes.

    Namespaces of two servers may have one name. Their ids differ, and so does that of a namespace which was made
    again after Temporal's database was lost: it is looked up again and again.
    """

    def __init__(self, name: str, look_up: Callable[[], Awaitable[str | None]]) -> None:
        """`look_up` returns the namespace's id, or None where Temporal doesn't tell it now."""
        self.name = name
        self.id = ""
        self._look_up = look_up
        self._learned = boot_seconds()

    async def refresh(self) -> str:
        found = await self._look_up()
        if found is not None and found != self.id:
            self.id, self._learned = found, boot_seconds()
        return self.id

    @property
    def known_for(self) -> float:
        """Seconds for which this process has known the current id."""
        return boot_seconds() - self._learned


class Liveness:
    """Writes heartbeats of `name` until cancelled; an outage of the store longer than LIVENESS_SECONDS hides it."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        settings_file: SettingsFile | None = None,
        namespace: ServedNamespace | None = None,
        machine: str = "",
        version: str = "",
    ) -> None:
        self._journal = journal
        self.name = name
        self._heartbeat = Heartbeat(settings_file=settings_file, machine=machine, version=version)
        self._namespace = namespace
        self._kept: list[str] | None = None
        self._last = self._unbroken_since = -math.inf

    def was_silent(self, since: float) -> bool:
        """Whether others may have taken this process for gone at a time after `since`, by `boot_seconds`.

        It may have been frozen, cut off from the store, or just begun.
        """
        return self._unbroken_since > since or boot_seconds() - self._last > DOUBT_SECONDS

    async def run(self) -> None:
        while True:
            try:
                await self.beat()
            except StoreUnavailable as error:
                # others may take this process for gone meanwhile; `was_silent` tells those who have to know
                log.warning("heartbeat of %s not written: %s", self.name, error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def beat(self, *, idle: bool = False) -> None:
        """Write one. Its number is the host's time in seconds, or the last one plus 1 if the clock was set back."""
        begun, prefix, served, heartbeat = boot_seconds(), _prefix(self.name), "", self._heartbeat
        if self._namespace is not None:
            served = f"-{await self._namespace.refresh()}"
            heartbeat = heartbeat.model_copy(update={"namespace": self._namespace.name})
        if self._kept is None:  # what processes of this name have left before
            before = await self._journal.keys(prefix)
            last = max(map(_number_in, before), default=-1)
            # those for another namespace stay: a process that serves it may have the same name
            self._kept = [key for key in before if _served_in(key) == served.removeprefix("-")]
        else:
            last = max(map(_number_in, self._kept), default=-1)
        key = f"{prefix}{max(int(time.time()), last + 1):012}{IDLE if idle else ''}{served}"
        await self._journal.write(key, heartbeat)
        if begun - self._last > DOUBT_SECONDS:
            # not `begun`: others saw nothing until the write was done
            self._unbroken_since = boot_seconds()
        self._last = begun  # it counts from before it was written: the store's clock says later
        # deleted after the write: a process that is killed between the two is seen for as long as any
        kept = sorted({*self._kept, key}, key=_number_in)
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
            # a heartbeat that wasn't there at first was written since then
            elif others.keys() - first:
                raise InvalidInput(
                    f"another machine has this one's name, and lives: it writes heartbeats of {self.name}; give "
                    "each a name of its own (CLOTHO_HOST), or a home of its own, in which its name is kept"
                )
            await asyncio.sleep(1)

    async def _other_machines(self) -> dict[str, float]:
        """Key -> age, of heartbeats of machines that had this name and may live."""
        now, times = await self._journal.written(_prefix(self.name))
        ages = {key: now - at for key, at in times.items() if Sign.of(key, now - at).alive}
        read = await self._journal.read_many(list(ages), Heartbeat)
        theirs = {
            key
            for key, each in zip(ages, read, strict=True)
            if each is not None and each.machine not in ("", self._heartbeat.machine)
        }
        return {key: age for key, age in ages.items() if key in theirs}


def _number_in(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0].removesuffix(IDLE))


def _served_in(key: str) -> str:
    """The id of the namespace that the process of a heartbeat serves."""
    return key.rpartition("/")[2].partition("-")[2]


class Sign(NamedTuple):
    """The last heartbeat of a process or a host."""

    age: float
    """Seconds by the store's clock."""
    idle: bool = False

    @classmethod
    def of(cls, key: str, age: float) -> "Sign":
        return cls(age, key.rpartition("/")[2].partition("-")[0].endswith(IDLE))

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


class Presence:
    """Whether others live that take tasks of this process's namespace."""

    def __init__(self, journal: Journal, namespace: ServedNamespace) -> None:
        self._journal = journal
        self._namespace = namespace

    async def serves(self, queue: str) -> bool:
        """Whether a process lives that takes this namespace's tasks from `queue`."""
        now, at = await self._journal.written(_prefix(queue))
        ages = {key: now - then for key, then in at.items() if now - then < LIVENESS_SECONDS}
        served = set(map(_served_in, ages))
        if not served:
            return False
        # the id that is known comes first: looking it up asks Temporal
        if self._namespace.id and self._namespace.id in served:
            return True
        own = await self._namespace.refresh()
        # where Temporal doesn't tell, the other counts as serving: work that moves too soon may be done twice
        if not own or own in served:
            return True
        # Of the same name, it may be the same namespace, made again: a heartbeat tells that from when this process
        # learned of the new one on.
        known_for = self._namespace.known_for - STORE_SECONDS
        unsure = [key for key, age in ages.items() if age >= known_for or not _served_in(key)]
        heartbeats = await self._journal.read_many(unsure, Heartbeat)
        return any(each is None or each.namespace in ("", self._namespace.name) for each in heartbeats)


async def last_signs(journal: Journal) -> dict[str, Sign]:
    """The last heartbeat of each name that ever had one. Several processes of a host may share a name."""
    now, times = await journal.written(HEARTBEATS_PREFIX)
    signs: dict[str, Sign] = {}
    for key, at in times.items():
        name, sign = (
            key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0],
            Sign.of(key, now - at),
        )
        # living ones first: an idle one's heartbeat may be older than that of one that is gone
        signs[name] = min(sign, signs.get(name, sign), key=lambda each: (not each.alive, each.age))
    return signs


async def living_heartbeats(journal: Journal) -> dict[str, list[Heartbeat]]:
    """The heartbeats of living processes, by name; of each name, the last one is at the end."""
    now, times = await journal.written(HEARTBEATS_PREFIX)
    alive = [key for key, at in times.items() if Sign.of(key, now - at).alive]
    found: dict[str, list[Heartbeat]] = {}
    # A process's last heartbeat has the highest number.
    keys = sorted(alive, key=_number_in)
    for key, heartbeat in zip(keys, await journal.read_many(keys, Heartbeat), strict=True):
        if heartbeat is not None:
            found.setdefault(key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0], []).append(heartbeat)
    return found


async def clock_offsets(journal: Journal) -> dict[str, float]:
    """Name -> seconds by which the clock of its last heartbeat was ahead of the store's, to a second or two."""
    _, times = await journal.written(HEARTBEATS_PREFIX)
    newest = sorted(times, key=lambda key: times[key])
    return {
        key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0]: _number_in(key) - times[key] for key in newest
    }


async def changed_settings(journal: Journal, file: SettingsFile) -> list[str]:
    """Settings that a living worker which read the same `file` read otherwise, or didn't find in it."""
    latest = [heartbeats[-1] for heartbeats in (await living_heartbeats(journal)).values()]
    read = [each.settings_file for each in latest if each.settings_file is not None]
    return sorted({name for each in read if each.path == file.path for name in each.differing(file)})

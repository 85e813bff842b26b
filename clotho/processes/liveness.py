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
from clotho.errors import StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal

PERIOD_SECONDS = 10.0
"""Between two heartbeats."""
LIVENESS_SECONDS = 30.0
"""Age of the last heartbeat up to which a process counts as alive."""
DOUBT_SECONDS = LIVENESS_SECONDS - PERIOD_SECONDS
"""Silence after which a process asks itself whether others take it for gone."""
KEPT_HEARTBEATS = 2

log = logging.getLogger("clotho")


class Heartbeat(FrozenModel):
    """Its key names the process, a number that rises, and the id of the namespace that is served, if any."""

    settings_file: SettingsFile | None = None
    namespace: str = ""


HEARTBEATS_PREFIX = "~present/"


def _prefix(name: str) -> str:
    return f"{HEARTBEATS_PREFIX}{name}/"


def boot_seconds() -> float:
    """Seconds that go on while the process, or its host, is suspended."""
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
    ) -> None:
        self._journal = journal
        self._name = name
        self._settings_file = settings_file
        self._namespace = namespace
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
                log.warning("heartbeat of %s not written: %s", self._name, error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def beat(self) -> None:
        """Numbers are seconds by this host's clock, and rise where that is set back: the last one is the newest."""
        begun, prefix, served = boot_seconds(), _prefix(self._name), ""
        heartbeat = Heartbeat(settings_file=self._settings_file)
        if self._namespace is not None:
            served = f"-{await self._namespace.refresh()}"
            heartbeat = heartbeat.model_copy(update={"namespace": self._namespace.name})
        before = await self._journal.keys(prefix)
        last = max((_number_in(key) for key in before), default=-1)
        await self._journal.write(f"{prefix}{max(int(time.time()), last + 1):012}{served}", heartbeat)
        if begun - self._last > DOUBT_SECONDS:
            self._unbroken_since = boot_seconds()
        self._last = begun  # it counts from before it was written: the store's clock says later
        own = [key for key in before if _served_in(key) == served.removeprefix("-")]
        await self._journal.delete(own[: -(KEPT_HEARTBEATS - 1)])


def _number_in(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0])


def _served_in(key: str) -> str:
    """The id of the namespace that the process of a heartbeat serves."""
    return key.rpartition("/")[2].partition("-")[2]


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
        if self._namespace.id and self._namespace.id in served:
            return True
        own = await self._namespace.refresh()
        if not own or own in served:
            return True
        # Of the same name, it may be the same namespace, made again: a heartbeat tells that from when this process
        # learned of the new one on.
        known_for = self._namespace.known_for
        unsure = [key for key, age in ages.items() if age >= known_for or not _served_in(key)]
        heartbeats = await self._journal.read_many(unsure, Heartbeat)
        return any(each is None or each.namespace in ("", self._namespace.name) for each in heartbeats)


async def heartbeat_ages(journal: Journal) -> dict[str, float]:
    """Name -> seconds since its last heartbeat, of all that ever wrote one."""
    now, times = await journal.written(HEARTBEATS_PREFIX)
    ages: dict[str, float] = {}
    for key, at in times.items():
        name = key.removeprefix(HEARTBEATS_PREFIX).rpartition("/")[0]
        ages[name] = min(now - at, ages.get(name, math.inf))
    return ages


async def changed_settings(journal: Journal, file: SettingsFile) -> list[str]:
    """Settings that a living worker which read the same `file` read otherwise, or didn't find in it."""
    now, times = await journal.written(HEARTBEATS_PREFIX)
    # A process's last heartbeat has the highest number.
    latest = {key.rpartition("/")[0]: key for key in sorted(times) if now - times[key] < LIVENESS_SECONDS}
    heartbeats = await journal.read_many(list(latest.values()), Heartbeat)
    read = [each.settings_file for each in heartbeats if each is not None and each.settings_file is not None]
    return sorted({name for each in read if each.path == file.path for name in each.differing(file)})

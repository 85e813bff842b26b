"""Liveness heartbeats of processes and hosts, kept in the store.

A task that waits in a queue proves nothing about the queue's server: it may be busy, restarting, or cut off from
Temporal. Before work is moved away from a process, its heartbeat is looked up here. How old that is goes by the
store's clock alone: those of hosts differ, and one may be set while its host works.
"""

import asyncio
import logging
import math
import time
from typing import NamedTuple

from clotho.config import SettingsFile
from clotho.errors import StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal

PERIOD_SECONDS = 10.0
"""Between two heartbeats."""
LIVENESS_SECONDS = 30.0
"""Age of the last heartbeat up to which a process counts as alive."""
KEPT_HEARTBEATS = 2

log = logging.getLogger("clotho")


class Heartbeat(FrozenModel):
    """Its key names the process, and a number that rises."""

    settings_file: SettingsFile | None = None


HEARTBEATS_PREFIX = "~present/"


def _prefix(name: str) -> str:
    return f"{HEARTBEATS_PREFIX}{name}/"


class Liveness:
    """Writes heartbeats of `name` until cancelled; an outage of the store longer than LIVENESS_SECONDS hides it."""

    def __init__(self, journal: Journal, name: str, settings_file: SettingsFile | None = None) -> None:
        self._journal = journal
        self._name = name
        self._heartbeat = Heartbeat(settings_file=settings_file)

    async def run(self) -> None:
        while True:
            try:
                await self.beat()
            except StoreUnavailable as error:
                log.warning("heartbeat of %s not written: %s", self._name, error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def beat(self) -> None:
        """Numbers are seconds by this host's clock, and rise where that is set back: the last one is the newest."""
        prefix = _prefix(self._name)
        before = await self._journal.keys(prefix)
        last = int(before[-1].rpartition("/")[2]) if before else -1
        await self._journal.write(f"{prefix}{max(int(time.time()), last + 1):012}", self._heartbeat)
        await self._journal.delete(before[: -(KEPT_HEARTBEATS - 1)])


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

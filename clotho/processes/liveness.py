"""Liveness heartbeats of processes and hosts, kept in the store.

A task that waits in a queue proves nothing about the queue's server: it may be busy, restarting, or cut off from
Temporal. Before work is moved away from a process, its heartbeat is looked up here.
"""

import asyncio
import logging
import time

from clotho.errors import StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal

PERIOD_SECONDS = 10.0
"""Between two heartbeats."""
LIVENESS_SECONDS = 30.0
"""Age of the last heartbeat up to which a process counts as alive. Clocks may differ by a part of it."""
KEPT_HEARTBEATS = 2

log = logging.getLogger("clotho")


class Heartbeat(FrozenModel):
    """An empty entry: its key names the process and the second."""


HEARTBEATS_PREFIX = "~present/"


def _prefix(name: str) -> str:
    return f"{HEARTBEATS_PREFIX}{name}/"


class Liveness:
    """Writes heartbeats of `name` until cancelled; an outage of the store longer than LIVENESS_SECONDS hides it."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal = journal
        self._name = name

    async def run(self) -> None:
        while True:
            try:
                await self.beat()
            except StoreUnavailable as error:
                log.warning("heartbeat of %s not written: %s", self._name, error)
            await asyncio.sleep(PERIOD_SECONDS)

    async def beat(self) -> None:
        await self._journal.write(f"{_prefix(self._name)}{int(time.time()):012}", Heartbeat())
        heartbeats = await self._journal.keys(_prefix(self._name))
        await self._journal.delete(heartbeats[:-KEPT_HEARTBEATS])


async def heartbeat_age(journal: Journal, name: str) -> float:
    """Seconds since the last heartbeat of `name`; infinite if there never was one."""
    heartbeats = await journal.keys(_prefix(name))
    return time.time() - int(heartbeats[-1].rpartition("/")[2]) if heartbeats else float("inf")


async def is_present(journal: Journal, name: str) -> bool:
    return await heartbeat_age(journal, name) < LIVENESS_SECONDS


async def heartbeat_ages(journal: Journal) -> dict[str, float]:
    """Name -> seconds since its last heartbeat, of all that ever wrote one."""
    now, keys = time.time(), await journal.keys(HEARTBEATS_PREFIX)
    heartbeats = (key.removeprefix(HEARTBEATS_PREFIX).rpartition("/") for key in keys)
    return {name: now - int(second) for name, _, second in heartbeats}

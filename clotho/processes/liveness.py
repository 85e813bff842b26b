"""Who is there: processes and hosts say so in the store while they live.

A task that waits in a queue proves nothing about the queue's server: it may be busy, restarting, or cut off from
Temporal. Who moves work away from it asks here first.
"""

import asyncio
import logging
import time

from clotho.errors import StoreUnavailable
from clotho.frozen_model import FrozenModel
from clotho.journal import Journal

PERIOD = 10.0
"""Seconds between two signs."""
FRESH = 30.0
"""Seconds after its last sign for which somebody counts as there. Clocks may differ by a part of it."""
KEPT = 2

log = logging.getLogger("clotho")


class Heartbeat(FrozenModel):
    """That somebody was there; the key says when."""


SIGNS = "~present/"


def _prefix(name: str) -> str:
    return f"{SIGNS}{name}/"


class Liveness:
    """Says that `name` is there until it is cancelled. A store that is out for longer than FRESH hides it."""

    def __init__(self, journal: Journal, name: str) -> None:
        self._journal = journal
        self._name = name

    async def run(self) -> None:
        while True:
            try:
                await self.show()
            except StoreUnavailable as error:
                log.warning("presence of %s not written: %s", self._name, error)
            await asyncio.sleep(PERIOD)

    async def show(self) -> None:
        await self._journal.write(f"{_prefix(self._name)}{int(time.time()):012}", Heartbeat())
        signs = await self._journal.keys(_prefix(self._name))
        await self._journal.delete(signs[:-KEPT])


async def heartbeat_age(journal: Journal, name: str) -> float:
    """Seconds since the last sign of `name`; infinite if there never was one."""
    signs = await journal.keys(_prefix(name))
    return time.time() - int(signs[-1].rpartition("/")[2]) if signs else float("inf")


async def is_present(journal: Journal, name: str) -> bool:
    return await heartbeat_age(journal, name) < FRESH


async def silences(journal: Journal) -> dict[str, float]:
    """Seconds since the last sign of everybody who ever gave one."""
    now = time.time()
    signs = (key.removeprefix(SIGNS).rpartition("/") for key in await journal.keys(SIGNS))
    return {name: now - int(second) for name, _, second in signs}

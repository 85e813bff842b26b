"""Keeps the sandboxes of open rollouts alive on their host, and ends those whose rollout has closed."""

import asyncio
import logging
from enum import StrEnum
from typing import Protocol

from clotho.errors import SandboxLost, Unavailable
from clotho.sandbox.base import SandboxBackend

PERIOD = 60.0
"""Seconds between two looks: a small part of a lease, so that a few failed looks do no harm."""

log = logging.getLogger("clotho")


class OwnerState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"
    """The server doesn't know the rollout: a deleted database must not kill live work, its lease decides."""


class Owners(Protocol):
    async def state(self, rollout: str) -> OwnerState:
        """Raises Unavailable where nobody can tell now."""


class LeaseKeeper:
    """One per host. What it can't do now, it does at its next look, or the lease's expiry does."""

    def __init__(self, backend: SandboxBackend, owners: Owners, lease_seconds: float) -> None:
        self._backend = backend
        self._owners = owners
        self._lease_seconds = lease_seconds

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except Unavailable as error:
                log.warning("leases not looked at: %s", error)
            await asyncio.sleep(PERIOD)

    async def look(self) -> None:
        """Renew the leases of open rollouts, destroy the sandboxes of closed ones."""
        for held in await self._backend.leases():
            lease = held.lease
            rollout = lease.partition("/lease/")[0]
            match await self._owners.state(rollout):
                case OwnerState.OPEN:
                    await self._renew(lease)
                case OwnerState.CLOSED:
                    log.info("destroying %s: its rollout has closed", lease)
                    await self._backend.destroy(lease)

    async def _renew(self, lease: str) -> None:
        try:
            await self._backend.renew(lease, self._lease_seconds)
        except SandboxLost as error:
            log.warning("lease %s: %s", lease, error)

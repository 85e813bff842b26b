"""Destroys orphans, and keeps the sandboxes of open rollouts alive on their host.

An orphan is a sandbox whose rollout has closed, or goes on in another one. `worker.py` runs one reaper in each
process with the role `tools`, which looks once a minute: it renews the leases of open rollouts and destroys
orphans. If no worker of the host does so for as long as a lease lasts, the sandbox's supervisor ends it by itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Protocol

from clotho.errors import ClothoError, Unavailable
from clotho.identifiers.keys import lease_of
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxBackend
from clotho.sandbox.threads import with_host

PERIOD_SECONDS = 60.0
"""Seconds between two looks: a small part of a lease, so that a few failed looks do no harm."""

ANSWER_SECONDS = 10.0
"""Seconds to wait for the state of an owner."""

RENEW_SECONDS = 20.0
"""Seconds to wait for the renewal of a lease: what runs in a sandbox may keep it from answering."""

AT_ONCE = 32
"""Leases that are looked at side by side."""

log = logging.getLogger("clotho")


@contextmanager
def going_on(what: str) -> Iterator[None]:
    """Log any failure and go on: one sandbox or backend must not keep another from being looked after."""
    try:
        yield
    except ClothoError as error:
        log.warning("%s: %s", what, error)
    except Exception:  # such as a container without a label that it should have
        log.exception("%s", what)


class OwnerState(StrEnum):
    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"
    """The server doesn't know the rollout: a deleted database must not kill live work, its lease decides."""
    SUPERSEDED = "superseded"
    """The store says that the rollout holds a later lease, whichever namespace it runs in."""


class Owners(Protocol):
    async def state(self, rollout: str) -> OwnerState:
        """The state of a rollout; raises Unavailable where it can't be known now."""


Backends = Callable[[], Sequence[SandboxBackend]]
Superseded = Callable[[str, int], Awaitable[bool]]
"""Tells whether a rollout has a lease after the one of that number. May raise Unavailable."""


class SandboxReaper:
    """One per process that serves sandboxes. What fails now is left to the next look, or to lease expiry.

    `labels` are those of the owners' namespace: another namespace on the same store may run a rollout that has
    closed here, so only sandboxes with these labels are destroyed when their rollout has closed. Leases of open
    rollouts are renewed whatever their labels.
    `others` are the backends of other stores that had sandboxes here. If no worker serves a store any more, nobody
    else deletes its expired sandboxes.
    """

    def __init__(
        self,
        backend: SandboxBackend,
        owners: Owners,
        superseded: Superseded,
        labels: Labels,
        lease_seconds: float,
        others: Backends = tuple,
    ) -> None:
        self._backend = backend
        self._owners = owners
        self._superseded = superseded
        self._labels = labels
        self._lease_seconds = lease_seconds
        self._others = others

    async def run(self) -> None:
        """Look every period. Clearing runs beside it: waiting for an engine that hangs must let no lease end."""
        async with asyncio.TaskGroup() as tasks:
            clearing: asyncio.Task[None] | None = None
            while True:
                with going_on("leases not looked at"):
                    orphans = await self._renew_open()
                    if clearing is None or clearing.done():
                        # it catches its own failures: one that escaped would end the group, and renewals with it
                        clearing = tasks.create_task(self._clear(orphans))
                await asyncio.sleep(PERIOD_SECONDS)

    async def look(self) -> None:
        """Renew the leases of open rollouts; destroy the sandboxes of closed ones, and those of superseded leases.

        While their states can't be known, all are renewed: an outage must cost no sandbox. A host that comes
        back finds here that its rollouts went on elsewhere.
        """
        await self._clear(await self._renew_open())

    async def _renew_open(self) -> Sequence[tuple[LeaseRecord, OwnerState]]:
        """Renew the leases of open rollouts side by side; returns the others."""
        answers, places = True, asyncio.Semaphore(AT_ONCE)

        async def state_of_others(held: LeaseRecord) -> OwnerState | None:
            nonlocal answers
            async with places:
                with going_on(f"lease {held.lease} not looked at"):
                    state = await self._state(*lease_of(held.lease)) if answers else None
                    # One that doesn't answer stands for all: if each were waited for, leases would end
                    # meanwhile.
                    answers = answers and state is not None
                    if state not in (None, OwnerState.OPEN):
                        return state
                    await self._renew(held.lease)
            return None

        leases = await self._backend.leases()
        async with asyncio.TaskGroup() as looks:
            states = [looks.create_task(state_of_others(held)) for held in leases]
        looked_at = zip(leases, (each.result() for each in states), strict=True)
        return [(held, state) for held, state in looked_at if state is not None]

    async def _clear(self, orphans: Sequence[tuple[LeaseRecord, OwnerState]]) -> None:
        for held, state in orphans:
            with going_on(f"lease {held.lease} not looked after"):
                await self._destroy_orphan(held, state)
        with going_on("sandboxes not reaped"):
            await self._backend.reap()
        with going_on("other stores' sandboxes not reaped"):
            for other in await with_host(self._others):
                with going_on(
                    "another store's sandboxes not reaped"
                ):  # such as one whose folder is being removed
                    await other.reap()

    async def _state(self, rollout: str, number: int) -> OwnerState | None:
        """The state of a lease's owner; None where it can't be known now."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                # before the owner: an open rollout may have gone on in another sandbox, which only the store tells
                if await self._superseded(rollout, number):
                    return OwnerState.SUPERSEDED
                return await self._owners.state(rollout)
        except (Unavailable, TimeoutError) as error:
            log.warning("open rollouts are not known now: %s", error or "no answer")
            return None
        except ClothoError as error:  # such as a damaged entry, which tells nothing of the other leases
            log.warning("the state of %s is not known: %s", rollout, error)
            return OwnerState.UNKNOWN

    async def _destroy_orphan(self, held: LeaseRecord, state: OwnerState) -> None:
        if state is OwnerState.SUPERSEDED:
            log.info("destroying %s: its rollout holds another", held.lease)
            # without labels: what the store says holds for every namespace
            await self._backend.destroy(held.lease)
        elif state is OwnerState.CLOSED and self._labels.same_namespace(held.labels):
            log.info("destroying %s: its rollout has closed", held.lease)
            await self._backend.destroy(held.lease, self._labels)

    async def _renew(self, lease: str) -> None:
        try:
            async with asyncio.timeout(RENEW_SECONDS):
                await self._backend.renew(lease, self._lease_seconds)
        except (ClothoError, TimeoutError) as error:  # the others can be renewed all the same
            log.warning("lease %s not renewed: %s", lease, error or "no answer")

"""All backends of a host as one: the one that its settings name, and others for runs that ask for them."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clotho.sandbox.backend import (
    BesideBackend,
    Labels,
    LeaseRecord,
    SandboxBackend,
    SandboxInstance,
    SandboxSpec,
)
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.reaper import going_on
from clotho.sandbox.verification import USUAL, VerifierSetup

T = TypeVar("T")


class Backends:
    """A lease belongs to the backend in `beside` that holds it, and otherwise to `own`.

    The first backend in `beside` that makes sandboxes of a configuration makes them, else `own` does.

    The first lease of a sandbox is `lease_seconds` long, like its renewals. With None it is as long as the spec
    says, in which a worker elsewhere has filled in its own length.
    """

    def __init__(
        self,
        own: SandboxBackend,
        beside: Sequence[BesideBackend] = (),
        lease_seconds: float | None = None,
    ) -> None:
        self.own = own
        self.beside = beside
        self._lease_seconds = lease_seconds

    @property
    def _all(self) -> tuple[SandboxBackend, ...]:
        return (self.own, *self.beside)

    def _of_lease(self, lease: str) -> SandboxBackend:
        return next((each for each in self.beside if each.holds(lease)), self.own)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for each in self._all for name in each.names))

    async def system(self, lease: str) -> str:
        return await self._of_lease(lease).system(lease)

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        return await self._of_lease(lease).evidence(lease)

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SandboxInstance:
        if self._lease_seconds is not None:
            spec = spec.model_copy(update={"lease_seconds": math.ceil(self._lease_seconds)})
        maker = next((each for each in self.beside if each.makes(spec.backend)), self.own)
        return await maker.create(lease, spec, labels, restore, private)

    async def attach(self, lease: str, incarnation: str, labels: Labels | None = None) -> SandboxInstance:
        return await self._of_lease(lease).attach(lease, incarnation, labels)

    async def open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None = None,
        setup: VerifierSetup = USUAL,
    ) -> SandboxInstance:
        return await self._of_lease(lease).open_verifier(lease, epoch, hidden_files, labels, setup)

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SandboxInstance:
        return await self._of_lease(lease).verify_in_place(lease, incarnation, labels, setup)

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await self._of_lease(lease).destroy(lease, labels)

    async def renew(self, lease: str, seconds: float) -> None:
        await self._of_lease(lease).renew(lease, seconds)

    async def leases(self) -> Sequence[LeaseRecord]:
        """The leases of all backends that answer: one that doesn't costs no other its renewals."""
        return await self._of_all("leases of %s not known", lambda each: each.leases())

    async def reap(self) -> Sequence[str]:
        return await self._of_all("sandboxes of %s not reaped", lambda each: each.reap())

    async def expired(self) -> Sequence[str]:
        return await self._of_all("expired sandboxes of %s not known", lambda each: each.expired())

    async def _of_all(
        self, failed: str, ask: Callable[[SandboxBackend], Awaitable[Sequence[T]]]
    ) -> Sequence[T]:
        found: list[T] = []
        for each in self._all:
            with going_on(failed % ", ".join(each.names)):
                found += await ask(each)
        return found

    async def close(self) -> None:
        """Let go of what this process keeps ready for sandboxes to come, and of its connections elsewhere."""
        for each in self.beside:
            await each.close()

    async def probe(self) -> IsolationReport:
        return await self.own.probe()

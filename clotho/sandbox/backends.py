"""All backends of a host as one: the one that its settings name, and containers for runs that ask for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clotho.sandbox.backend import Labels, LeaseRecord, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.containers.backend import ContainerBackend
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.verification import USUAL, VerifierSetup


class Backends:
    """A lease is `containers`' where these hold it, and `own`'s otherwise."""

    def __init__(self, own: SandboxBackend, containers: ContainerBackend) -> None:
        self.own = own
        self.containers = containers

    def _of_lease(self, lease: str) -> SandboxBackend:
        return self.containers if self.containers.holds(lease) else self.own

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.own.names, *self.containers.names)

    async def system(self, lease: str) -> str:
        return await self._of_lease(lease).system(lease)

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SandboxInstance:
        made_by = self.containers if spec.backend.name in self.containers.names else self.own
        return await made_by.create(lease, spec, labels, restore, private)

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
        return (*await self.own.leases(), *await self.containers.leases())

    async def reap(self) -> Sequence[str]:
        return (*await self.own.reap(), *await self.containers.reap())

    async def expired(self) -> Sequence[str]:
        return (*await self.own.expired(), *await self.containers.expired())

    async def close(self) -> None:
        """Let go of what this process keeps ready for sandboxes to come."""
        await self.containers.close()

    async def probe(self) -> IsolationReport:
        return await self.own.probe()

"""All backends of a host as one: the one that its settings name, and others for runs that ask for them."""

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clotho.plugins.apptainer.backend import ApptainerBackend
from clotho.plugins.containers.backend import ContainerBackend
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.relay.backend import RelayedBackend
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.reaper import going_on
from clotho.sandbox.registry import AnyConfig
from clotho.sandbox.verification import USUAL, VerifierSetup

Beside = ApptainerBackend | RelayedBackend
T = TypeVar("T")


class Backends:
    """A lease belongs to whichever of the others holds it, and to `own` otherwise.

    Those in `beside` are asked for runs of their configurations; of those that ask for containers, for such as
    `containers` can't have on this host.

    Sandboxes begin with a lease of `lease_seconds`, as it is renewed for; None: with that of their spec, in which
    a worker elsewhere has filled in its own.
    """

    def __init__(
        self,
        own: SandboxBackend,
        containers: ContainerBackend,
        beside: Sequence[Beside] = (),
        lease_seconds: float | None = None,
    ) -> None:
        self.own = own
        self.containers = containers
        self.beside = beside
        self._lease_seconds = lease_seconds

    @property
    def _others(self) -> tuple[ContainerBackend | Beside, ...]:
        return (self.containers, *self.beside)

    @property
    def _all(self) -> tuple[SandboxBackend, ...]:
        return (self.own, *self._others)

    def _of_lease(self, lease: str) -> SandboxBackend:
        return next((each for each in self._others if each.holds(lease)), self.own)

    def _maker(self, config: AnyConfig) -> SandboxBackend:
        beside = next((each for each in self.beside if config.name in each.names), None)
        if isinstance(config, DockerConfig):
            return beside if beside is not None and self.containers.is_elsewhere(config) else self.containers
        return beside or self.own

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
        return await self._maker(spec.backend).create(lease, spec, labels, restore, private)

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
        """What one backend can't tell now keeps the leases of no other from being renewed."""
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
        await self.containers.close()
        for each in self.beside:
            await each.close()

    async def probe(self) -> IsolationReport:
        return await self.own.probe()

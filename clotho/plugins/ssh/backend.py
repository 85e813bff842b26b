"""Sandboxes on a pool of hosts through ssh: each has the backend of its own machine, and a capacity.

A sandbox's incarnation begins with the name of its host. Which host gets a new lease is drawn by the lease's name
among those with room, so that every worker draws alike.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from clotho.config import Settings
from clotho.errors import ClothoError, InvalidInput, SandboxLost, SandboxUnavailable
from clotho.plugins.ssh.address import SshHost, SshSettings
from clotho.plugins.ssh.host import PoolHost
from clotho.plugins.ssh.remote.backend import RemoteBackend
from clotho.plugins.ssh.remote.calls import Verb, forwarded
from clotho.plugins.ssh.remote.instance import RemoteInstance
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxBackend, SandboxInstance, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.config import LocalConfig
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.verification import USUAL, VerifierSetup

T = TypeVar("T")

MOST_USED = 10_000
"""Leases whose hosts are remembered; other processes destroy what this one made."""

log = logging.getLogger("clotho")


def open_ssh(settings: Settings, folder: Path) -> tuple["SshBackend", ...]:
    return (SshBackend(settings.of(SshSettings).hosts, folder.name, settings.sandbox.lease_seconds),)


class SshBackend:
    """Sandboxes of one store, in `folder` below each host's root. A host may be away for `lease_seconds`."""

    def __init__(self, hosts: Sequence[SshHost], folder: str, lease_seconds: float) -> None:
        if not hosts or len({host.name for host in hosts}) < len(hosts):
            raise InvalidInput(
                "sandboxes through ssh need hosts, with names of their own: set plugins.ssh.hosts"
            )
        self._hosts = {host.name: PoolHost(host, folder, lease_seconds) for host in hosts}
        self._choosing = asyncio.Lock()
        self._used: dict[str, PoolHost] = {}
        """The hosts on which this process made leases' sandboxes, or found the incarnations that it was given."""

    @property
    def names(self) -> tuple[str, ...]:
        return ("ssh",)

    system = forwarded(SandboxBackend.system)
    evidence = forwarded(SandboxBackend.evidence)

    async def forward(self, declared: Verb[..., Any], arguments: dict[str, Any]) -> Any:
        """Ask the host that has the sandbox."""
        host = await self._host_of(arguments["lease"])
        return await host.asked(getattr(host.backend, declared.__name__)(**arguments))

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> RemoteInstance:
        """Whether commands may run without isolation is set per host (`unsafe`), not per run."""
        spec.require_no_mounts("ssh")
        host, made_before = await self._chosen(lease)
        theirs = {"backend": LocalConfig(), "unsafe_local": host.settings.unsafe}
        try:
            made = await host.asked(
                host.backend.create(lease, spec.model_copy(update=theirs), labels, restore, private)
            )
            self._use(lease, host)
            return made
        except ClothoError:
            if not made_before:
                # if it was made all the same, the host lists it when it is asked next
                host.forget(lease)
            raise
        finally:
            if not made_before:
                host.made(lease)

    async def attach(self, lease: str, incarnation: str, labels: Labels | None = None) -> SandboxInstance:
        host = self._named(lease, incarnation)
        try:
            found = await host.asked(host.backend.attach(lease, incarnation, labels))
        except InvalidInput as error:
            # the host has to be mended first: the rollout goes on in another sandbox, from its last checkpoint
            raise SandboxLost(f"the sandbox of lease {lease} is out of reach: {error}") from error
        self._use(lease, host)
        return found

    async def open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None = None,
        setup: VerifierSetup = USUAL,
    ) -> SandboxInstance:
        named = setup.incarnation
        host = self._named(lease, named) if named else await self._host_of(lease)
        return await host.asked(host.backend.open_verifier(lease, epoch, hidden_files, labels, setup))

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SandboxInstance:
        host = self._named(lease, incarnation)
        return await host.asked(host.backend.verify_in_place(lease, incarnation, labels, setup))

    async def renew(self, lease: str, seconds: float) -> None:
        """Renew it on every host that holds one: the reaper, which asks, doesn't know which is used."""
        hosts = await self._hosts_of(lease)
        renewals = (host.asked(host.backend.renew(lease, seconds)) for host in hosts)
        errors = [
            each for each in await asyncio.gather(*renewals, return_exceptions=True) if each is not None
        ]
        if len(errors) == len(hosts):
            raise errors[0]

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        """Destroy the sandbox. On a host that was away for longer than a lease it has ended; its files go later.

        Raises SandboxUnavailable also where the host has to be mended first.
        """
        try:
            hosts = await self._hosts_of(lease)
        except SandboxLost:
            return
        for host in hosts:
            try:
                await host.asked(host.backend.destroy(lease, labels))
            except SandboxLost:
                continue
            except InvalidInput as error:
                raise SandboxUnavailable(
                    f"the sandbox of lease {lease} isn't destroyed yet: {error}"
                ) from error
            host.forget(lease)
        self._used.pop(lease, None)

    async def leases(self) -> Sequence[LeaseRecord]:
        """The leases of every host within reach."""
        found, _ = await self._each(PoolHost.leases)
        return [record for records in found.values() for record in records]

    async def reap(self) -> Sequence[str]:
        return await self._names(RemoteBackend.reap)

    async def expired(self) -> Sequence[str]:
        return await self._names(RemoteBackend.expired)

    async def _names(self, ask: Callable[[RemoteBackend], Awaitable[Sequence[str]]]) -> Sequence[str]:
        found, _ = await self._each(lambda host: host.asked(ask(host.backend)))
        return [f"{host.name}/{name}" for host, names in found.items() for name in names]

    async def probe(self) -> IsolationReport:
        """The isolation that holds on every host. Raises the error of one that can't be asked."""
        found, failed = await self._each(lambda host: host.asked(host.backend.probe()))
        for error in failed.values():
            raise error
        reports = list(found.values())
        return IsolationReport(
            missing=tuple(sorted({each for report in reports for each in report.missing})),
            own_user=all(report.own_user for report in reports),
            memory=_worst([report.memory for report in reports], "unlimited"),
            processes=_worst([report.processes for report in reports], "user"),
            processors=_worst([report.processors for report in reports], "nice"),
            disk=_worst([report.disk for report in reports], "file size"),
            landlock=all(report.landlock for report in reports),
        )

    async def close(self) -> None:
        """End this event loop's connections; sandboxes go on."""
        await asyncio.gather(*(host.backend.close() for host in self._hosts.values()))

    # ---- hosts ----

    async def _chosen(self, lease: str) -> tuple[PoolHost, bool]:
        """The host of a lease, and whether it held the lease before; a new lease has its place reserved there."""
        # one at a time: two that choose at once would both take a last place
        async with self._choosing:
            _, failed = await self._each(PoolHost.look)
            within_reach = [host for host in self._hosts.values() if host not in failed]
            for host in within_reach:
                if host.holds(lease):
                    return host, True
            free = [host for host in within_reach if host.free > 0]
            if not free:
                raise _no_host(within_reach, failed)
            host = max(free, key=lambda host: _rank(lease, host))
            host.reserve(lease)
            return host, False

    def _use(self, lease: str, host: PoolHost) -> None:
        self._used[lease] = host
        while len(self._used) > MOST_USED:
            del self._used[next(iter(self._used))]

    def _named(self, lease: str, incarnation: str) -> PoolHost:
        """The host whose name an incarnation begins with. Raises SandboxLost where the pool lacks it."""
        name, slash, _ = incarnation.partition("/")
        if not slash or name not in self._hosts:
            raise SandboxLost(f"the sandbox of lease {lease} is on no host of this worker's pool")
        return self._hosts[name]

    async def _host_of(self, lease: str) -> PoolHost:
        """The host whose sandbox the rollout uses. Raises like `_hosts_of`, and SandboxUnavailable if unknown."""
        if (used := self._used.get(lease)) is not None:
            return used
        first, *others = await self._hosts_of(lease)
        if others:
            names = " and ".join(host.name for host in (first, *others))
            raise SandboxUnavailable(f"hosts {names} each hold a sandbox of lease {lease}")
        return first

    async def _hosts_of(self, lease: str) -> list[PoolHost]:
        """The hosts that hold a sandbox of the lease: several, where one was out of reach when it was made again.

        Raises SandboxLost where none holds it, and SandboxUnavailable where one that may can't be asked.
        """
        if found := self._holders(lease):
            return found
        _, failed = await self._each(PoolHost.leases)
        if found := self._holders(lease):
            return found
        for error in failed.values():
            # it may hold the lease; one that has to be mended counts as without it
            if isinstance(error, SandboxUnavailable):
                raise error
        raise SandboxLost(f"no host of this worker's pool has a sandbox of lease {lease}")

    def _holders(self, lease: str) -> list[PoolHost]:
        return [host for host in self._hosts.values() if host.holds(lease)]

    async def _each(
        self, ask: Callable[[PoolHost], Awaitable[T]]
    ) -> tuple[dict[PoolHost, T], dict[PoolHost, ClothoError]]:
        """The answers of all hosts, and the errors of those that can't be asked."""
        hosts = list(self._hosts.values())
        answers = await asyncio.gather(*(ask(host) for host in hosts), return_exceptions=True)
        found: dict[PoolHost, T] = {}
        failed: dict[PoolHost, ClothoError] = {}
        for host, answer in zip(hosts, answers, strict=True):
            match answer:
                case InvalidInput() | SandboxUnavailable() | SandboxLost():
                    failed[host] = answer
                case BaseException():
                    raise answer
                case _:
                    found[host] = answer
        return found, failed


def _rank(lease: str, host: PoolHost) -> bytes:
    return hashlib.sha256(f"{lease}\0{host.name}".encode()).digest()


def _no_host(full: Sequence[PoolHost], failed: Mapping[PoolHost, ClothoError]) -> ClothoError:
    """InvalidInput where every host has to be mended first; else an outage, which ends."""
    said = [f"host {host.name} has its {host.settings.capacity} sandboxes" for host in full]
    said += [str(error) for error in failed.values()]
    if not full and all(isinstance(error, InvalidInput) for error in failed.values()):
        return InvalidInput("; ".join(said))
    return SandboxUnavailable("; ".join(said))


def _worst(found: Sequence[T], worst: T) -> T:
    return worst if worst in found else found[0]

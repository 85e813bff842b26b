"""A backend whose sandboxes are in folders of this host: its leases, which are found again from files alone.

Whether a sandbox lives is told by the lock that its supervisor holds, never by a process id. A lock on its folder
serialises making and ending it, across processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from clotho.errors import SandboxLost
from clotho.sandbox.backend import Labels, LeaseRecord
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.reaper import going_on
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.folders import Record, SupervisedFolder
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.verifying import check_hidden, seal
from clotho.sandbox.threads import with_host, with_leases, with_sandbox
from clotho.sandbox.verification import USUAL, VerifierSetup

Folder = TypeVar("Folder", bound=SupervisedFolder[Any])


class HostedBackend(ABC, Generic[Folder, Record]):
    """Everything of a SandboxBackend but making a sandbox, and a verifier's instance of it."""

    def __init__(self, root: Path, folder: type[Folder]) -> None:
        self._root = root.absolute()
        self._kind = folder

    async def attach(self, lease: str, incarnation: str, labels: Labels | None = None) -> SupervisedSandbox:
        return await with_sandbox(lease, self._attach, lease, incarnation, labels)

    async def open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None = None,
        setup: VerifierSetup = USUAL,
    ) -> SupervisedSandbox:
        """`hidden_files` maps paths under their folder to contents. An epoch that is over is SandboxLost."""
        return await with_sandbox(lease, self._open_verifier, lease, epoch, hidden_files, labels, setup)

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SupervisedSandbox:
        return await with_sandbox(lease, self._verify_in_place, lease, incarnation, labels, setup)

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await with_sandbox(lease, self._destroy, self._folder(lease), labels)

    async def renew(self, lease: str, seconds: float) -> None:
        """Renews all instances of the lease, a verifier's too."""
        await with_leases(lease, self._renew, lease, seconds)

    async def leases(self) -> Sequence[LeaseRecord]:
        return await with_leases(str(self._root), self._leases)

    async def reap(self) -> Sequence[str]:
        """Destroy sandboxes past their lease and grace, and unfinished ones; returns the names of their folders."""
        return await with_host(self._reap)

    async def expired(self) -> Sequence[str]:
        """The names of the folders that `reap` would destroy."""
        return await with_host(self._expired)

    async def probe(self) -> IsolationReport:
        """The isolation and bounds of this host."""
        return await with_host(self._probe)

    # ---- what each backend does its own way, blocking ----

    @abstractmethod
    def _instance(
        self,
        folder: Folder,
        record: Record,
        control: ControlDirectory,
        incarnation: str,
        private: Path | None = None,
    ) -> SupervisedSandbox:
        """A living instance: the agent's, or a verifier's, with its private folder."""

    def _agents_sealed(
        self, folder: Folder, record: Record, setup: VerifierSetup
    ) -> SupervisedSandbox | None:
        """The agent's instance to read its files in, its processes having ended; None where that can't be."""

    @abstractmethod
    def _make_verifier(
        self,
        folder: Folder,
        record: Record,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        """Start the instance of an epoch, the agent's processes having ended; superseded ones are ended."""

    @abstractmethod
    def _verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None, setup: VerifierSetup
    ) -> SupervisedSandbox: ...

    @abstractmethod
    def _end(self, folder: Folder) -> None:
        """End every instance; nothing is left of the sandbox."""

    @abstractmethod
    def _probe(self) -> IsolationReport: ...

    # ---- the same for all, blocking ----

    def _folder(self, lease: str) -> Folder:
        return self._kind.of_lease(self._root, lease)

    def _folders(self) -> list[Folder]:
        return self._kind.all_in(self._root)

    def _recorded(self, folder: Folder) -> Record | None:
        """The record of a sandbox, whose files can be reached from then on."""
        record: Record | None = folder.read_record()
        return record

    def _record_of(self, folder: Folder, lease: str) -> Record:
        record = self._recorded(folder)
        if record is None:
            raise SandboxLost(f"no sandbox of lease {lease} on this host")
        return record

    @contextmanager
    def _locked(self, folder: Folder) -> Iterator[None]:
        with folder.locked():
            yield

    def _found(
        self, folder: Folder, labels: Labels | None, restore: Restore | None
    ) -> SupervisedSandbox | None:
        """The sandbox, where it lives and was made from the same checkpoint."""
        record = self._recorded(folder)
        if record is None or not record.lease:
            return None
        record = folder.labelled(record, labels)
        control = record.control_at(folder.control())
        incarnation = control.incarnation()
        if incarnation is None or record.restored != digest_of(restore):
            return None
        return self._instance(folder, record, control, incarnation)

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        if labels not in (None, record.labels):
            with self._locked(folder):
                record = folder.labelled(self._record_of(folder, lease), labels)
        control = record.control_at(folder.control())
        if control.incarnation() != incarnation:
            raise SandboxLost(f"the sandbox of lease {lease} has ended")
        return self._instance(folder, record, control, incarnation)

    def _open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        folder = self._folder(lease)
        with self._locked(folder):
            record = folder.labelled(self._record_of(folder, lease), labels)
            control = record.control_at(folder.verifier_control(epoch))
            newest = max(folder.verifier_epochs(), default=-1)
            if newest == epoch and control.was_started():
                incarnation = control.incarnation()
                if incarnation is None:
                    raise SandboxLost(f"the verifier of lease {lease}, epoch {epoch}, has ended")
                return self._instance(folder, record, control, incarnation, folder.private(epoch))
            if newest > epoch:
                raise SandboxLost(f"verification of lease {lease} has gone on to epoch {newest}")
            check_hidden(hidden_files, placed=True)
            seal(record.control_at(folder.control()))
            if setup.only_reads and (agents := self._agents_sealed(folder, record, setup)) is not None:
                return agents
            return self._make_verifier(folder, record, epoch, hidden_files, setup)

    def _destroy(self, folder: Folder, labels: Labels | None) -> None:
        with self._locked(folder):
            record = folder.read_record() if labels else None
            if labels is None or record is None or labels.same_namespace(record.labels):
                self._end(folder)

    def _renew(self, lease: str, seconds: float) -> None:
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        agent, *verifiers = map(record.control_at, folder.control_directories())
        try:
            agent.renew(seconds)
        finally:  # a verifier goes on without the agent's, and the agent's without one that has just ended
            for verifier in verifiers:
                with suppress(SandboxLost):
                    verifier.renew(seconds)

    def _leases(self) -> Sequence[LeaseRecord]:
        found = ((folder, folder.readable_record()) for folder in self._folders())
        return tuple(
            LeaseRecord(lease=record.lease, labels=record.labels, expires=folder.expiry())
            for folder, record in found
            if record is not None and record.lease
        )

    def _expired(self) -> Sequence[str]:
        return [folder.name for folder in self._folders() if folder.is_left()]

    def _reap(self) -> Sequence[str]:
        return [folder.name for folder in self._folders() if self._reaped(folder)]

    def _reaped(self, folder: Folder) -> bool:
        """Reap a sandbox unless another process is making or ending it: the next pass looks again."""
        if not folder.is_left():
            return False
        with folder.locked(wait=False) as held:
            if not held or not folder.is_left():
                return False
            with going_on(f"sandbox {folder.name} not reaped"):
                self._end(folder)
                return True
            return False


def digest_of(restore: Restore | None) -> str | None:
    """The digest of the checkpoint that a sandbox is made from, for its record."""
    return None if restore is None else restore.checkpoint.digest

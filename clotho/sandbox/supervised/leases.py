"""Leases of supervised sandboxes: each has a folder on this host with its record, from which it is found again.

Its supervisor's lock tells whether a sandbox lives; a process id never does. Another lock, on its folder, lets one
process at a time make or end it.
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
from clotho.sandbox.supervised import launch
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.folders import HostedRecord, LeaseFolder, Record, SupervisedFolder
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.verifying import check_hidden, seal
from clotho.sandbox.threads import with_host, with_leases, with_sandbox
from clotho.sandbox.verification import USUAL, VerifierSetup

Folder = TypeVar("Folder", bound=LeaseFolder[Any])
HostedFolder = TypeVar("HostedFolder", bound=SupervisedFolder[Any])


class LeasedBackend(ABC, Generic[Folder, Record]):
    """A SandboxBackend, in which subclasses create sandboxes and the instances of verifiers."""

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
        """`hidden_files` maps paths in their folder to contents. Raises SandboxLost for an epoch that is over."""
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

    def holds(self, lease: str) -> bool:
        """Whether there is, or was a moment ago, a sandbox of this lease here."""
        return self._folder(lease).files.exists()

    # ---- what each backend does its own way, blocking ----

    @abstractmethod
    def _agent(self, folder: Folder, record: Record) -> Control:
        """The control directory of the agent's instance."""

    @abstractmethod
    def _verifiers(self, folder: Folder, record: Record) -> Mapping[int, Control]:
        """The control directories of verifiers' instances, by epoch."""

    @abstractmethod
    def _instance(
        self, folder: Folder, record: Record, control: Control, incarnation: str, epoch: int | None = None
    ) -> SupervisedSandbox:
        """A living instance: the agent's, or the verifier's of an epoch."""

    @abstractmethod
    def _in_place(
        self, folder: Folder, record: Record, control: Control, incarnation: str, setup: VerifierSetup
    ) -> SupervisedSandbox:
        """The agent's own instance, as a verifier is to see it."""

    def _agents_sealed(
        self, folder: Folder, record: Record, setup: VerifierSetup
    ) -> SupervisedSandbox | None:
        """The agent's sealed instance, for reading its files; None where it can't be used so."""

    @abstractmethod
    def _make_verifier(
        self,
        folder: Folder,
        record: Record,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        """Start an epoch's instance and end superseded ones. The agent's processes have ended before."""

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
        """The sandbox, if it lives and was made from the same checkpoint."""
        record = self._recorded(folder)
        if record is None or not record.lease:
            return None
        record = folder.labelled(record, labels)
        control = self._agent(folder, record)
        incarnation = control.incarnation()
        if incarnation is None or record.restored != digest_of(restore):
            return None
        return self._instance(folder, record, control, incarnation)

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        # Only a change takes the lock: attaching is on the way of every call, and a lock is shared by some
        # sandboxes.
        if labels not in (None, record.labels):
            with self._locked(folder):
                record = folder.labelled(self._record_of(folder, lease), labels)
        control = self._agent(folder, record)
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
            verifiers = self._verifiers(folder, record)
            newest = max(verifiers, default=-1)
            # An earlier attempt of the same epoch started it: its commands go on under their keys.
            if newest == epoch and verifiers[epoch].was_started():
                incarnation = verifiers[epoch].incarnation()
                if incarnation is None:
                    raise SandboxLost(f"the verifier of lease {lease}, epoch {epoch}, has ended")
                return self._instance(folder, record, verifiers[epoch], incarnation, epoch)
            if newest > epoch:
                raise SandboxLost(f"verification of lease {lease} has gone on to epoch {newest}")
            # while the agent's processes still run: a refused request ends nothing
            check_hidden(hidden_files, placed=True)
            # Before the verifier exists: a process of the agent's that outlived this could change what is
            # verified.
            seal(self._agent(folder, record))
            if setup.only_reads and (agents := self._agents_sealed(folder, record, setup)) is not None:
                return agents
            return self._make_verifier(folder, record, epoch, hidden_files, setup)

    def _verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None, setup: VerifierSetup
    ) -> SupervisedSandbox:
        control = self._attach(lease, incarnation, labels).control
        folder = self._folder(lease)
        return self._in_place(folder, self._record_of(folder, lease), control, incarnation, setup)

    def _destroy(self, folder: Folder, labels: Labels | None) -> None:
        with self._locked(folder):
            record = folder.read_record() if labels else None
            if labels is None or record is None or labels.same_namespace(record.labels):
                self._end(folder)

    def _renew(self, lease: str, seconds: float) -> None:
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        # without the lock: whoever makes a verifier holds it for longer than a renewal may wait
        try:
            self._agent(folder, record).renew(seconds)
        finally:  # a verifier goes on without the agent's, and the agent's without one that has just ended
            for verifier in self._verifiers(folder, record).values():
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
            # Looked at again with the lock held: meanwhile its maker may have finished it, or somebody
            # renewed it.
            if not held or not folder.is_left():
                return False
            with going_on(f"sandbox {folder.name} not reaped"):
                self._end(folder)
                return True
            return False


class HostedBackend(LeasedBackend[HostedFolder, HostedRecord]):
    """A backend whose supervisors run on this host: the lock that one holds tells that it lives."""

    def _agent(self, folder: HostedFolder, record: HostedRecord) -> ControlDirectory:
        return record.control_at(folder.control())

    def _verifiers(self, folder: HostedFolder, record: HostedRecord) -> Mapping[int, ControlDirectory]:
        return {
            epoch: record.control_at(folder.verifier_control(epoch)) for epoch in folder.verifier_epochs()
        }

    def _end_verifiers(self, folder: HostedFolder, wanted: int) -> None:
        """End superseded verifiers, and remove what an earlier attempt left of the wanted one.

        No caller has got that one, even if its supervisor has started by now.
        """
        for epoch in folder.verifier_epochs():
            control = ControlDirectory(folder.verifier_control(epoch), None)
            self._end_verifier(folder, epoch, control)
            # those that ran stay: by them an attempt of an earlier epoch learns that it is over
            if epoch == wanted or not control.was_started():
                control.delete()

    def _end_verifier(self, folder: HostedFolder, epoch: int, control: ControlDirectory) -> None:
        launch.end(control)


def digest_of(restore: Restore | None) -> str | None:
    """The digest of the checkpoint that a sandbox is made from, for its record."""
    return None if restore is None else restore.checkpoint.digest

"""Sandboxes on this host: a supervisor in an isolated view, found again by lease, from files alone.

A sandbox outlives the worker that made it. Whether it lives is told by the lock its supervisor holds, never by a
process id. Making and ending one is serialised by a lock on its folder, across processes.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from clotho.errors import SandboxLost, SandboxUnavailable
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.local import roots
from clotho.sandbox.local.bubblewrap import View
from clotho.sandbox.local.folders import SandboxFolder, SandboxRecord
from clotho.sandbox.local.host import LocalHost
from clotho.sandbox.local.isolation import system_fingerprint
from clotho.sandbox.local.lease_state import expiry, is_left, labelled
from clotho.sandbox.local.users import RANGE, UserRegistry
from clotho.sandbox.scratch import reap_scratch
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.verifying import check_hidden, exports_of, seal, stage_start
from clotho.sandbox.threads import with_host, with_leases, with_sandbox
from clotho.sandbox.verification import USUAL, VerifierSetup

REGISTRY = Path("/run/clotho/users")

log = logging.getLogger("clotho")


class LocalBackend:
    """`root` must be a folder that any user of the host may pass through, on a disk of this host."""

    def __init__(
        self,
        root: Path,
        *,
        registry: Path = REGISTRY,
        users: range = RANGE,
        bubblewrap: str = "bwrap",
        disk_budget_mb: int | None = None,
    ) -> None:
        self._root = root.absolute()
        self._prepared: tuple[object, ...] = ()
        registry_of_users = UserRegistry(registry, users)
        self._host = LocalHost(self._root, registry_of_users, shutil.which(bubblewrap), disk_budget_mb)

    @property
    def names(self) -> tuple[str, ...]:
        return ("local",)

    async def system(self, lease: str) -> str:
        return await with_host(system_fingerprint)

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SupervisedSandbox:
        """Raises IsolationUnavailable, JournalCorrupt for a damaged blob, InvalidInput for another's lease."""
        return await with_sandbox(lease, self._create, lease, spec, labels, restore, private)

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
        return await with_host(lambda: [folder.name for folder in self._folders() if is_left(folder)])

    async def probe(self) -> IsolationReport:
        """The isolation and bounds of this host; tried once."""
        return await with_host(self._probe)

    # ---- the same, blocking ----

    def _create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None,
        restore: Restore | None,
        private: Sequence[Path],
    ) -> SupervisedSandbox:
        folder = self._folder(lease)
        with self._locked(folder):
            record = self._found(folder)
            if record is not None:
                record = labelled(folder, record, labels)
                control = record.control_at(folder.control())
                incarnation = control.incarnation()
                if incarnation is not None and record.restored == _digest(restore):
                    return self._instance(View(folder, record.spec), record, control, incarnation)
            self._host.end(folder)
            self._host.require_private(private, spec)
            return self._make(folder, lease, spec, labels, restore)

    def _make(
        self,
        folder: SandboxFolder,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None,
        restore: Restore | None,
    ) -> SupervisedSandbox:
        record = self._host.make(folder, lease, spec, labels)
        instance = self._start(View(folder, spec), record, record.control_at(folder.control()))
        if restore is not None:
            try:
                instance.restore(restore)
            except BaseException:
                self._host.end(folder)
                raise
            record = record.model_copy(update={"restored": _digest(restore)})
        folder.write_record(record)  # from here on it can be found: whole
        return instance

    def _start(
        self,
        view: View,
        record: SandboxRecord,
        control: ControlDirectory,
        agent: ControlDirectory | None = None,
    ) -> SupervisedSandbox:
        control.create()
        if agent is not None:
            _stage_start(view, record, control, agent)
        control.set_deadline(record.spec.lease_seconds)
        incarnation = self._host.start(view, record, control)
        return self._instance(view, record, control, incarnation)

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        if labels not in (None, record.labels):
            with self._locked(folder):
                record = labelled(folder, self._record_of(folder, lease), labels)
        control = record.control_at(folder.control())
        if control.incarnation() != incarnation:
            raise SandboxLost(f"the sandbox of lease {lease} has ended")
        return self._instance(View(folder, record.spec), record, control, incarnation)

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
            record = self._record_of(folder, lease)
            if labels is not None:
                record = labelled(folder, record, labels)
            control = record.control_at(folder.verifier_control(epoch))
            newest = max(folder.verifier_epochs(), default=-1)
            if newest == epoch and control.was_started():
                incarnation = control.incarnation()
                if incarnation is None:
                    raise SandboxLost(f"the verifier of lease {lease}, epoch {epoch}, has ended")
                return self._instance(
                    View(folder, record.spec, folder.private(epoch)), record, control, incarnation
                )
            if newest > epoch:
                raise SandboxLost(f"verification of lease {lease} has gone on to epoch {newest}")
            check_hidden(hidden_files)
            agent = record.control_at(folder.control())
            seal(agent)
            self._host.end_verifiers(folder)
            private = self._host.make_verifier(folder, record, epoch, hidden_files)
            view = View(folder, record.spec, private, setup)
            return self._start(view, record, control, agent)

    def _verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None, setup: VerifierSetup
    ) -> SupervisedSandbox:
        control = self._attach(lease, incarnation, labels).control
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        view = View(folder, record.spec, setup=setup)
        self._host.make_room(folder, record)
        _stage_start(view, record, control, control, exports_of(view.environment(record.isolated)))
        layout = view.layout(record.isolated, verifying=True)
        return SupervisedSandbox(control, incarnation, layout, self._host.bounds(folder, record))

    def _destroy(self, folder: SandboxFolder, labels: Labels | None) -> None:
        with self._locked(folder):
            record = folder.read_record()
            if labels is None or record is None or labels.same_namespace(record.labels):
                self._host.end(folder)

    def _leases(self) -> Sequence[LeaseRecord]:
        found = ((folder, folder.read_record()) for folder in self._folders())
        return tuple(
            LeaseRecord(lease=record.lease, labels=record.labels, expires=expiry(folder))
            for folder, record in found
            if record is not None
        )

    def _renew(self, lease: str, seconds: float) -> None:
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        agent, *verifiers = (record.control_at(path) for path in folder.instances())
        for verifier in verifiers:
            if verifier.incarnation() is not None:
                verifier.renew(seconds)
        agent.renew(seconds)

    def _reap(self) -> Sequence[str]:
        reap_scratch()
        return [folder.name for folder in self._folders() if is_left(folder) and self._reaped(folder)]

    def _reaped(self, folder: SandboxFolder) -> bool:
        """Reap a sandbox unless another process is making or ending it: the next pass looks again."""
        with folder.locked(wait=False) as held:
            if not held or not is_left(folder):
                return False
            try:
                self._host.end(folder)
            except SandboxUnavailable as error:  # the others can be reaped all the same
                log.warning("sandbox %s not reaped: %s", folder.name, error)
                return False
            return True

    def _probe(self) -> IsolationReport:
        self._prepare_root()
        return self._host.report()

    def _instance(
        self, view: View, record: SandboxRecord, control: ControlDirectory, incarnation: str
    ) -> SupervisedSandbox:
        bounds = self._host.bounds(view.folder, record)
        return SupervisedSandbox(control, incarnation, view.layout(record.isolated), bounds)

    # ---- folders ----

    def _found(self, folder: SandboxFolder) -> SandboxRecord | None:
        record = folder.read_record()
        if record is not None:
            self._host.mount(folder, record)
        return record

    def _record_of(self, folder: SandboxFolder, lease: str) -> SandboxRecord:
        record = self._found(folder)
        if record is None:
            raise SandboxLost(f"no sandbox of lease {lease} on this host")
        return record

    def _folder(self, lease: str) -> SandboxFolder:
        return SandboxFolder.of_lease(self._root, lease)

    def _folders(self) -> list[SandboxFolder]:
        return [SandboxFolder(self._root, path.name) for path in self._root.glob("sandboxes/*")]

    def _prepare_root(self) -> None:
        if self._prepared != roots.state(self._root):
            roots.prepare(self._root)
            self._prepared = roots.state(self._root)

    @contextmanager
    def _locked(self, folder: SandboxFolder) -> Iterator[None]:
        self._prepare_root()
        with folder.locked():
            yield


def _digest(restore: Restore | None) -> str | None:
    return None if restore is None else restore.checkpoint.digest


def _stage_start(
    view: View, record: SandboxRecord, control: Control, agent: Control, exports: str = ""
) -> None:
    if view.setup is not None:
        directory, workspace = view.directory(record.isolated), view.layout(record.isolated).workspace
        stage_start(view.setup, directory, workspace, control, agent, exports)

"""Sandboxes on this host: a supervisor in an isolated view, found again by lease, from files alone.

A sandbox outlives the worker that made it.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.local import roots
from clotho.sandbox.local.bubblewrap import View
from clotho.sandbox.local.folders import SandboxFolder, SandboxRecord
from clotho.sandbox.local.host import LocalHost
from clotho.sandbox.local.isolation import system_fingerprint
from clotho.sandbox.local.users import RANGE, UserRegistry
from clotho.sandbox.scratch import reap_scratch
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.leases import HostedBackend, digest_of
from clotho.sandbox.supervised.verifying import exports_of, stage_start
from clotho.sandbox.threads import with_host, with_sandbox
from clotho.sandbox.verification import VerifierSetup

# one for all stores of the host, since users are the machine's; in /run, since no process outlives a boot
REGISTRY = Path("/run/clotho/users")


class LocalBackend(HostedBackend[SandboxFolder, SandboxRecord]):
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
        super().__init__(root, SandboxFolder)
        self._prepared: tuple[object, ...] = ()
        registry_of_users = UserRegistry(registry, users)
        self._host = LocalHost(self._root, registry_of_users, shutil.which(bubblewrap), disk_budget_mb)

    def _view(
        self,
        folder: SandboxFolder,
        spec: SandboxSpec,
        private: Path | None = None,
        setup: VerifierSetup | None = None,
    ) -> View:
        return View(folder, spec, private, setup)

    @property
    def names(self) -> tuple[str, ...]:
        return ("local",)

    async def system(self, lease: str) -> str:
        return await with_host(system_fingerprint)

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        return await with_sandbox(lease, self._evidence, lease)

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

    # ---- blocking ----

    def _evidence(self, lease: str) -> frozenset[Evidence]:
        """Commands of an isolated sandbox can't signal its supervisor, which is PID 1 of their namespace."""
        folder = self._folder(lease)
        record = self._record_of(folder, lease)
        counted = self._host.bounds(folder, record).counts_memory
        told = {Evidence.MEMORY: counted, Evidence.SIGNALS: record.isolated}
        return frozenset(way for way, is_told in told.items() if is_told)

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
            found = self._found(folder, labels, restore)
            if found is not None:
                return found
            # Of an attempt that died before it wrote the record, or of a supervisor that has ended: without this,
            # its user, disk and groups would be taken for those of the new one.
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
        instance = self._start(self._view(folder, spec), record, record.control_at(folder.control()))
        if restore is not None:
            try:
                instance.restore(restore)
            except BaseException:
                self._host.end(folder)
                raise
            record = record.model_copy(update={"restored": digest_of(restore)})
        # after the restore: the checkpoint of a full disk needs all of the new disk
        self._host.reserve(folder, record)
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
        # Before the supervisor starts: should this worker die between the two, the next reaper finds an
        # expired lease.
        control.set_deadline(record.spec.lease_seconds)
        incarnation = self._host.start(view, record, control)
        return self._instance_in(view, record, control, incarnation)

    def _make_verifier(
        self,
        folder: SandboxFolder,
        record: SandboxRecord,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        layout = self._view(folder, record.spec).layout(record.isolated)
        for name, content in hidden_files.items():
            # latin-1 decodes any bytes: a hidden file needn't be text
            layout.require_seen(content.decode("latin-1"), f"hidden file {name}")
        self._end_verifiers(folder, epoch)
        private = self._host.make_verifier(folder, record, epoch, hidden_files)
        view = self._view(folder, record.spec, private, setup)
        control = record.control_at(folder.verifier_control(epoch))
        return self._start(view, record, control, self._agent(folder, record))

    def _agents_sealed(
        self, folder: SandboxFolder, record: SandboxRecord, setup: VerifierSetup
    ) -> SupervisedSandbox | None:
        control = record.control_at(folder.control())
        incarnation = control.incarnation()
        if incarnation is None or setup.directory.startswith("$"):  # a folder that it doesn't see
            return None
        return self._in_place(folder, record, control, incarnation, setup)

    def _in_place(
        self,
        folder: SandboxFolder,
        record: SandboxRecord,
        control: Control,
        incarnation: str,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        view = self._view(folder, record.spec, setup=setup)
        self._host.make_room(folder, record)
        # this instance was started with the agent's variables: the verifier's come as exports of a shell before
        _stage_start(view, record, control, control, exports_of(view.environment(record.isolated)))
        layout = view.layout(record.isolated, verifying=True)
        return SupervisedSandbox(control, incarnation, layout, self._host.bounds(folder, record))

    def _end(self, folder: SandboxFolder) -> None:
        self._host.end(folder)

    def _reap(self) -> Sequence[str]:
        reap_scratch()
        return super()._reap()

    def _probe(self) -> IsolationReport:
        self._prepare_root()
        return self._host.report()

    def _instance(
        self,
        folder: SandboxFolder,
        record: SandboxRecord,
        control: Control,
        incarnation: str,
        epoch: int | None = None,
    ) -> SupervisedSandbox:
        private = None if epoch is None else folder.private(epoch)
        return self._instance_in(self._view(folder, record.spec, private), record, control, incarnation)

    def _instance_in(
        self, view: View, record: SandboxRecord, control: Control, incarnation: str
    ) -> SupervisedSandbox:
        bounds = self._host.bounds(view.folder, record)
        return SupervisedSandbox(control, incarnation, view.layout(record.isolated), bounds)

    # ---- folders ----

    def _recorded(self, folder: SandboxFolder) -> SandboxRecord | None:
        record = super()._recorded(folder)
        if record is not None:
            # before its lock is looked at: an unmounted control directory looks like that of a dead sandbox
            self._host.mount(folder, record)
        return record

    def _prepare_root(self) -> None:
        if self._prepared != roots.state(self._root):
            roots.prepare(self._root)
            # read again: `prepare` changes the modes that are part of it
            self._prepared = roots.state(self._root)

    @contextmanager
    def _locked(self, folder: SandboxFolder) -> Iterator[None]:
        self._prepare_root()
        with super()._locked(folder):
            yield


def _stage_start(
    view: View, record: SandboxRecord, control: Control, agent: Control, exports: str = ""
) -> None:
    if view.setup is not None:
        directory, workspace = view.directory(record.isolated), view.layout(record.isolated).workspace
        stage_start(view.setup, directory, workspace, control, agent, exports)

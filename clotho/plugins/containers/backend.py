"""Sandboxes in containers: a supervisor as PID 1 of each, found again by lease, from files and names alone.

The workspace, the home, /tmp and writable roots are folders of the lease's own on this host, mounted into the
container; the rest is the image's own file system, which commands may change too unless it is `read_only`. A
verifier gets a container of its own over the same folders, made from the agent's container as the agent left it (a
commit, where anything outside of the folders has changed) or, with `verify_in: image`, from the image. Another
instance in the agent's container would be cheaper, and would share its processes and its memory; in a container
that is made afterwards the agent can't have prepared anything but files.

The lock that a supervisor holds tells that its sandbox lives: no engine is asked to find, use or renew one.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxUnavailable
from clotho.plugins.containers.beginnings import Beginnings
from clotho.plugins.containers.commits import agents_instance
from clotho.plugins.containers.config import DockerConfig
from clotho.plugins.containers.engine import Engine, is_elsewhere
from clotho.plugins.containers.folders import ContainerFolder, ContainerRecord, members
from clotho.plugins.containers.host import ContainerHost, groups_of, make_folders
from clotho.plugins.containers.leftovers import reap_leftovers
from clotho.plugins.containers.pool import WarmPool
from clotho.plugins.containers.view import ContainerView, bounds_of, instance_of
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.config import BackendConfig
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.leases import HostedBackend, digest_of
from clotho.sandbox.supervised.verifying import exports_of, stage_start
from clotho.sandbox.threads import with_host, with_sandbox
from clotho.sandbox.verification import VerifierSetup

log = logging.getLogger("clotho")


class ContainerBackend(HostedBackend[ContainerFolder, ContainerRecord]):
    """Sandboxes below `root`, in containers of the engine at `address` (None: where it usually is).

    `warm` of each kind are made ahead, until `close`.
    """

    def __init__(self, root: Path, address: str | None = None, warm: int = 0) -> None:
        super().__init__(root, ContainerFolder)
        self._address = address
        self._engine = Engine(address)
        self._host = ContainerHost(self._root, self._engine)
        self._beginnings = Beginnings(self._root, self._host)
        self._pool = WarmPool(self._root, self._host, warm, self._make)

    @property
    def names(self) -> tuple[str, ...]:
        return ("docker",)

    async def system(self, lease: str) -> str:
        record = self._record_of(self._folder(lease), lease)
        return record.image if record.missing is None else f"{record.image} without {record.missing}"

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        """An engine removes the control groups of a container that has ended, and their counts with them."""
        return frozenset({Evidence.SIGNALS})

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SupervisedSandbox:
        """Commands see no path of this host: `private` ones neither. Raises InvalidInput for a missing image."""
        if not isinstance(spec.backend, DockerConfig):
            raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made in containers")
        if spec.limits == "required":
            raise IsolationUnavailable("the disk of a container can't be bounded (limits: required)")
        spec.require_mounts_here()  # an engine would make the folder
        # before the image is looked for: a sandbox that lives needs no engine and no registry
        if self.holds(lease):
            found = await with_sandbox(lease, self._find, lease, labels, restore)
            if found is not None:
                return found
        record, seed = await self._beginnings.of(lease, spec, spec.backend, labels)
        made = await with_sandbox(lease, self._create, record, seed, restore)
        self._pool.ask(record, seed)
        return made

    async def close(self) -> None:
        """End the containers that this process has made ahead."""
        await with_host(self._pool.close)

    def makes(self, config: BackendConfig) -> bool:
        """Whether containers of such sandboxes share files with this host, which this backend needs."""
        return isinstance(config, DockerConfig) and not (
            config.relay or config.runtime is not None or is_elsewhere(self._address)
        )

    # ---- blocking ----

    def _find(self, lease: str, labels: Labels | None, restore: Restore | None) -> SupervisedSandbox | None:
        folder = self._folder(lease)
        with self._locked(folder):
            return self._found(folder, labels, restore)

    def _create(
        self, record: ContainerRecord, seed: Restore | None, restore: Restore | None
    ) -> SupervisedSandbox:
        folder = self._folder(record.lease)
        with self._locked(folder):
            found = self._found(folder, record.labels, restore)
            if found is not None:
                return found
            # a member has the image's files, not a checkpoint's
            if restore is None and self._pool.claim(folder, record):
                # None where the member has just ended: then one is made as without a pool
                found = self._found(folder, record.labels, restore)
                if found is not None:
                    return found
            self._host.end(folder)  # one that is lost, or that an attempt before this one left unfinished
            return self._make(folder, self._with_system(record, restore), restore or seed, digest_of(restore))

    def _with_system(self, record: ContainerRecord, restore: Restore | None) -> ContainerRecord:
        """The record of a sandbox that begins from the image of a checkpoint, where the engine has it still."""
        if restore is None or restore.checkpoint.system is None:
            return record
        image = restore.checkpoint.system.image
        found = "kept" if self._engine.has_image(image) else "missing"
        return record.model_copy(update={found: image})

    def _make(
        self, folder: ContainerFolder, record: ContainerRecord, begin: Restore | None, restored: str | None
    ) -> SupervisedSandbox:
        make_folders(folder, record)
        control = record.control_at(folder.control())
        control.create()
        view = ContainerView(folder, record)
        try:
            incarnation = self._host.start(view, folder.container, record.begun_from, control)
            made = instance_of(view, control, incarnation)
            if begin is not None:
                made.restore(begin)
        except BaseException:
            self._host.end(folder)
            raise
        record = record.model_copy(update={"groups": groups_of(control), "restored": restored})
        folder.write_record(record)  # from here on it can be found: whole
        return agents_instance(self._host, ContainerView(folder, record), control, incarnation)

    def _instance(
        self,
        folder: ContainerFolder,
        record: ContainerRecord,
        control: Control,
        incarnation: str,
        epoch: int | None = None,
    ) -> SupervisedSandbox:
        private = None if epoch is None else folder.private(epoch)
        return agents_instance(self._host, ContainerView(folder, record, private), control, incarnation)

    def _make_verifier(
        self,
        folder: ContainerFolder,
        record: ContainerRecord,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        self._end_verifiers(folder, epoch)
        # after their containers: Docker keeps an image while a container of it runs
        self._host.remove_left_images(folder)
        image = self._host.left_by(ContainerView(folder, record), epoch)
        private = self._host.make_verifier(folder, record, epoch, hidden_files)
        view = ContainerView(folder, record, private, setup)
        control = record.control_at(folder.verifier_control(epoch))
        control.create()
        stage_start(setup, view.directory(), record.workdir, control, self._agent(folder, record))
        incarnation = self._host.start(view, folder.verifier_container(epoch), image, control)
        return instance_of(view, control, incarnation)

    def _end_verifier(self, folder: ContainerFolder, epoch: int, control: ControlDirectory) -> None:
        self._host.end_instance(folder.verifier_container(epoch), control)

    def _in_place(
        self,
        folder: ContainerFolder,
        record: ContainerRecord,
        control: Control,
        incarnation: str,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        view = ContainerView(folder, record, setup=setup)
        exports = exports_of(view.environment())
        stage_start(setup, view.directory(), record.workdir, control, control, exports)
        return SupervisedSandbox(control, incarnation, view.layout(verifying=True), bounds_of(view))

    def _end(self, folder: ContainerFolder) -> None:
        self._host.end(folder)

    def _reap(self) -> Sequence[str]:
        """Where there has never been a sandbox, the engine isn't asked: there may be none that works."""
        if not (self._root / "sandboxes").exists():
            return ()
        reaped = (*self._pool.reap(), *super()._reap())
        try:
            return (*reaped, *reap_leftovers(self._root, self._engine))
        except (InvalidInput, SandboxUnavailable) as error:  # its next look finds the same
            log.warning("containers not reaped: %s", error)
            return reaped

    def _expired(self) -> Sequence[str]:
        dead = [each.name for each in members(self._root) if self._pool.is_dead(each)]
        return (*dead, *super()._expired())

    def _probe(self) -> IsolationReport:
        info: Mapping[str, Any] = {}
        missing: tuple[str, ...] = ()
        try:
            info = self._engine.info()
        except (InvalidInput, SandboxUnavailable) as error:
            missing = (f"starts at all: {error}",)
        return IsolationReport(
            missing=missing,
            own_user=False,
            memory="cgroup" if info.get("MemoryLimit") else "unlimited",
            processes="cgroup" if info.get("PidsLimit") else "user",
            processors="cgroup",
            disk="file size",
        )

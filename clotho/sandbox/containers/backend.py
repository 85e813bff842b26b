"""Sandboxes in containers: a supervisor as PID 1 of each, found again by lease, from files and names alone.

The workspace, the home, /tmp and writable roots are folders of the lease's own on this host, mounted into the
container; the rest is the image's own file system, which commands may change too unless it is `read_only`. A
verifier gets a container of its own over the same folders, made from the agent's container as the agent left it (a
commit, where anything outside of the folders has changed) or, with `verify_in: image`, from the image. Another
instance in the agent's container would be cheaper, and would share its processes and its memory; in a container
that is made afterwards the agent can't have prepared anything but files.

Whether a sandbox lives is told by the lock its supervisor holds: to find, use or renew one, no engine is asked.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxLost, SandboxUnavailable
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.containers.beginnings import Beginnings
from clotho.sandbox.containers.config import DockerConfig
from clotho.sandbox.containers.engine import Engine
from clotho.sandbox.containers.folders import (
    ContainerFolder,
    ContainerRecord,
    expiry,
    folders,
    is_left,
    labelled,
    members,
    record_of,
)
from clotho.sandbox.containers.host import ContainerHost, groups_of, make_folders
from clotho.sandbox.containers.leftovers import reap_leftovers
from clotho.sandbox.containers.pool import WarmPool
from clotho.sandbox.containers.view import ContainerView, instance_of
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.verifying import check_hidden, exports_of, seal, stage_start
from clotho.sandbox.threads import with_host, with_leases, with_sandbox
from clotho.sandbox.verification import USUAL, VerifierSetup

log = logging.getLogger("clotho")


class ContainerBackend:
    """Sandboxes below `root`, in containers of the engine at `address` (None: where it usually is).

    `warm` of each kind are made ahead, until `close`.
    """

    def __init__(self, root: Path, address: str | None = None, warm: int = 0) -> None:
        self._root = root.absolute()
        self._engine = Engine(address)
        self._host = ContainerHost(self._root, self._engine)
        self._beginnings = Beginnings(self._root, self._host)
        self._pool = WarmPool(self._root, self._host, warm, self._make)

    @property
    def names(self) -> tuple[str, ...]:
        return ("docker",)

    async def system(self, lease: str) -> str:
        return record_of(ContainerFolder.of_lease(self._root, lease), lease).image

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
        if self.holds(lease):
            found = await with_sandbox(lease, self._find, lease, labels, restore)
            if found is not None:
                return found
        record, seed = await self._beginnings.of(lease, spec, spec.backend, labels)
        made = await with_sandbox(lease, self._create, record, seed, restore)
        self._pool.ask(record, seed)
        return made

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
        return await with_sandbox(lease, self._open_verifier, lease, epoch, hidden_files, labels, setup)

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SupervisedSandbox:
        return await with_sandbox(lease, self._verify_in_place, lease, incarnation, labels, setup)

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await with_sandbox(lease, self._destroy, ContainerFolder.of_lease(self._root, lease), labels)

    async def renew(self, lease: str, seconds: float) -> None:
        await with_leases(lease, self._renew, lease, seconds)

    async def leases(self) -> Sequence[LeaseRecord]:
        return await with_leases(str(self._root), self._leases)

    async def reap(self) -> Sequence[str]:
        """Also containers of this engine whose backend's folder is gone, and that have ended by themselves."""
        return await with_host(self._reap)

    async def expired(self) -> Sequence[str]:
        return await with_host(self._expired)

    async def probe(self) -> IsolationReport:
        return await with_host(self._probe)

    async def close(self) -> None:
        """End the containers that this process has made ahead."""
        await with_host(self._pool.close)

    def holds(self, lease: str) -> bool:
        """Whether there is, or was a moment ago, a sandbox of this lease here."""
        return ContainerFolder.of_lease(self._root, lease).files.exists()

    # ---- the same, blocking ----

    def _find(self, lease: str, labels: Labels | None, restore: Restore | None) -> SupervisedSandbox | None:
        folder = ContainerFolder.of_lease(self._root, lease)
        with folder.locked():
            return self._found(folder, labels, restore)

    def _found(
        self, folder: ContainerFolder, labels: Labels | None, restore: Restore | None
    ) -> SupervisedSandbox | None:
        """The sandbox, where it lives and was made from the same checkpoint."""
        found = folder.read_record()
        if found is None or not found.lease:
            return None
        found = labelled(folder, found, labels)
        control = found.control_at(folder.control())
        incarnation = control.incarnation()
        if incarnation is None or found.restored != _digest(restore):
            return None
        return instance_of(ContainerView(folder, found), control, incarnation)

    def _create(
        self, record: ContainerRecord, seed: Restore | None, restore: Restore | None
    ) -> SupervisedSandbox:
        folder = ContainerFolder.of_lease(self._root, record.lease)
        with folder.locked():
            found = self._found(folder, record.labels, restore)
            if found is not None:
                return found
            if restore is None and self._pool.claim(folder, record):
                found = self._found(folder, record.labels, restore)
                if found is not None:
                    return found
            self._host.end(folder)  # one that is lost, or that an attempt before this one left unfinished
            return self._make(folder, record, restore or seed, _digest(restore))

    def _make(
        self, folder: ContainerFolder, record: ContainerRecord, begin: Restore | None, restored: str | None
    ) -> SupervisedSandbox:
        make_folders(folder, record)
        control = record.control_at(folder.control())
        control.create()
        view = ContainerView(folder, record)
        try:
            incarnation = self._host.start(view, folder.container, record.image, control)
            made = instance_of(view, control, incarnation)
            if begin is not None:
                made.restore(begin)
        except BaseException:
            self._host.end(folder)
            raise
        record = record.model_copy(update={"groups": groups_of(control), "restored": restored})
        folder.write_record(record)  # from here on it can be found: whole
        return instance_of(ContainerView(folder, record), control, incarnation)

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = ContainerFolder.of_lease(self._root, lease)
        record = record_of(folder, lease)
        if labels not in (None, record.labels):
            with folder.locked():
                record = labelled(folder, record_of(folder, lease), labels)
        control = record.control_at(folder.control())
        if control.incarnation() != incarnation:
            raise SandboxLost(f"the sandbox of lease {lease} has ended")
        return instance_of(ContainerView(folder, record), control, incarnation)

    def _open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        folder = ContainerFolder.of_lease(self._root, lease)
        with folder.locked():
            record = labelled(folder, record_of(folder, lease), labels)
            control = record.control_at(folder.verifier_control(epoch))
            newest = max(folder.verifier_epochs(), default=-1)
            if newest == epoch and control.was_started():
                incarnation = control.incarnation()
                if incarnation is None:
                    raise SandboxLost(f"the verifier of lease {lease}, epoch {epoch}, has ended")
                return instance_of(ContainerView(folder, record, folder.private(epoch)), control, incarnation)
            if newest > epoch:
                raise SandboxLost(f"verification of lease {lease} has gone on to epoch {newest}")
            check_hidden(hidden_files)
            agent = record.control_at(folder.control())
            seal(agent)
            self._end_verifiers(folder)
            image = self._host.left_by(ContainerView(folder, record), epoch)
            private = self._host.make_verifier(folder, record, epoch, hidden_files)
            view = ContainerView(folder, record, private, setup)
            control.create()
            stage_start(setup, view.directory(), record.workdir, control, agent)
            return instance_of(
                view, control, self._host.start(view, folder.verifier_container(epoch), image, control)
            )

    def _end_verifiers(self, folder: ContainerFolder) -> None:
        """End superseded verifiers; one that was never started is removed, so that it can be started anew."""
        for epoch in folder.verifier_epochs():
            control = ControlDirectory(folder.verifier_control(epoch), None)
            self._host.end_instance(folder.verifier_container(epoch), control)
            if not control.was_started():
                control.delete()
        self._host.remove_left_images(folder)

    def _verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None, setup: VerifierSetup
    ) -> SupervisedSandbox:
        control = self._attach(lease, incarnation, labels).control
        folder = ContainerFolder.of_lease(self._root, lease)
        view = ContainerView(folder, record_of(folder, lease), setup=setup)
        exports = exports_of(view.environment())
        stage_start(setup, view.directory(), view.record.workdir, control, control, exports)
        bounds = Bounds(view.record.groups, view.record.spec.max_processes, None)
        return SupervisedSandbox(control, incarnation, view.layout(verifying=True), bounds)

    def _destroy(self, folder: ContainerFolder, labels: Labels | None) -> None:
        if not folder.files.exists():
            return
        with folder.locked():
            record = folder.read_record()
            if labels is None or record is None or labels.same_namespace(record.labels):
                self._host.end(folder)

    def _renew(self, lease: str, seconds: float) -> None:
        folder = ContainerFolder.of_lease(self._root, lease)
        record_of(folder, lease)
        agent, *verifiers = (ControlDirectory(path, None) for path in folder.instances().values())
        for verifier in verifiers:
            if verifier.incarnation() is not None:
                verifier.renew(seconds)
        agent.renew(seconds)

    def _leases(self) -> Sequence[LeaseRecord]:
        found = ((folder, folder.read_record()) for folder in folders(self._root))
        return tuple(
            LeaseRecord(lease=record.lease, labels=record.labels, expires=expiry(folder))
            for folder, record in found
            if record is not None and record.lease
        )

    def _reap(self) -> Sequence[str]:
        """No engine is asked where there has never been a sandbox: it may be none that works."""
        if not (self._root / "sandboxes").exists():
            return ()
        reaped = self._pool.reap()
        reaped += [folder.name for folder in folders(self._root) if self._reaped(folder)]
        try:
            return (*reaped, *reap_leftovers(self._root, self._engine))
        except InvalidInput as error:  # the settings have changed: what is in other sandboxes goes on
            log.warning("containers not reaped: %s", error)
            return reaped

    def _expired(self) -> Sequence[str]:
        dead = [each.name for each in members(self._root) if self._pool.is_dead(each)]
        return (*dead, *(each.name for each in folders(self._root) if is_left(each)))

    def _reaped(self, folder: ContainerFolder) -> bool:
        """Reap a sandbox unless another process is making or ending it: the next pass looks again."""
        if not is_left(folder):
            return False
        with folder.locked(wait=False) as held:
            if not held or not is_left(folder):
                return False
            try:
                self._host.end(folder)
            except (InvalidInput, SandboxUnavailable) as error:  # the others can be reaped all the same
                log.warning("sandbox %s not reaped: %s", folder.name, error)
                return False
            return True

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


def _digest(restore: Restore | None) -> str | None:
    return None if restore is None else restore.checkpoint.digest

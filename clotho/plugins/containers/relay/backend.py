"""Sandboxes on machines elsewhere, with nothing between them and the worker but streams.

A record in a folder of this host tells which machines a sandbox has; whether it lives, its supervisor tells through
a relay. A verifier gets a machine of its own: of the files that the agent's has, where the platform can keep them
as an image, and of its workspace, home, /tmp and writable roots over the image of the beginning elsewhere.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxLost
from clotho.plugins.containers.relay.instances import ENDS, MADE_BY_RELAY, OF_THE_BACKEND, Instances, drawn
from clotho.plugins.containers.relay.loop import IMAGE_SECONDS, blocking
from clotho.plugins.containers.relay.machine import Found, Machine
from clotho.plugins.containers.relay.records import RelayFolder, RelayRecord, placed, scope
from clotho.plugins.containers.relay.verifiers import Verifiers
from clotho.plugins.containers.relay.view import RelayView
from clotho.sandbox.backend import Labels, LeaseRecord, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.places import WORKSPACE
from clotho.sandbox.reaper import going_on
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.verifying import exports_of, stage_start
from clotho.sandbox.threads import with_host, with_leases, with_relay, with_sandbox
from clotho.sandbox.verification import USUAL, VerifierSetup

log = logging.getLogger("clotho")


class RelayedBackend:
    """Sandboxes on machines of one platform, with their records below `root`."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self._root = root.absolute()
        self._machine = machine
        self._instances = Instances(self._root, machine)
        self._verifiers = Verifiers(machine, self._instances)

    @property
    def names(self) -> tuple[str, ...]:
        return (self._machine.kind,)

    async def system(self, lease: str) -> str:
        return RelayFolder.of_lease(self._root, lease).record_of(lease).base.image

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        """A supervisor that begins beside the machine's own processes is another process to its commands."""
        return frozenset({Evidence.SIGNALS} if self._machine.starts_first else ())

    async def create(
        self,
        lease: str,
        spec: SandboxSpec,
        labels: Labels | None = None,
        restore: Restore | None = None,
        private: Sequence[Path] = (),
    ) -> SupervisedSandbox:
        """Commands see no path of this host: `private` ones neither."""
        return await with_sandbox(lease, self._create, lease, spec, labels, restore)

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
        folder = RelayFolder.of_lease(self._root, lease)
        return await with_sandbox(
            lease, self._verifiers.open, folder, lease, epoch, hidden_files, labels, setup
        )

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SupervisedSandbox:
        return await with_sandbox(lease, self._verify_in_place, lease, incarnation, labels, setup)

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await with_sandbox(lease, self._destroy, RelayFolder.of_lease(self._root, lease), labels)

    async def renew(self, lease: str, seconds: float) -> None:
        await with_relay(lease, self._renew, lease, seconds)

    async def leases(self) -> Sequence[LeaseRecord]:
        return await with_leases(str(self._root), self._leases)

    async def reap(self) -> Sequence[str]:
        """Also machines that have ended by themselves, and that no folder tells of."""
        return await with_host(self._reap)

    async def expired(self) -> Sequence[str]:
        return await with_host(lambda: [each.name for each in RelayFolder.all(self._root) if each.is_left()])

    async def probe(self) -> IsolationReport:
        return IsolationReport(
            missing=(),
            own_user=False,
            memory="cgroup",
            processes="cgroup",
            processors="cgroup",
            disk="file size",
        )

    async def close(self) -> None:
        """Close what this process has open; sandboxes go on."""
        await with_host(self._instances.close)

    def holds(self, lease: str) -> bool:
        """Whether there is, or was a moment ago, a sandbox of this lease here."""
        return RelayFolder.of_lease(self._root, lease).files.exists()

    # ---- the same, blocking ----

    def _create(
        self, lease: str, spec: SandboxSpec, labels: Labels | None, restore: Restore | None
    ) -> SupervisedSandbox:
        if spec.backend.kind != self._machine.kind:
            raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made by {self._machine.kind}")
        if spec.limits == "required":
            raise IsolationUnavailable("the disk of a machine elsewhere can't be bounded (limits: required)")
        folder = RelayFolder.of_lease(self._root, lease)
        with folder.locked():
            found = folder.read_record()
            if found is not None:
                found = folder.labelled(found, labels)
                incarnation = self._instances.control(folder, found.agent).incarnation()
                if incarnation is not None and found.restored == _digest(restore):
                    return self._instances.sandbox(folder, RelayView(found, found.agent), incarnation)
            if folder.files.exists():
                self._end(folder)
            base = blocking(self._machine.base(spec), IMAGE_SECONDS)
            folder.create()
            record = RelayRecord(
                lease=lease,
                labels=labels,
                spec=spec,
                base=base,
                workdir=placed(spec).workdir or base.workdir or WORKSPACE,
                agent=drawn(folder.machine),
                restored=_digest(restore),
            )
            view = RelayView(record, record.agent)
            try:
                incarnation = self._instances.start(folder, view, base)
                self._instances.make_folders(folder, view, InvalidInput, clear=restore is not None)
                made = self._instances.sandbox(folder, view, incarnation)
                if restore is not None:
                    made.restore(restore, self._instances.full)
            except BaseException:
                self._end(folder, record)
                raise
            folder.set_deadline(spec.lease_seconds)
            folder.write_record(record)  # from here on it can be found: whole
            return made

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = RelayFolder.of_lease(self._root, lease)
        record = folder.record_of(lease)
        if labels not in (None, record.labels):
            with folder.locked():
                record = folder.labelled(folder.record_of(lease), labels)
        if self._instances.control(folder, record.agent).incarnation() != incarnation:
            raise SandboxLost(f"the sandbox of lease {lease} has ended")
        return self._instances.sandbox(folder, RelayView(record, record.agent), incarnation)

    def _verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None, setup: VerifierSetup
    ) -> SupervisedSandbox:
        control = self._attach(lease, incarnation, labels).control
        folder = RelayFolder.of_lease(self._root, lease)
        record = folder.record_of(lease)
        view = RelayView(record, record.agent, setup)
        stage_start(setup, view.directory(), record.workdir, control, control, exports_of(view.environment()))
        return self._instances.sandbox(folder, view, incarnation)

    # ---- ends ----

    def _destroy(self, folder: RelayFolder, labels: Labels | None) -> None:
        if not folder.files.exists():
            return
        with folder.locked():
            record = folder.read_record() if labels else None
            if labels is None or record is None or labels.same_namespace(record.labels):
                self._end(folder)

    def _end(self, folder: RelayFolder, unfinished: RelayRecord | None = None) -> None:
        """Destroy every machine of the sandbox, and its record; one without a record was left unfinished."""
        record = unfinished or folder.readable_record()
        for instance in record.instances if record else ():
            self._instances.end(instance)
        if record is None:
            blocking(self._machine.destroy(folder.machine))
        folder.delete()

    def _renew(self, lease: str, seconds: float) -> None:
        folder = RelayFolder.of_lease(self._root, lease)
        record = folder.record_of(lease)
        try:
            self._instances.control(folder, record.agent).renew(seconds)
        finally:  # a verifier goes on without the agent's
            for verifier in record.verifiers.values():
                with suppress(SandboxLost):
                    self._instances.control(folder, verifier).renew(seconds)

    def _leases(self) -> Sequence[LeaseRecord]:
        found = ((folder, folder.readable_record()) for folder in RelayFolder.all(self._root))
        return tuple(
            LeaseRecord(lease=record.lease, labels=record.labels, expires=folder.expiry())
            for folder, record in found
            if record is not None
        )

    def _reap(self) -> Sequence[str]:
        """No platform is asked where there has never been a sandbox: it may be none that works."""
        if not (self._root / "sandboxes").exists():
            return ()
        self._instances.close_ended()
        reaped = [folder.name for folder in RelayFolder.all(self._root) if self._reaped(folder)]
        try:
            return (*reaped, *self._reap_without_folder())
        except InvalidInput as error:  # the settings have changed: what is in other sandboxes goes on
            log.warning("machines of %s not reaped: %s", self._machine.kind, error)
            return reaped

    def _reaped(self, folder: RelayFolder) -> bool:
        if not folder.is_left():
            return False
        with folder.locked(wait=False) as held:
            if not held or not folder.is_left():
                return False
            with going_on(f"sandbox {folder.name} not reaped"):
                self._end(folder)
                return True
            return False

    def _reap_without_folder(self) -> Sequence[str]:
        own = blocking(self._machine.list({OF_THE_BACKEND: scope(self._root)}))
        reaped = []
        for each in own:
            with going_on(f"machine {each.name} not destroyed"):
                if not each.running and self._destroyed(each.name):
                    reaped.append(each.name)
        if (remove := self._machine.remove_ended) is not None:
            left = sorted(self._left_by_others(), key=lambda each: each.name, reverse=True)  # verifiers first
            for each in left:
                with going_on(f"machine {each.name} not removed"):
                    if blocking(remove(each)):
                        reaped.append(each.name)
        return reaped

    def _left_by_others(self) -> Iterator[Found]:
        """Ended machines of backends that may be gone: each may be in use as long as its first lease could last."""
        for each in blocking(self._machine.list(MADE_BY_RELAY)):
            others = each.labels.get(OF_THE_BACKEND) != scope(self._root)
            with suppress(ValueError):  # a time that no backend writes, or none: it isn't known whose it is
                if others and not each.running and float(each.labels.get(ENDS, "")) < time.time():
                    yield each

    def _destroyed(self, machine: str) -> bool:
        """Destroy a machine unless a folder tells of it, or its sandbox is being made or ended."""
        folder = RelayFolder.of_machine(self._root, machine)
        with folder.locked(wait=False) as held:
            if not held or folder.files.exists():
                return False
            blocking(self._machine.destroy(machine))
            return True


def _digest(restore: Restore | None) -> str | None:
    return None if restore is None else restore.checkpoint.digest

"""Sandboxes on machines elsewhere, with nothing between them and the worker but streams.

A record in a folder of this host tells which machines a sandbox has; whether it lives, its supervisor tells through
a relay. A verifier gets a machine of its own: of the files that the agent's has, where the platform can keep them
as an image, and of its workspace, home, /tmp and writable roots over the image of the beginning elsewhere.
"""

import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from clotho.errors import InvalidInput, IsolationUnavailable, SandboxLost, SandboxUnavailable
from clotho.sandbox.backend import MAX_CHECKPOINT_BYTES, Labels, LeaseRecord, SandboxSpec
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.exhaustion import Bounds
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.places import WORKSPACE
from clotho.sandbox.relay.control import RelayedControl
from clotho.sandbox.relay.loop import blocking
from clotho.sandbox.relay.machine import Base, Machine
from clotho.sandbox.relay.reconnecting import Relay
from clotho.sandbox.relay.records import Instance, RelayFolder, RelayRecord, placed, scope
from clotho.sandbox.relay.view import RELAY, RelayView
from clotho.sandbox.scratch import scratch
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.folders import GRACE_SECONDS
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.verifying import check_hidden, exports_of, seal, stage_start
from clotho.sandbox.threads import with_host, with_sandbox
from clotho.sandbox.verification import USUAL, VerifierSetup

READY_SECONDS = 120.0
LIFETIME_SECONDS = 86_400.0
"""The longest life of a machine of a platform that can't be asked for more later."""
PACK_SECONDS = 600
OF_THE_BACKEND = "clotho.relayed"
"""The label that tells whose machine it is."""

log = logging.getLogger("clotho")


class RelayedBackend:
    """Sandboxes on machines of one platform, with their records below `root`."""

    def __init__(self, root: Path, machine: Machine) -> None:
        self._root = root.absolute()
        self._machine = machine
        self._controls: dict[str, RelayedControl] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return (self._machine.kind,)

    async def system(self, lease: str) -> str:
        return RelayFolder.of_lease(self._root, lease).record_of(lease).base.image

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
        return await with_sandbox(lease, self._open_verifier, lease, epoch, hidden_files, labels, setup)

    async def verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None = None, setup: VerifierSetup = USUAL
    ) -> SupervisedSandbox:
        return await with_sandbox(lease, self._verify_in_place, lease, incarnation, labels, setup)

    async def destroy(self, lease: str, labels: Labels | None = None) -> None:
        await with_sandbox(lease, self._destroy, RelayFolder.of_lease(self._root, lease), labels)

    async def renew(self, lease: str, seconds: float) -> None:
        await with_sandbox(lease, self._renew, lease, seconds)

    async def leases(self) -> Sequence[LeaseRecord]:
        return await with_host(self._leases)

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
                incarnation = self._control(folder, found.agent).incarnation()
                if incarnation is not None and found.restored == _digest(restore):
                    return self._instance(folder, RelayView(found, found.agent), incarnation)
            if folder.files.exists():
                self._end(folder)
            base = blocking(self._machine.base(spec))
            folder.create()
            record = RelayRecord(
                lease=lease,
                labels=labels,
                spec=spec,
                base=base,
                workdir=placed(spec).workdir or base.workdir.rstrip("/") or WORKSPACE,
                agent=_drawn(folder.machine),
                restored=_digest(restore),
            )
            view = RelayView(record, record.agent)
            try:
                incarnation = self._start(folder, view, base, clear=restore is not None)
                made = self._instance(folder, view, incarnation)
                if restore is not None:
                    made.restore(restore)
            except BaseException:
                self._end(folder, record)
                raise
            folder.set_deadline(spec.lease_seconds)
            folder.write_record(record)  # from here on it can be found: whole
            return made

    def _start(self, folder: RelayFolder, view: RelayView, base: Base, *, clear: bool) -> str:
        """Make the machine of an instance, and have its supervisor serve; returns its incarnation."""
        record, name = view.record, view.instance.machine
        lifetime = min(LIFETIME_SECONDS, self._machine.max_lifetime_seconds or LIFETIME_SECONDS)
        start = view.start() if self._machine.starts_first else None
        labels = self._labels(record)
        blocking(self._machine.create(name, base, record.spec, labels, lifetime, start))
        if start is None:
            blocking(self._machine.put(name, view.files))
            blocking(self._begun(name, view.begin()))
        control = self._control(folder, view.instance)
        incarnation = self._ready(name, control)
        for path, mode in view.folders.items():
            control.make_folder(path, mode, clear=clear)
        for path, target in view.links.items():
            control.link_folder(path, target)
        return incarnation

    async def _begun(self, name: str, command: Sequence[str]) -> None:
        channel = await self._machine.open(name, command)
        try:
            while await channel.receive():
                pass
        finally:
            await channel.close()

    def _ready(self, name: str, control: RelayedControl) -> str:
        deadline = time.monotonic() + READY_SECONDS
        while (incarnation := control.incarnation()) is None:
            found = blocking(self._machine.find(name))
            if found is None or not found.running:
                raise SandboxUnavailable("the sandbox's machine has ended before its supervisor began")
            if time.monotonic() > deadline:
                raise SandboxUnavailable("the sandbox's supervisor doesn't begin")
            time.sleep(0.02)
        return incarnation

    def _labels(self, record: RelayRecord) -> dict[str, str]:
        owner = {} if record.labels is None else record.labels.model_dump()
        labels = {f"clotho.{name}": value for name, value in owner.items()}
        return {OF_THE_BACKEND: scope(self._root), "clotho.lease": record.lease, **labels}

    def _control(self, folder: RelayFolder, instance: Instance) -> RelayedControl:
        """One for all that use an instance in this process: they share its stream."""
        control = self._controls.get(instance.token)
        if control is None:
            relay = Relay(partial(self._machine.open, instance.machine, RELAY), instance.token)
            control = RelayedControl(
                instance.machine, relay, partial(self._renewed, folder, instance.machine)
            )
            control = self._controls.setdefault(instance.token, control)
        return control

    def _renewed(self, folder: RelayFolder, machine: str, seconds: float) -> None:
        folder.set_deadline(seconds)
        blocking(self._machine.extend(machine, seconds + GRACE_SECONDS))

    def _instance(self, folder: RelayFolder, view: RelayView, incarnation: str) -> SupervisedSandbox:
        bounds = Bounds((), view.record.spec.max_processes, None)
        return SupervisedSandbox(self._control(folder, view.instance), incarnation, view.layout(), bounds)

    def _attach(self, lease: str, incarnation: str, labels: Labels | None) -> SupervisedSandbox:
        folder = RelayFolder.of_lease(self._root, lease)
        record = folder.record_of(lease)
        if labels not in (None, record.labels):
            with folder.locked():
                record = folder.labelled(folder.record_of(lease), labels)
        if self._control(folder, record.agent).incarnation() != incarnation:
            raise SandboxLost(f"the sandbox of lease {lease} has ended")
        return self._instance(folder, RelayView(record, record.agent), incarnation)

    # ---- verification ----

    def _open_verifier(
        self,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        folder = RelayFolder.of_lease(self._root, lease)
        with folder.locked():
            record = folder.labelled(folder.record_of(lease), labels)
            newest = max(record.verifiers, default=-1)
            if newest == epoch:
                return self._living_verifier(folder, RelayView(record, record.verifiers[epoch], setup), epoch)
            if newest > epoch:
                raise SandboxLost(f"verification of lease {lease} has gone on to epoch {newest}")
            check_hidden(hidden_files)
            agent = self._control(folder, record.agent)
            seal(agent)
            for earlier in record.verifiers.values():
                self._end_instance(earlier)
            drawn = _drawn(f"{folder.machine}-v{epoch}", f"/.{secrets.token_hex(16)}")
            view = RelayView(record, drawn, setup)
            try:
                made = self._verifier(folder, view, hidden_files)
            except BaseException:
                self._end_instance(drawn)
                raise
            folder.write_record(record.model_copy(update={"verifiers": {epoch: drawn}}))
            return made

    def _living_verifier(self, folder: RelayFolder, view: RelayView, epoch: int) -> SupervisedSandbox:
        incarnation = self._control(folder, view.instance).incarnation()
        if incarnation is None:
            raise SandboxLost(f"the verifier of lease {view.record.lease}, epoch {epoch}, has ended")
        return self._instance(folder, view, incarnation)

    def _verifier(
        self, folder: RelayFolder, view: RelayView, hidden_files: Mapping[str, bytes]
    ) -> SupervisedSandbox:
        record, agent = view.record, self._control(folder, view.record.agent)
        self._end_instance(view.instance)  # what an attempt before this one left unfinished
        kept = blocking(self._machine.snapshot(record.agent.machine))
        incarnation = self._start(folder, view, kept or record.base, clear=kept is None)
        made = self._instance(folder, view, incarnation)
        if kept is None:
            self._move(record, agent, made)
        control = self._control(folder, view.instance)
        control.make_folder(f"{view.instance.private}/hidden")
        control.make_folder(f"{view.instance.private}/tmp", 0o1777)
        files = {f"{view.hidden_files}/{name}": content for name, content in hidden_files.items()}
        if files:
            blocking(self._machine.put(view.instance.machine, files))
        stage_start(view.setup or USUAL, view.directory(), record.workdir, control, agent)
        return made

    def _move(self, record: RelayRecord, agent: RelayedControl, to: SupervisedSandbox) -> None:
        """Bring what the agent left in its folders into a verifier's."""
        incarnation = agent.incarnation()
        if incarnation is None:
            raise SandboxLost(f"the sandbox of lease {record.lease} has ended")
        fields = {"max": str(MAX_CHECKPOINT_BYTES), "timeout_ms": str(PACK_SECONDS * 1000)}
        with scratch() as blob:
            transfer = ArchiveTransfer(agent, incarnation, secrets.token_hex(16))
            taken = transfer.pack(fields, to.layout.archived, blob)
            if taken.word != "ok":
                raise SandboxUnavailable(f"what the agent left can't be archived: {taken.word} {taken.size}")
            checkpoint = Checkpoint(
                digest=taken.digest,
                size=taken.blob_size,
                content_size=taken.content_size,
                exact=False,
                fingerprint="",
                shell=None,
                sessions=(),
            )
            to.restore(Restore(checkpoint, blob))

    def _verify_in_place(
        self, lease: str, incarnation: str, labels: Labels | None, setup: VerifierSetup
    ) -> SupervisedSandbox:
        control = self._attach(lease, incarnation, labels).control
        folder = RelayFolder.of_lease(self._root, lease)
        record = folder.record_of(lease)
        view = RelayView(record, record.agent, setup)
        stage_start(setup, view.directory(), record.workdir, control, control, exports_of(view.environment()))
        return self._instance(folder, view, incarnation)

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
            self._end_instance(instance)
        if record is None:
            blocking(self._machine.destroy(folder.machine))
        folder.delete()

    def _end_instance(self, instance: Instance) -> None:
        control = self._controls.pop(instance.token, None)
        if control is not None:
            blocking(control.relay.close())
        blocking(self._machine.destroy(instance.machine))

    def _renew(self, lease: str, seconds: float) -> None:
        folder = RelayFolder.of_lease(self._root, lease)
        record = folder.record_of(lease)
        for verifier in record.verifiers.values():
            control = self._control(folder, verifier)
            if control.incarnation() is not None:
                control.renew(seconds)
        self._control(folder, record.agent).renew(seconds)

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
            try:
                self._end(folder)
            except (InvalidInput, SandboxUnavailable) as error:  # the others can be reaped all the same
                log.warning("sandbox %s not reaped: %s", folder.name, error)
                return False
            return True

    def _reap_without_folder(self) -> Sequence[str]:
        found = blocking(self._machine.list({OF_THE_BACKEND: scope(self._root)}))
        return [each.name for each in found if not each.running and self._destroyed(each.name)]

    def _destroyed(self, machine: str) -> bool:
        """Destroy a machine unless a folder tells of it, or its sandbox is being made or ended."""
        folder = RelayFolder.of_machine(self._root, machine)
        with folder.locked(wait=False) as held:
            if not held or folder.files.exists():
                return False
            blocking(self._machine.destroy(machine))
            return True


def _drawn(machine: str, private: str | None = None) -> Instance:
    return Instance(machine=machine, token=secrets.token_hex(16), private=private)


def _digest(restore: Restore | None) -> str | None:
    return None if restore is None else restore.checkpoint.digest

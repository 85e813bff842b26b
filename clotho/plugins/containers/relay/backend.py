"""Sandboxes on machines elsewhere, with nothing between them and the worker but streams.

A record in a folder of this host tells which machines a sandbox has. Its supervisor tells through a relay that it
lives. A verifier gets a machine of its own. Where the platform can keep the agent's machine as an image, the
verifier's begins from that; elsewhere it begins from the sandbox's image, and gets the agent's workspace, home,
/tmp and writable roots.
"""

import logging
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from clotho.errors import InvalidInput, IsolationUnavailable
from clotho.plugins.containers.relay.instances import ENDS, MADE_BY_RELAY, OF_THE_BACKEND, Instances, drawn
from clotho.plugins.containers.relay.loop import IMAGE_SECONDS, blocking
from clotho.plugins.containers.relay.machine import Base, Found, Machine
from clotho.plugins.containers.relay.records import RelayFolder, RelayRecord, placed, scope
from clotho.plugins.containers.relay.verifiers import make_verifier
from clotho.plugins.containers.relay.view import RelayView
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.checkpoints import Restore
from clotho.sandbox.config import BackendConfig
from clotho.sandbox.exhaustion import Evidence
from clotho.sandbox.isolation import IsolationReport
from clotho.sandbox.places import WORKSPACE
from clotho.sandbox.reaper import going_on
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.interface import Control
from clotho.sandbox.supervised.leases import LeasedBackend, digest_of
from clotho.sandbox.supervised.verifying import exports_of, stage_start
from clotho.sandbox.threads import with_host, with_image, with_relay, with_sandbox
from clotho.sandbox.verification import VerifierSetup

log = logging.getLogger("clotho")


class RelayedBackend(LeasedBackend[RelayFolder, RelayRecord]):
    """Sandboxes on machines of one platform, with their records below `root`."""

    def __init__(self, root: Path, machine: Machine) -> None:
        super().__init__(root, RelayFolder)
        self._machine = machine
        self._instances = Instances(self._root, machine)

    @property
    def names(self) -> tuple[str, ...]:
        return (self._machine.kind,)

    async def system(self, lease: str) -> str:
        return self._record_of(self._folder(lease), lease).base.image

    async def evidence(self, lease: str) -> frozenset[Evidence]:
        """Commands can signal a supervisor that isn't the machine's first process."""
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
        found = await with_sandbox(lease, self._existing, lease, spec, labels, restore)
        if found is not None:
            return found
        # without the sandbox's lock and threads: an image may be pulled for an hour, once for all that wait for it
        image = self._root, spec.backend.model_dump_json(), spec.memory_mb
        base = await with_image(image, self._base, spec)
        return await with_sandbox(lease, self._create, lease, spec, labels, restore, base)

    async def renew(self, lease: str, seconds: float) -> None:
        await with_relay(lease, self._renew, lease, seconds)

    async def close(self) -> None:
        """Close what this process has open; sandboxes go on."""
        await with_host(self._instances.close)

    def makes(self, config: BackendConfig) -> bool:
        return config.kind == self._machine.kind

    # ---- blocking ----

    def _existing(
        self, lease: str, spec: SandboxSpec, labels: Labels | None, restore: Restore | None
    ) -> SupervisedSandbox | None:
        """The lease's sandbox, if it lives and was made from the same checkpoint. Raises for a wrong `spec`."""
        if spec.backend.kind != self._machine.kind:
            raise InvalidInput(f"sandboxes of {spec.backend.name} aren't made by {self._machine.kind}")
        spec.require_no_mounts(f"{self._machine.kind} elsewhere")
        if spec.limits == "required":
            raise IsolationUnavailable("the disk of a machine elsewhere can't be bounded (limits: required)")
        folder = self._folder(lease)
        with self._locked(folder):
            return self._found(folder, labels, restore)

    def _base(self, spec: SandboxSpec) -> Base:
        return blocking(self._machine.base(spec), IMAGE_SECONDS)

    def _create(
        self, lease: str, spec: SandboxSpec, labels: Labels | None, restore: Restore | None, base: Base
    ) -> SupervisedSandbox:
        folder = self._folder(lease)
        with self._locked(folder):
            found = self._found(folder, labels, restore)
            if found is not None:
                return found
            self._end(folder)
            folder.create()
            record = RelayRecord(
                lease=lease,
                labels=labels,
                spec=spec,
                base=base,
                workdir=placed(spec).workdir or base.workdir or WORKSPACE,
                agent=drawn(folder.machine),
                restored=digest_of(restore),
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
            # before the record: a sandbox without a deadline counts as expired soon after its folder was made
            folder.set_deadline(spec.lease_seconds)
            folder.write_record(record)  # from here on it can be found: whole
            return made

    def _agent(self, folder: RelayFolder, record: RelayRecord) -> Control:
        return self._instances.control(folder, record.agent)

    def _verifiers(self, folder: RelayFolder, record: RelayRecord) -> Mapping[int, Control]:
        """Verifiers that are whole."""
        return {
            epoch: self._instances.control(folder, instance) for epoch, instance in record.verifiers.items()
        }

    def _instance(
        self,
        folder: RelayFolder,
        record: RelayRecord,
        control: Control,
        incarnation: str,
        epoch: int | None = None,
    ) -> SupervisedSandbox:
        instance = record.agent if epoch is None else record.verifiers[epoch]
        return self._instances.sandbox(folder, RelayView(record, instance), incarnation)

    def _in_place(
        self,
        folder: RelayFolder,
        record: RelayRecord,
        control: Control,
        incarnation: str,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        view = RelayView(record, record.agent, setup)
        stage_start(setup, view.directory(), record.workdir, control, control, exports_of(view.environment()))
        return self._instances.sandbox(folder, view, incarnation)

    def _make_verifier(
        self,
        folder: RelayFolder,
        record: RelayRecord,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        for earlier in record.instances[1:]:
            self._instances.end(earlier)
        instance = drawn(f"{folder.machine}-v{epoch}", f"/.{secrets.token_hex(16)}")
        folder.write_record(record.model_copy(update={"begun": instance}))  # before there is a machine
        view = RelayView(record, instance, setup)
        try:
            made = make_verifier(self._machine, self._instances, folder, view, setup, hidden_files)
        except BaseException:
            self._instances.end(instance)
            raise
        folder.write_record(record.model_copy(update={"verifiers": {epoch: instance}, "begun": None}))
        return made

    # ---- ends ----

    def _end(self, folder: RelayFolder, unfinished: RelayRecord | None = None) -> None:
        """Destroy every machine of the sandbox, and its record; one without a record was left unfinished."""
        if not folder.files.exists():
            return
        record = unfinished or folder.readable_record()
        for instance in record.instances if record else ():
            self._instances.end(instance)
        if record is None:
            blocking(self._machine.destroy(folder.machine))
        # last: the record is what tells of the machines
        shutil.rmtree(folder.files, ignore_errors=True)

    def _reap(self) -> Sequence[str]:
        """Where there has never been a sandbox, the platform isn't asked: there may be none that works."""
        if not (self._root / "sandboxes").exists():
            return ()
        self._instances.close_ended()
        reaped = super()._reap()
        try:
            return (*reaped, *self._reap_without_folder())
        except InvalidInput as error:  # the settings have changed: what is in other sandboxes goes on
            log.warning("machines of %s not reaped: %s", self._machine.kind, error)
            return reaped

    def _reap_without_folder(self) -> Sequence[str]:
        own = blocking(self._machine.list({OF_THE_BACKEND: scope(self._root)}))
        reaped = []
        for each in own:
            with going_on(f"machine {each.name} not destroyed"):
                # one that runs ends with its lease
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

    def _probe(self) -> IsolationReport:
        return IsolationReport(
            missing=(),
            own_user=False,
            memory="cgroup",
            processes="cgroup",
            processors="cgroup",
            disk="file size",
        )

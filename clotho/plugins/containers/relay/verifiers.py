"""Verifiers' instances: machines of their own, over what the agent left in its."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable, WorkspaceRefused
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.containers.relay.instances import Instances, drawn
from clotho.plugins.containers.relay.loop import IMAGE_SECONDS, blocking
from clotho.plugins.containers.relay.machine import Machine
from clotho.plugins.containers.relay.records import RelayFolder, RelayRecord
from clotho.plugins.containers.relay.view import RelayView
from clotho.sandbox.backend import MAX_CHECKPOINT_BYTES, Labels
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.scratch import scratch
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.supervised.placed_files import roots_of, split
from clotho.sandbox.supervised.verifying import check_hidden, seal, stage_start
from clotho.sandbox.verification import USUAL, VerifierSetup

PACK_SECONDS = 600


class Verifiers:
    """Those of one backend. Everything here blocks."""

    def __init__(self, machine: Machine, instances: Instances) -> None:
        self._machine = machine
        self._instances = instances

    def open(
        self,
        folder: RelayFolder,
        lease: str,
        epoch: int,
        hidden_files: Mapping[str, bytes],
        labels: Labels | None,
        setup: VerifierSetup,
    ) -> SupervisedSandbox:
        with folder.locked():
            record = folder.labelled(folder.record_of(lease), labels)
            newest = max(record.verifiers, default=-1)
            if newest == epoch:
                return self._living(folder, RelayView(record, record.verifiers[epoch], setup), epoch)
            if newest > epoch:
                raise SandboxLost(f"verification of lease {lease} has gone on to epoch {newest}")
            check_hidden(hidden_files, placed=True)
            agent = self._instances.control(folder, record.agent)
            seal(agent)
            for earlier in record.instances[1:]:
                self._instances.end(earlier)
            instance = drawn(f"{folder.machine}-v{epoch}", f"/.{secrets.token_hex(16)}")
            folder.write_record(record.model_copy(update={"begun": instance}))  # before there is a machine
            view = RelayView(record, instance, setup)
            try:
                made = self._made(folder, view, hidden_files)
            except BaseException:
                self._instances.end(instance)
                raise
            folder.write_record(record.model_copy(update={"verifiers": {epoch: instance}, "begun": None}))
            return made

    def _living(self, folder: RelayFolder, view: RelayView, epoch: int) -> SupervisedSandbox:
        incarnation = self._instances.control(folder, view.instance).incarnation()
        if incarnation is None:
            raise SandboxLost(f"the verifier of lease {view.record.lease}, epoch {epoch}, has ended")
        return self._instances.sandbox(folder, view, incarnation)

    def _made(
        self, folder: RelayFolder, view: RelayView, hidden_files: Mapping[str, bytes]
    ) -> SupervisedSandbox:
        record, agent = view.record, self._instances.control(folder, view.record.agent)
        self._instances.end(view.instance)  # what an attempt before this one left unfinished
        agents = RelayView(record, record.agent)
        self._instances.make_folders(folder, agents, WorkspaceRefused, clear=False)
        kept = blocking(self._machine.snapshot(record.agent.machine), IMAGE_SECONDS)
        with scratch() as blob:
            left = None if kept else _packed(record, agent, agents.layout(), blob)
            incarnation = self._instances.start(folder, view, kept or record.base)
            self._instances.make_folders(folder, view, InvalidInput, clear=kept is None)
            made = self._instances.sandbox(folder, view, incarnation)
            if left is not None:
                made.restore(left)
        control = self._instances.control(folder, view.instance)
        control.make_folder(f"{view.instance.private}/hidden")
        control.make_folder(f"{view.instance.private}/tmp", 0o1777)
        hidden, placed = split(hidden_files)
        for root in roots_of(placed, record.spec.writable_roots):
            control.make_folder(root, 0o755, clear=True)
        files = {f"{view.hidden_files}/{name}": content for name, content in hidden.items()} | placed
        if files:
            blocking(self._machine.put(view.instance.machine, files))
        stage_start(view.setup or USUAL, view.directory(), record.workdir, control, agent)
        return made


def _packed(record: RelayRecord, agent: RelayedControl, layout: Layout, to: Path) -> Restore:
    """What the agent left in its folders. Raises WorkspaceRefused for more than a checkpoint may hold."""
    incarnation = agent.incarnation()
    if incarnation is None:
        raise SandboxLost(f"the sandbox of lease {record.lease} has ended")
    fields = {"max": str(MAX_CHECKPOINT_BYTES), "timeout_ms": str(PACK_SECONDS * 1000)}
    taken = ArchiveTransfer(agent, incarnation, secrets.token_hex(16)).pack(fields, layout.archived, to)
    if taken.word == "too_large":
        raise WorkspaceRefused(f"the agent left {taken.size} bytes: more than {MAX_CHECKPOINT_BYTES}")
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
    return Restore(checkpoint, to)

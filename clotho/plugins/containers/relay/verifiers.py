"""Verifiers' instances: machines of their own, over what the agent left in its."""

import secrets
from collections.abc import Mapping
from pathlib import Path

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable, WorkspaceRefused
from clotho.plugins.containers.relay.control import RelayedControl
from clotho.plugins.containers.relay.instances import Instances
from clotho.plugins.containers.relay.loop import IMAGE_SECONDS, blocking
from clotho.plugins.containers.relay.machine import Machine
from clotho.plugins.containers.relay.records import RelayFolder, RelayRecord
from clotho.plugins.containers.relay.view import RelayView
from clotho.sandbox.backend import MAX_CHECKPOINT_BYTES
from clotho.sandbox.checkpoints import Checkpoint, Restore
from clotho.sandbox.scratch import scratch
from clotho.sandbox.supervised.archives import ArchiveTransfer
from clotho.sandbox.supervised.instance import SupervisedSandbox
from clotho.sandbox.supervised.layout import Layout
from clotho.sandbox.supervised.placed_files import roots_of, split
from clotho.sandbox.supervised.verifying import stage_start
from clotho.sandbox.verification import VerifierSetup

PACK_SECONDS = 600


def make_verifier(
    machine: Machine,
    instances: Instances,
    folder: RelayFolder,
    view: RelayView,
    setup: VerifierSetup,
    hidden_files: Mapping[str, bytes],
) -> SupervisedSandbox:
    """Make the machine of a verifier's instance, with what the agent left and the hidden files in it. Blocks."""
    record, agent = view.record, instances.control(folder, view.record.agent)
    instances.end(view.instance)  # what an attempt before this one left unfinished
    agents = RelayView(record, record.agent)
    # in the agent's machine, so that what the agent put in a folder's place is told as its doing
    instances.make_folders(folder, agents, WorkspaceRefused, clear=False)
    kept = blocking(machine.snapshot(record.agent.machine), IMAGE_SECONDS)
    with scratch() as blob:
        # a snapshot has the folders already
        left = None if kept else _pack_left(record, agent, agents.layout(), blob)
        incarnation = instances.start(folder, view, kept or record.base)
        # cleared of the image's files: the agent may have deleted them
        instances.make_folders(folder, view, InvalidInput, clear=kept is None)
        made = instances.sandbox(folder, view, incarnation)
        if left is not None:
            made.restore(left)
    control = instances.control(folder, view.instance)
    control.make_folder(f"{view.instance.private}/hidden")
    control.make_folder(f"{view.instance.private}/tmp", 0o1777)
    hidden, placed = split(hidden_files)
    for root in roots_of(placed, record.spec.writable_roots):
        control.make_folder(root, 0o755, clear=True)
    files = {f"{view.hidden_files}/{name}": content for name, content in hidden.items()} | placed
    if files:
        blocking(machine.put(view.instance.machine, files))
    stage_start(setup, view.directory(), record.workdir, control, agent)
    return made


def _pack_left(record: RelayRecord, agent: RelayedControl, layout: Layout, to: Path) -> Restore:
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

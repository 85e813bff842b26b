"""Containers of sandboxes on this host: made, followed to their supervisor's first word, and removed.

Everything blocks, and is called with the sandbox's folder locked.
"""

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from clotho.errors import InvalidInput, SandboxUnavailable, WorkspaceRefused
from clotho.plugins.containers.config import OF_THE_ENGINE
from clotho.plugins.containers.engine import Engine
from clotho.plugins.containers.folders import ContainerFolder, ContainerRecord, owned
from clotho.plugins.containers.forgotten import end_forgotten
from clotho.plugins.containers.holdings import OF_THIS_HOST
from clotho.plugins.containers.layer import written
from clotho.plugins.containers.view import CONTROL, PROGRAM, ContainerView
from clotho.sandbox.supervised import launch, placed_files
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.files import delete_any, delete_written
from clotho.sandbox.supervised.seccomp import program as seccomp_program
from clotho.sandbox.supervisor import supervisor_copy

READY_SECONDS = 60.0
LOOK_SECONDS = 0.5
"""Seconds after which a container that says nothing is asked for."""
CONTROL_GROUPS = Path("/sys/fs/cgroup")


class ContainerHost:
    def __init__(self, root: Path, engine: Engine) -> None:
        self._root = root
        self.engine = engine

    def start(self, view: ContainerView, container: str, image: str, control: ControlDirectory) -> str:
        """Start a container whose supervisor serves `control`; returns its incarnation."""
        # before the start: a supervisor that finds no filter ends
        control.write(control.path / "filter", seccomp_program(_machine(view.record.machine)))
        control.set_deadline(view.record.spec.lease_seconds)
        self.engine.start(image, container, view.settings(control.path, self.program(view.record.machine)))
        deadline, look = time.monotonic() + READY_SECONDS, time.monotonic() + LOOK_SECONDS
        while not (incarnation := (control.text_of("ready") or "").strip()):
            if (now := time.monotonic()) > look:
                look = now + LOOK_SECONDS
                words = self.engine.ended(container)
                if words is not None or now > deadline:
                    raise SandboxUnavailable(f"the container didn't start: {words or 'it says nothing'}")
            time.sleep(0.002)
        return incarnation

    def program(self, architecture: str) -> Path:
        return supervisor_copy(self._root / "programs", _machine(architecture))

    def end(self, folder: ContainerFolder) -> None:
        """Remove the sandbox's containers and files. A container without files goes when its name is used again."""
        if not folder.files.exists():
            return
        instances = folder.instances()
        with ThreadPoolExecutor(len(instances)) as threads:  # removing one takes an engine 0.1 s
            controls = (ControlDirectory(path, None) for path in instances.values())
            list(threads.map(self.end_instance, instances, controls))
        self.remove_left_images(folder)
        delete_written(folder.controls)
        delete_any(folder.files)

    def end_instance(self, container: str, control: ControlDirectory) -> None:
        if control.path.exists():
            with suppress(SandboxUnavailable):  # the engine kills what can't be ended here
                launch.end(control)
        self.engine.remove(container)
        # an engine that died while it started the container may have left processes that it doesn't know
        if not control.was_started():
            end_forgotten(container)

    def remove_left_images(self, folder: ContainerFolder) -> None:
        if folder.left_mark.exists():
            for image in self.engine.left_images():
                if image.name.startswith(folder.left_image):
                    self.engine.remove_image(image.id)
            folder.left_mark.unlink()

    # ---- verification ----

    def left_by(self, view: ContainerView, epoch: int) -> str:
        """The image with the agent's system as it is: that which it began from, unless commands have changed it.

        Raises WorkspaceRefused for changes that an engine would copy for too long.
        """
        folder, record = view.folder, view.record
        # read_only leaves no changes, and `image` hides them, unless the workspace is the whole system
        if record.config.read_only or (record.config.verify_in == "image" and record.workdir != "/"):
            return record.image
        if not self.changed_outside(view):
            return record.begun_from
        # measured before the commit, which copies all of it
        most = record.config.system_changes_mb
        if (written := self.engine.written_bytes(folder.container) >> 20) > most:
            raise WorkspaceRefused(
                f"commands changed {written} MiB of the image's own system: more than {most} MiB"
            )
        image = f"{folder.left_image}{epoch}"
        # before the commit: who ends the sandbox looks for images only where there is a mark
        folder.left_mark.touch()
        self.engine.commit(folder.container, image, view.ownership)
        return f"{OF_THIS_HOST}{image}"

    def changed_outside(self, view: ContainerView) -> bool:
        container = view.folder.container
        # the layer first: to compare a container with its image takes an engine 0.1 to 0.8 s
        layer = self.engine.layer(container)
        if layer is not None:
            with suppress(OSError):  # it is another user's, or on the disk of a virtual machine
                return any(_outside(view, path) for path in written(layer))
        return any(_outside(view, path) for path in self.engine.changes(container))

    def make_verifier(
        self, folder: ContainerFolder, record: ContainerRecord, epoch: int, hidden_files: Mapping[str, bytes]
    ) -> Path:
        """Make the private folder of an epoch's verifier, under an unguessable name."""
        # of other epochs, or of an attempt that died
        for left in folder.files.glob("private-*"):
            shutil.rmtree(left)
        hidden, placed = placed_files.split(hidden_files)
        writable = folder.writable(record)
        roots = placed_files.roots_of(
            placed, (path for path in record.spec.writable_roots if path in writable)
        )
        private = folder.draw_private(epoch)
        (private / "hidden").mkdir(parents=True)
        placed_files.write(private / "hidden", hidden)
        placed_files.write(private / placed_files.PLACED, placed)
        for own in writable.values():
            # the agent may have closed a folder to its own user, who runs the verifier's commands, too
            _make_enterable(own, record.user)
        for root in roots:
            # emptied for the tests: what the agent left there would run beside them
            delete_any(writable[root])
            owned(writable[root], record.user)
        return private


def groups_of(control: ControlDirectory) -> tuple[Path, ...]:
    """The control groups that count what a supervisor's container uses, where this host sees them."""
    supervisor = launch.lock_holder(control.alive_file)
    if supervisor is None:
        return ()
    lines = (line.split(":", 2) for line in Path(f"/proc/{supervisor}/cgroup").read_text().splitlines())
    found = (
        CONTROL_GROUPS / controller / path.lstrip("/")
        for _, controllers, path in lines
        for controller in controllers.split(",")
        # empty: the one hierarchy of version 2
        if controller in ("", "memory", "pids")
    )
    return tuple(path for path in found if path.is_dir())


def _outside(view: ContainerView, path: str) -> bool:
    """Whether a changed path is of the container's own file system: engines also make places for mounts."""
    record = view.record
    mounts = (*view.mounts, *record.spec.mounts, *record.config.tmpfs, CONTROL, PROGRAM, *OF_THE_ENGINE)
    return not any(
        f"{mount}/".startswith(f"{path}/") or f"{path}/".startswith(f"{mount}/") for mount in mounts
    )


def _machine(architecture: str) -> str:
    """The name of an architecture's supervisor. Raises InvalidInput for one without a supervisor."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(architecture)
    if machine is None:
        raise InvalidInput(f"no sandboxes in images for {architecture or 'an unknown architecture'}")
    return machine


def _make_enterable(path: Path, user: int) -> None:
    if (mode := path.stat().st_mode) & 0o700 != 0o700:
        path.chmod(mode & 0o7777 | 0o700)


def make_folders(folder: ContainerFolder, record: ContainerRecord) -> None:
    """Make the sandbox's folders inside one that only the worker's user and root can enter."""
    folder.files.mkdir(mode=0o700, parents=True)
    writable = folder.writable(record)
    for path in writable.values():
        owned(path, record.user)
    if "/tmp" in writable:
        writable["/tmp"].chmod(0o1777)
    for seen in (record.workdir, record.config.home):
        if seen != "/" and not (inner := folder.place_of(record, seen)).exists():  # in another one
            owned(inner, record.user)

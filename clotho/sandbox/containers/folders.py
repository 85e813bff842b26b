"""The folder of a sandbox in a container: its record, the files that commands write to, and control directories."""

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from clotho.errors import InvalidInput, SandboxLost
from clotho.frozen_model import FrozenModel
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.containers.config import DockerConfig
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.launch import private

AGENT = "agent"
NAME_CHARS_BESIDE_LOCKS = 16
"""Folders share a lock whose names differ in no more than their last characters: there are few files for it."""
GRACE_SECONDS = 120.0
"""Seconds that a supervisor has, after its lease, to end by itself."""


class ContainerRecord(FrozenModel):
    """The record of a sandbox, in its folder."""

    lease: str
    labels: Labels | None
    spec: SandboxSpec
    config: DockerConfig
    image: str
    """The image's id: names may come to mean another one."""
    machine: str
    """The image's architecture, as the supervisor's programs are named by."""
    workdir: str
    environment: dict[str, str]
    """The image's own variables."""
    volumes: tuple[str, ...] = ()
    """The image's volumes, where they are kept in further folders."""
    user: int = 0
    """The user id of commands. The supervisor is the container's root."""
    groups: tuple[Path, ...] = ()
    """The control groups that count its use."""
    restored: str | None = None
    """Digest of the checkpoint that it was made from."""

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that commands write to beside the workspace, the home and /tmp."""
        return (*self.spec.writable_roots, *self.volumes)

    def control_at(self, path: Path) -> ControlDirectory:
        """A control directory of this sandbox."""
        return ControlDirectory(path, 0, self.user) if self.user else ControlDirectory(path, None)


@dataclass(frozen=True)
class ContainerFolder:
    """The paths of one sandbox under a backend's root."""

    root: Path
    name: str
    place: str = "sandboxes"

    @classmethod
    def of_lease(cls, root: Path, lease: str) -> "ContainerFolder":
        return cls(root, hashlib.sha256(lease.encode()).hexdigest()[:20])

    @property
    def files(self) -> Path:
        return self.root / self.place / self.name

    @property
    def container(self) -> str:
        """Name of the agent's container: another backend of its engine may hold a lease of the same name."""
        with suppress(FileNotFoundError):
            return self._container_name.read_text()
        return f"clotho-{identity_of(self.root)[:8]}-{self.name}"

    @property
    def _container_name(self) -> Path:
        return self.files / "container"

    def keep_container_name(self) -> None:
        """Have the container go by its name also when the folder has got another."""
        self._container_name.write_text(self.container)

    def verifier_container(self, epoch: int) -> str:
        return f"{self.container}-verifier-{epoch}"

    @property
    def left_image(self) -> str:
        """Begin of the names of images that hold what the agent left."""
        return f"{self.container}-left-"

    @property
    def left_mark(self) -> Path:
        """There as long as such images may be."""
        return self.files / "left"

    def writable(self, record: ContainerRecord) -> dict[str, Path]:
        """The folders that commands write to, by the first of the paths that they see each under."""
        disk = self.files / "disk"
        further = {path: disk / f"root-{number}" for number, path in enumerate(record.roots)}
        own = {record.workdir: disk / "work", record.config.home: disk / "home", "/tmp": disk / "tmp"}
        return {**own, **further}

    # ---- instances ----

    def control(self, instance: str = AGENT) -> Path:
        return self.files / "control" / instance

    def verifier_control(self, epoch: int) -> Path:
        return self.control(f"verifier-{epoch}")

    def instances(self) -> dict[str, Path]:
        """The control directories by their containers, the agent's first."""
        return {self.container: self.control()} | {
            self.verifier_container(epoch): self.verifier_control(epoch) for epoch in self.verifier_epochs()
        }

    def verifier_epochs(self) -> list[int]:
        found = self.control().parent.glob("verifier-*")
        return sorted(int(path.name.partition("-")[2]) for path in found)

    def private(self, epoch: int) -> Path | None:
        """The private folder of an epoch's verifier, whose name was drawn when it was made."""
        return next(self.files.glob(f"private-{epoch}-*"), None)

    def draw_private(self, epoch: int) -> Path:
        return self.files / f"private-{epoch}-{secrets.token_hex(16)}"

    # ---- the record ----

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """The lock under which the sandbox is made or ended; yields whether it is held."""
        locks = self.root / "locks"
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(locks / self.name[:-NAME_CHARS_BESIDE_LOCKS], wait=wait) as held:
            yield held

    def read_record(self) -> ContainerRecord | None:
        """None where there is no sandbox, or one that was never finished."""
        try:
            return ContainerRecord.model_validate_json((self.files / "sandbox.json").read_text())
        except (FileNotFoundError, ValidationError):
            return None

    def write_record(self, record: ContainerRecord) -> None:
        unfinished = self.files / ".sandbox.json"
        with open(unfinished, "w", opener=private) as file:
            file.write(record.model_dump_json())
        unfinished.rename(self.files / "sandbox.json")


def members(root: Path, key: str = "*") -> Iterator[ContainerFolder]:
    """Containers made ahead, of one kind or of all."""
    for path in root.glob(f"pool/{key}/*"):
        yield ContainerFolder(root, path.name, f"pool/{path.parent.name}")


def folders(root: Path) -> Iterator[ContainerFolder]:
    return (ContainerFolder(root, path.name) for path in root.glob("sandboxes/*"))


def identity_of(root: Path) -> str:
    """A backend's name on its engine, which others use too, whose roots may have the same path."""
    file = root / "identity"
    if not file.exists():
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        unfinished = root / f".identity.{secrets.token_hex(8)}"
        unfinished.write_text(secrets.token_hex(16))
        with suppress(FileExistsError):
            os.link(unfinished, file)
        unfinished.unlink()
    return file.read_text()


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[bool]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        held = False
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        yield held
    finally:
        os.close(descriptor)


def owned(path: Path, user: int, mode: int = 0o755) -> None:
    """Make a folder that is the user's."""
    path.mkdir(parents=True)
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, user, user)


def variables(record: ContainerRecord) -> Mapping[str, str]:
    """Environment variables of the agent's commands, to which jobs add their own."""
    usual = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
    }
    return {**usual, **record.environment, "HOME": record.config.home, **record.spec.variables}


def record_of(folder: ContainerFolder, lease: str) -> ContainerRecord:
    record = folder.read_record()
    if record is None:
        raise SandboxLost(f"no sandbox of lease {lease} on this host")
    return record


def labelled(folder: ContainerFolder, record: ContainerRecord, labels: Labels | None) -> ContainerRecord:
    """The record with `labels`, to be called with the folder's lock held."""
    if labels in (None, record.labels):
        return record
    owners = [(each.store, each.rollout) if each else None for each in (record.labels, labels)]
    if owners[0] != owners[1]:
        raise InvalidInput(
            f"lease {record.lease} is held by {record.labels}, not by {labels}: use another folder"
        )
    record = record.model_copy(update={"labels": labels})
    folder.write_record(record)
    return record


def is_left(folder: ContainerFolder) -> bool:
    """Whether a sandbox is expired or unfinished. Ask again with the lock held: its maker has died then."""
    if not folder.files.exists():
        return False
    record = folder.read_record()
    return record is None or not record.lease or expiry(folder) + GRACE_SECONDS < time.time()


def expiry(folder: ContainerFolder) -> float:
    """Unix seconds of a lease's end; without a deadline, by the age of its folder."""
    deadlines = [_changed(path / "deadline") for path in folder.instances().values()]
    return max(deadlines) or _changed(folder.files)


def _changed(path: Path) -> float:
    """Unix seconds; 0 for what isn't there, or has just gone."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0

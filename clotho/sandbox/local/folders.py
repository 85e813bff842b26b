"""The folders of a local sandbox: its files, which it sees, and its control directories, which it doesn't.

Names of folders say nothing about the rollout: a sandbox can read them from its list of mounts.
"""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from clotho.frozen_model import FrozenModel
from clotho.sandbox.backend import AGENT_HOME, WORKSPACE, Labels, SandboxSpec
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.launch import private

AGENT = "agent"


class SandboxRecord(FrozenModel):
    """The record of a sandbox, in its folder."""

    lease: str
    labels: Labels | None = None
    spec: SandboxSpec
    user: int | None
    """The user that commands run as, None where that is the worker's own."""
    supervisor: int | None = None
    """The user of its supervisors, None where that is the commands'."""
    isolated: bool
    disk_image: bool
    """Whether its files, and its control directories, are on disks of their own, in images."""
    restored: str | None = None
    """Digest of the checkpoint that it was made from."""

    def control_at(self, path: Path) -> ControlDirectory:
        """A control directory of this sandbox."""
        return ControlDirectory(path, self.user if self.supervisor is None else self.supervisor, self.user)


@dataclass(frozen=True)
class SandboxFolder:
    """The paths of one sandbox under a backend's root."""

    root: Path
    name: str

    @classmethod
    def of_lease(cls, root: Path, lease: str) -> "SandboxFolder":
        return cls(root, hashlib.sha256(lease.encode()).hexdigest()[:20])

    @cached_property
    def files(self) -> Path:
        return self.root / "sandboxes" / self.name

    @cached_property
    def disk(self) -> Path:
        """Holds what counts against the sandbox's disk bound."""
        return self.files / "disk"

    @property
    def image(self) -> Path:
        return self.files / "disk.img"

    @property
    def workspace(self) -> Path:
        return self.disk / "work"

    @property
    def home(self) -> Path:
        return self.disk / "home"

    @property
    def tmp(self) -> Path:
        return self.disk / "tmp"

    @property
    def programs(self) -> Path:
        """Names for programs that this host has under other ones, where there is no isolated view."""
        return self.files / "programs"

    def root_folder(self, number: int) -> Path:
        """Holds what is written to the spec's writable root of that number."""
        return self.disk / f"root-{number}"

    def writable(self, spec: SandboxSpec) -> dict[str, Path]:
        """The folders that commands write to, by the first of the paths that they see each under."""
        further = {path: self.root_folder(number) for number, path in enumerate(spec.writable_roots)}
        return {WORKSPACE: self.workspace, AGENT_HOME: self.home, "/tmp": self.tmp, **further}

    @property
    def reserve(self) -> Path:
        """Room on the disk that the agent can't use up: given back when a verifier opens."""
        return self.disk / "reserve"

    def private(self, epoch: int) -> Path | None:
        """The private folder of an epoch's verifier, whose name was drawn when it was made."""
        return next(self.files.glob(f"private-{epoch}-*"), None)

    def draw_private(self, epoch: int) -> Path:
        return self.files / f"private-{epoch}-{secrets.token_hex(16)}"

    def all_private(self) -> list[Path]:
        return list(self.files.glob("private-*"))

    @cached_property
    def controls(self) -> Path:
        """Holds the control directories: on a disk of their own, which a full workspace leaves alone."""
        return self.root / "control" / self.name

    @property
    def control_image(self) -> Path:
        return self.files / "control.img"

    def instances(self) -> list[Path]:
        """The control directories of the agent's instance and of verifiers."""
        return [self.control(), *self.verifiers()]

    def verifiers(self) -> list[Path]:
        """Control directories; none where the sandbox is just being ended."""
        with suppress(FileNotFoundError):
            return [path for path in self.controls.iterdir() if path.name.startswith("verifier-")]
        return []

    def control(self, instance: str = AGENT) -> Path:
        return self.controls / instance

    def verifier_control(self, epoch: int) -> Path:
        return self.controls / f"verifier-{epoch}"

    def verifier_epochs(self) -> list[int]:
        return [int(path.name.partition("-")[2]) for path in self.verifiers()]

    @property
    def control_group(self) -> str:
        """Control groups are the machine's: another backend there may hold a lease of the same name."""
        return f"{self.name}-{hashlib.sha256(str(self.root).encode()).hexdigest()[:8]}"

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """The lock under which the sandbox is made or ended; it is released with its process.

        Yields whether it is held: always, unless the caller doesn't `wait`. Some sandboxes share one, so that the
        number of locks is bounded.
        """
        file = self.root / "locks" / self.name[:4]
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            held = False
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            yield held
        finally:
            os.close(descriptor)

    def is_unfinished(self) -> bool:
        """Whether there is a sandbox without a record: one that is being made, or whose maker or ender has died."""
        return self.files.exists() and not self._record.exists()

    @property
    def _record(self) -> Path:
        return self.files / "sandbox.json"

    def read_record(self) -> SandboxRecord | None:
        """None where there is no sandbox, or one that was never finished."""
        try:
            return SandboxRecord.model_validate_json(self._record.read_text())
        except (FileNotFoundError, ValidationError):
            return None

    def write_record(self, record: SandboxRecord) -> None:
        unfinished = self.files / ".sandbox.json"
        with open(unfinished, "w", opener=private) as file:
            file.write(record.model_dump_json())
        unfinished.rename(self._record)

"""The folder of a sandbox on this host: its record, and what every backend keeps there alike."""

import fcntl
import hashlib
import logging
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import ValidationError

from clotho.errors import InvalidInput, SandboxUnavailable
from clotho.frozen_model import FrozenModel, field_errors
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.launch import private

AGENT = "agent"
GRACE_SECONDS = 120.0
"""Seconds that a supervisor has, after its lease, to end by itself."""

log = logging.getLogger("clotho")


class FolderRecord(FrozenModel):
    """The record of a sandbox, in its folder."""

    lease: str
    """Empty as long as no lease has it."""
    labels: Labels | None = None
    spec: SandboxSpec
    restored: str | None = None
    """Digest of the checkpoint that it was made from."""


class SupervisedRecord(FolderRecord):
    """The record of a sandbox whose control directories are on this host."""

    def control_at(self, path: Path) -> ControlDirectory:
        """A control directory of this sandbox."""
        return ControlDirectory(path, None)


Record = TypeVar("Record", bound=FolderRecord)
HostedRecord = TypeVar("HostedRecord", bound=SupervisedRecord)


@dataclass(frozen=True)
class LeaseFolder(ABC, Generic[Record]):
    """The folder of a lease's sandbox under a backend's root, wherever its supervisors are."""

    root: Path
    name: str

    @classmethod
    def of_lease(cls, root: Path, lease: str) -> Self:
        # From the lease alone: any worker finds the sandbox without having been told, and its name says
        # nothing.
        return cls(root, hashlib.sha256(lease.encode()).hexdigest()[:20])

    @classmethod
    def all_in(cls, root: Path) -> list[Self]:
        return [cls(root, path.name) for path in root.glob("sandboxes/*")]

    @property
    def files(self) -> Path:
        return self.root / "sandboxes" / self.name

    # ---- the record ----

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """The lock under which the sandbox is made or ended; it is released with its process.

        Yields whether it is held: always, unless the caller doesn't `wait`.
        """
        locks = self.root / "locks"
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(locks / self._lock_name, wait=wait) as held:
            yield held

    @property
    def _lock_name(self) -> str:
        """Some sandboxes share a lock, so that the number of locks is bounded."""
        # lock files are never deleted: a process could hold the old one while another one takes a new one
        return self.name[:4]

    @property
    def _record(self) -> Path:
        return self.files / "sandbox.json"

    @abstractmethod
    def _parsed(self, text: str) -> Record:
        """Raises ValidationError."""

    def read_record(self) -> Record | None:
        """None where there is no sandbox, or one that was never finished.

        Raises SandboxUnavailable for a sandbox of a worker of another version: it may be in use.
        """
        try:
            return self._parsed(self._record.read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise SandboxUnavailable(
                f"sandbox {self.name} is of another version: {field_errors(error, 'its record')}"
            ) from error

    def readable_record(self) -> Record | None:
        """None also for a sandbox of another version, which is logged."""
        try:
            return self.read_record()
        except SandboxUnavailable as error:
            log.warning("%s", error)
            return None

    def write_record(self, record: Record) -> None:
        unfinished = self.files / ".sandbox.json"
        with open(unfinished, "w", opener=private) as file:
            file.write(record.model_dump_json())
        # Renamed last, whole: a folder with a record has all of a sandbox, and one without is reaped.
        unfinished.rename(self._record)

    def remove_record(self) -> None:
        self._record.unlink(missing_ok=True)

    # ---- whose it is, and whether that is over ----

    def labelled(self, record: Record, labels: Labels | None) -> Record:
        """Give a record new `labels`. Call it with the lock held.

        A rollout belongs to one store, but after a restart another cluster or namespace may run it.
        """
        if labels in (None, record.labels):
            return record
        owners = [(each.store, each.rollout) if each else None for each in (record.labels, labels)]
        if owners[0] != owners[1]:
            raise InvalidInput(
                f"lease {record.lease} is held by {record.labels}, not by {labels}: use another folder"
            )
        record = record.model_copy(update={"labels": labels})
        self.write_record(record)
        return record

    def is_unfinished(self) -> bool:
        """Whether it has no record, or no lease: it is being made or ended, or whoever did that has died."""
        try:
            record = self.read_record()
        except SandboxUnavailable:
            return False
        return self.files.exists() and (record is None or not record.lease)

    def is_left(self) -> bool:
        """Whether it is expired or unfinished. If it still is with the lock held, its maker has died."""
        return self.is_unfinished() or (self.files.exists() and self.expiry() + GRACE_SECONDS < time.time())

    def expiry(self) -> float:
        """Unix seconds of a lease's end; without a deadline, the time of its folder's last change."""
        return _last_change(self.deadlines()) or _last_change([self.files])

    @abstractmethod
    def deadlines(self) -> list[Path]:
        """The files whose times of change are the ends of leases."""


@dataclass(frozen=True)
class SupervisedFolder(LeaseFolder[HostedRecord]):
    """The folder of a sandbox whose supervisors are on this host."""

    @property
    @abstractmethod
    def controls(self) -> Path:
        """Holds the control directories."""

    def control(self, instance: str = AGENT) -> Path:
        return self.controls / instance

    def verifier_control(self, epoch: int) -> Path:
        return self.control(f"verifier-{epoch}")

    def verifier_epochs(self) -> list[int]:
        """Sorted; none where the sandbox is just being ended."""
        with suppress(FileNotFoundError):
            names = (path.name.partition("-") for path in self.controls.iterdir())
            return sorted(int(epoch) for kind, _, epoch in names if kind == "verifier")
        return []

    def control_directories(self) -> list[Path]:
        """The control directories: the agent's instance's first, then those of verifiers."""
        return [self.control(), *map(self.verifier_control, self.verifier_epochs())]

    def private(self, epoch: int) -> Path | None:
        """The private folder of an epoch's verifier, whose name was drawn when it was made."""
        return next(self.files.glob(f"private-{epoch}-*"), None)

    def draw_private(self, epoch: int) -> Path:
        return self.files / f"private-{epoch}-{secrets.token_hex(16)}"

    def deadlines(self) -> list[Path]:
        return [path / "deadline" for path in self.control_directories()]


def identity_of(root: Path) -> str:
    """A backend's name on an engine or at a cloud. Other hosts use that too, with roots of the same path."""
    file = root / "identity"
    if not file.exists():
        root.mkdir(mode=0o711, parents=True, exist_ok=True)
        # link, not rename: the first identity stays, since resources may carry it already
        unfinished = root / f".identity.{secrets.token_hex(8)}"
        unfinished.write_text(secrets.token_hex(16))
        with suppress(FileExistsError):
            os.link(unfinished, file)
        unfinished.unlink()
    return file.read_text()


def _last_change(paths: Iterable[Path]) -> float:
    """Unix seconds; 0 where there is none of them, or they have just gone."""
    last = 0.0
    for path in paths:
        with suppress(FileNotFoundError):
            last = max(last, path.stat().st_mtime)
    return last


@contextmanager
def lock(file: Path, *, wait: bool = True) -> Iterator[bool]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        held = False
        with suppress(BlockingIOError):
            # The kernel releases it with the process, however that ends: no lock is ever left behind.
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        yield held
    finally:
        os.close(descriptor)

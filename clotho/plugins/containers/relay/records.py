"""The record of a sandbox elsewhere, in a folder of this host: which machines it has, and how they are reached."""

import hashlib
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from pydantic import ValidationError

from clotho.errors import InvalidInput, SandboxLost, SandboxUnavailable
from clotho.frozen_model import FrozenModel, field_errors
from clotho.plugins.containers.relay.machine import Base
from clotho.sandbox.backend import Labels, SandboxSpec
from clotho.sandbox.supervised.folders import GRACE_SECONDS, identity_of, lock
from clotho.sandbox.supervised.launch import private

log = logging.getLogger("clotho")


class PlacedConfig(Protocol):
    """The fields that configurations of relayed sandboxes have in common."""

    @property
    def kind(self) -> str: ...
    @property
    def workdir(self) -> str | None: ...
    @property
    def home(self) -> str: ...
    @property
    def user(self) -> str | None: ...


def placed(spec: SandboxSpec) -> PlacedConfig:
    """The configuration of a relayed sandbox."""
    return cast(PlacedConfig, spec.backend)


class Instance(FrozenModel):
    """A machine with a supervisor."""

    machine: str
    token: str
    """The secret that its relays prove themselves with."""
    private: str | None = None
    """The folder of a verifier's own files, whose name was drawn when it was made."""


class RelayRecord(FrozenModel):
    lease: str
    labels: Labels | None
    spec: SandboxSpec
    base: Base
    workdir: str
    agent: Instance
    verifiers: dict[int, Instance] = {}
    begun: Instance | None = None
    """A verifier's whose machine may be there, and that may never be whole."""
    restored: str | None = None
    """Digest of the checkpoint that it was made from."""

    @property
    def config(self) -> PlacedConfig:
        return placed(self.spec)

    @property
    def home(self) -> str:
        return self.base.home or self.config.home

    @property
    def instances(self) -> tuple[Instance, ...]:
        return (self.agent, *self.verifiers.values(), *([] if self.begun is None else [self.begun]))

    @property
    def user(self) -> str:
        """The user, by name or id; the group that an image names is left out."""
        return self.config.user or self.base.user.partition(":")[0] or "0"


@dataclass(frozen=True)
class RelayFolder:
    """The files of one sandbox under a backend's root."""

    root: Path
    name: str

    @classmethod
    def of_lease(cls, root: Path, lease: str) -> "RelayFolder":
        return cls(root, hashlib.sha256(lease.encode()).hexdigest()[:20])

    @classmethod
    def of_machine(cls, root: Path, machine: str) -> "RelayFolder":
        """The folder of a machine's sandbox: a verifier's is named after its agent's."""
        return cls(root, machine.split("-")[2])

    @classmethod
    def all(cls, root: Path) -> Iterator["RelayFolder"]:
        return (cls(root, path.name) for path in root.glob("sandboxes/*"))

    @property
    def files(self) -> Path:
        return self.root / "sandboxes" / self.name

    @property
    def machine(self) -> str:
        """Name of the agent's machine: another host may have a lease of the same name."""
        return f"clotho-{scope(self.root)}-{self.name}"

    @contextmanager
    def locked(self, *, wait: bool = True) -> Iterator[bool]:
        """The lock under which the sandbox is made or ended; yields whether it is held."""
        locks = self.root / "locks"
        locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(locks / self.name[:4], wait=wait) as held:
            yield held

    def create(self) -> None:
        self.files.mkdir(mode=0o700, parents=True)

    def delete(self) -> None:
        shutil.rmtree(self.files, ignore_errors=True)

    # ---- the record ----

    def read_record(self) -> RelayRecord | None:
        """None where there is no sandbox, or one that was never finished.

        Raises SandboxUnavailable for one that a worker of another version made: it may be in use.
        """
        try:
            return RelayRecord.model_validate_json((self.files / "sandbox.json").read_text())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise SandboxUnavailable(
                f"sandbox {self.name} is of another version: {field_errors(error, 'its record')}"
            ) from error

    def readable_record(self) -> RelayRecord | None:
        """None also for a sandbox of another version, which is logged."""
        try:
            return self.read_record()
        except SandboxUnavailable as error:
            log.warning("%s", error)
            return None

    def record_of(self, lease: str) -> RelayRecord:
        record = self.read_record()
        if record is None:
            raise SandboxLost(f"no sandbox of lease {lease} on this host")
        return record

    def write_record(self, record: RelayRecord) -> None:
        unfinished = self.files / ".sandbox.json"
        with open(unfinished, "w", opener=private) as file:
            file.write(record.model_dump_json())
        unfinished.rename(self.files / "sandbox.json")

    def labelled(self, record: RelayRecord, labels: Labels | None) -> RelayRecord:
        """The record with `labels`, to be called with the folder's lock held."""
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

    # ---- the lease ----

    def set_deadline(self, seconds: float) -> None:
        """Raises SandboxLost where the sandbox was destroyed."""
        file, end = self.files / "deadline", time.time() + seconds
        try:
            file.touch()
            os.utime(file, (end, end))
        except FileNotFoundError:
            raise SandboxLost("the sandbox was destroyed") from None

    def expiry(self) -> float:
        """Unix seconds of the lease's end; without a deadline, the age of its folder."""
        for path in (self.files / "deadline", self.files):
            try:
                return path.stat().st_mtime
            except FileNotFoundError:
                continue
        return 0.0

    def is_left(self) -> bool:
        """Whether a sandbox is expired or unfinished. Ask again with the lock held: its maker has died then."""
        if not self.files.exists():
            return False
        unfinished = not (self.files / "sandbox.json").exists()
        return unfinished or self.expiry() + GRACE_SECONDS < time.time()


def scope(root: Path) -> str:
    """Tells the machines of one backend from those of others on the same platform, wherever `root` is mounted."""
    return identity_of(root)[:8]

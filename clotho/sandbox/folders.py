"""Where a local sandbox keeps what: its files on one side, which it sees, and its control directories on another.

Names of folders say nothing about the rollout: a sandbox can read them from its list of mounts.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from clotho.records.base import Record
from clotho.sandbox.base import Labels, SandboxSpec

AGENT = "agent"


class SandboxRecord(Record):
    """What is known of a sandbox by whoever finds its folder."""

    lease: str
    labels: Labels | None = None
    spec: SandboxSpec
    user: int | None
    """The user it runs as, None where that is the worker's own."""
    isolated: bool
    disk_image: bool
    """Whether its files, and its control directories, are on disks of their own, in images."""


@dataclass(frozen=True)
class SandboxFolder:
    """The paths of one sandbox under a backend's root."""

    root: Path
    name: str

    @classmethod
    def of_lease(cls, root: Path, lease: str) -> "SandboxFolder":
        return cls(root, hashlib.sha256(lease.encode()).hexdigest()[:20])

    @property
    def files(self) -> Path:
        return self.root / "sandboxes" / self.name

    @property
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
    def etc(self) -> Path:
        return self.files / "etc"

    def verifier_home(self, epoch: int) -> Path:
        return self.disk / f"verifier-{epoch}"

    def hidden_files(self, epoch: int) -> Path:
        return self.files / f"hidden-{epoch}"

    @property
    def controls(self) -> Path:
        """Holds the control directories: on a disk of their own, which a full workspace leaves alone."""
        return self.root / "control" / self.name

    @property
    def control_image(self) -> Path:
        return self.files / "control.img"

    def instances(self) -> list[Path]:
        """The control directories of the agent's instance and of verifiers."""
        return [self.control(), *self.controls.glob("verifier-*")]

    def control(self, instance: str = AGENT) -> Path:
        return self.controls / instance

    def verifier_control(self, epoch: int) -> Path:
        return self.controls / f"verifier-{epoch}"

    def verifier_epochs(self) -> list[int]:
        return [int(path.name.partition("-")[2]) for path in self.controls.glob("verifier-*")]

    @property
    def control_group(self) -> str:
        """Control groups are the machine's: another backend there may hold a lease of the same name."""
        return f"{self.name}-{hashlib.sha256(str(self.root).encode()).hexdigest()[:8]}"

    @property
    def lock(self) -> Path:
        """Serialises making and ending sandboxes; shared by some, so that their number is bounded."""
        return self.root / "locks" / self.name[:3]

    def read_record(self) -> SandboxRecord | None:
        """None where there is no sandbox, or one that was never finished."""
        try:
            return SandboxRecord.model_validate_json((self.files / "sandbox.json").read_text())
        except (FileNotFoundError, ValidationError):
            return None

    def write_record(self, record: SandboxRecord) -> None:
        unfinished = self.files / ".sandbox.json"
        unfinished.write_text(record.model_dump_json())
        unfinished.rename(self.files / "sandbox.json")

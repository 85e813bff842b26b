"""The folders of a local sandbox: its files, which it sees, and its control directories, which it doesn't.

Names of folders say nothing about the rollout: a sandbox can read them from its list of mounts.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from clotho.sandbox.backend import AGENT_HOME, WORKSPACE, SandboxSpec
from clotho.sandbox.supervised.control import ControlDirectory
from clotho.sandbox.supervised.folders import SupervisedFolder, SupervisedRecord


class SandboxRecord(SupervisedRecord):
    """The record of a sandbox, in its folder."""

    user: int | None
    """The user that commands run as, None where that is the worker's own."""
    supervisor: int | None = None
    """The user of its supervisors, None where that is the commands'."""
    isolated: bool
    disk_image: bool
    """Whether its files, and its control directories, are on disks of their own, in images."""

    def control_at(self, path: Path) -> ControlDirectory:
        return ControlDirectory(path, self.user if self.supervisor is None else self.supervisor, self.user)


@dataclass(frozen=True)
class SandboxFolder(SupervisedFolder[SandboxRecord]):
    """The paths of one sandbox under a backend's root."""

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
    def programs(self) -> Path:
        """Names for programs that this host has under other ones, where there is no isolated view."""
        return self.files / "programs"

    def root_folder(self, number: int) -> Path:
        """Holds what is written to the spec's writable root of that number."""
        return self.disk / f"root-{number}"

    def writable(self, spec: SandboxSpec) -> dict[str, Path]:
        """Writable folders, keyed by the first path at which commands see them."""
        further = {path: self.root_folder(number) for number, path in enumerate(spec.writable_roots)}
        return {WORKSPACE: self.workspace, AGENT_HOME: self.home, "/tmp": self.tmp, **further}

    @property
    def reserve(self) -> Path:
        """Room on the disk that the agent can't use up: given back when a verifier opens."""
        return self.disk / "reserve"

    def all_private(self) -> list[Path]:
        return list(self.files.glob("private-*"))

    @property
    def controls(self) -> Path:
        """Holds the control directories: on a disk of their own, which a full workspace leaves alone."""
        return self.root / "control" / self.name

    @property
    def control_image(self) -> Path:
        return self.files / "control.img"

    @property
    def control_group(self) -> str:
        """Control groups are the machine's: another backend there may hold a lease of the same name."""
        return f"{self.name}-{hashlib.sha256(str(self.root).encode()).hexdigest()[:8]}"

    def _parsed(self, text: str) -> SandboxRecord:
        return SandboxRecord.model_validate_json(text)

"""The record of a sandbox elsewhere, in a folder of this host: which machines it has, and how they are reached."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from clotho.errors import SandboxLost
from clotho.frozen_model import FrozenModel
from clotho.plugins.containers.relay.machine import Base
from clotho.sandbox.backend import SandboxSpec
from clotho.sandbox.supervised.folders import FolderRecord, LeaseFolder, identity_of


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


class RelayRecord(FolderRecord):
    base: Base
    workdir: str
    agent: Instance
    verifiers: dict[int, Instance] = {}
    begun: Instance | None = None
    """A verifier's whose machine may be there, and that may never be whole."""

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
class RelayFolder(LeaseFolder[RelayRecord]):
    """The files of one sandbox under a backend's root."""

    @classmethod
    def of_machine(cls, root: Path, machine: str) -> "RelayFolder":
        """The folder of a machine's sandbox: a verifier's is named after its agent's."""
        # clotho-SCOPE-NAME, or clotho-SCOPE-NAME-vEPOCH: none of the parts has a dash
        return cls(root, machine.split("-")[2])

    @property
    def machine(self) -> str:
        """Name of the agent's machine: another host may have a lease of the same name."""
        return f"clotho-{scope(self.root)}-{self.name}"

    def create(self) -> None:
        self.files.mkdir(mode=0o700, parents=True)

    def _parsed(self, text: str) -> RelayRecord:
        return RelayRecord.model_validate_json(text)

    def set_deadline(self, seconds: float) -> None:
        """Raises SandboxLost where the sandbox was destroyed."""
        [file], end = self.deadlines(), time.time() + seconds
        try:
            file.touch()
            os.utime(file, (end, end))
        except FileNotFoundError:
            raise SandboxLost("the sandbox was destroyed") from None

    def deadlines(self) -> list[Path]:
        return [self.files / "deadline"]


def scope(root: Path) -> str:
    """Tells the machines of one backend from those of others on the same platform, wherever `root` is mounted."""
    return identity_of(root)[:8]

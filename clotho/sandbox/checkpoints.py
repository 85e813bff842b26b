"""Checkpoints and manifests of a sandbox: their descriptions, without content."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clotho.frozen_model import FrozenModel
from clotho.sandbox.states import JobState


class ShellState(FrozenModel):
    """The shell state that the next command starts from. Texts are bytes, one character each (Latin-1)."""

    job: str
    """Key of the job that left it: for the one that comes `after` it."""
    cwd: str
    exports: str
    """The exports as bash's `export -p` prints them."""
    workspace: str
    """Path of the workspace, as commands saw it."""


class KeptSession(FrozenModel):
    """A background job as it was at the checkpoint: one that ran then is lost in a restored sandbox."""

    key: str
    identity: str
    """Hash of the command."""
    session: str
    script: str
    started: float
    """Unix seconds."""
    state: JobState
    exit_code: int | None


class KeptSystem(FrozenModel):
    """The changes of commands to an image's own system, as an image of the engine that made the sandbox."""

    image: str
    state: str
    """Digest of the names, sizes and times of what was changed; empty where the engine doesn't show them."""


class Checkpoint(FrozenModel):
    """An archive of workspace, HOME and /tmp, and what belongs to it.

    Of jobs and file writes it keeps only what a later call may ask for: a restored sandbox has keys of its own.
    """

    digest: str
    """SHA-256 of the archive before compression: the address of its blob."""
    size: int
    """Bytes of the blob."""
    content_size: int
    """Bytes of the archive before compression."""
    exact: bool
    """True if nothing ran, and nothing had been left outside of the archived folders."""
    fingerprint: str
    """Digest of names, sizes and change times: it stays the same as long as no file of this sandbox changes."""
    shell: ShellState | None
    sessions: tuple[KeptSession, ...]
    system: KeptSystem | None = None
    """None where no engine keeps it, and where it is as in the beginning."""


class NotTaken(FrozenModel):
    """Why there is no checkpoint: the sandbox is as it was, and goes on."""

    reason: Literal["too_large", "too_slow"]
    size: int
    """Bytes that the archive would have had, or had when its time was over."""


@dataclass(frozen=True)
class Restore:
    """A checkpoint and the file with its blob, from which a new sandbox is made."""

    checkpoint: Checkpoint
    blob: Path


@dataclass(frozen=True)
class Manifest:
    """The files of a workspace: equal ones hold the same files, with the same modes and contents."""

    digest: str
    """SHA-256 of the whole listing."""
    listing: bytes
    """`mode size hash path` and a NUL for each file; only the beginning of a very long listing."""

"""A rollout's lease on a sandbox, and its checkpoint before verification."""

from enum import StrEnum

from clotho.frozen_model import FrozenModel
from clotho.sandbox.checkpoints import Checkpoint


class Fidelity(StrEnum):
    """How well a sandbox that followed a lost one was made to be what that was."""

    EXACT = "exact"
    RESTORED = "restored"
    """From a checkpoint beside which something ran, or lay, that it doesn't hold; or with other programs."""
    REPLAYED = "replayed"
    """Commands since the checkpoint were run again, and came to the same."""
    DIVERGED = "diverged"
    """They came to something else."""


class Lease(FrozenModel):
    """A sandbox held by a rollout: its number, and the queue of the host it lives on."""

    number: int
    queue: str
    fidelity: Fidelity | None = None


class LeaseRequest(FrozenModel):
    run: str
    rollout: str
    number: int = 0
    turns: int = 0
    """How many turns were sampled: what a lease after the first is restored to."""


class HostCheck(FrozenModel):
    rollout: str
    queue: str


class ReleaseRequest(FrozenModel):
    rollout: str
    number: int


class CheckpointEntry(FrozenModel):
    """The sandbox as it was before verification; None where none could be taken."""

    checkpoint: Checkpoint | None


class LeaseEntry(FrozenModel):
    """Which sandbox a lease is."""

    incarnation: str
    queue: str
    """Of the host it is on."""
    system: str
    """Of that host, as sandboxes see it: its release and packages, as a fingerprint."""
    fidelity: Fidelity | None = None
    """How well it was restored, where it follows a lost one."""
    made: str = ""
    """The last call whose effect it started with, by a checkpoint or by a replay."""
    shell: str | None = None
    """The job, in this sandbox, that left the shell as it was when the last of these had been made."""

"""A rollout's hold on a sandbox: what is asked of its host, and how well it stands in for a lost one."""

from enum import StrEnum

from clotho.records.base import Record


class Fidelity(StrEnum):
    """How well a sandbox that followed a lost one was made to be what that was."""

    EXACT = "exact"
    RESTORED = "restored"
    """From a checkpoint beside which something ran, or lay, that it doesn't hold; or with other programs."""
    REPLAYED = "replayed"
    """Commands since the checkpoint were run again, and came to the same."""
    DIVERGED = "diverged"
    """They came to something else."""


class Lease(Record):
    """A sandbox held by a rollout: its number, and the queue of the host it lives on."""

    number: int
    queue: str
    fidelity: Fidelity | None = None


class LeaseRequest(Record):
    run: str
    rollout: str
    number: int = 0
    turns: int = 0
    """How many turns were sampled: what a lease after the first is restored to."""


class HostCheck(Record):
    rollout: str
    queue: str


class ReleaseRequest(Record):
    rollout: str
    number: int

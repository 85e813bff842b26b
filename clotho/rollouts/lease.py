"""A rollout's lease on a sandbox, and its checkpoint before verification."""

from typing import Annotated

from clotho_client.rows import Fidelity as Fidelity

from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.rollouts.step_request import StepRequest
from clotho.sandbox.checkpoints import Checkpoint
from clotho.sandbox.exhaustion import Evidence


class Lease(FrozenModel):
    """A sandbox held by a rollout: its number, and the queue of the host it lives on."""

    number: int
    queue: str
    fidelity: Fidelity | None = None
    reclaimed: Annotated[int, WHERE_SET] = 0
    """Number of earlier sandboxes that were not lost, but given back while they were idle."""
    proven: Annotated[bool, WHERE_SET] = False
    """Whether a loss that its commands caused can be told from one that its host caused."""


class LeaseRequest(StepRequest):
    number: int = 0
    turns: int = 0
    """Turns sampled so far: the state that a later lease is restored to."""


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
    """The sandbox of a lease."""

    incarnation: str
    queue: str
    """The queue of its host."""
    system: str
    """Fingerprint of the programs that the sandbox sees beside its own files."""
    fidelity: Fidelity | None = None
    """The fidelity of the sandbox, if it replaces a lost one."""
    reclaimed: int = 0
    """Number of earlier sandboxes that were not lost, but given back while they were idle."""
    replayed_through: str = ""
    """The last call whose effect it started with, from a checkpoint or a replay."""
    evidence: frozenset[Evidence] = frozenset()
    """Ways for its commands to end it that are told from its host's doing."""
    shell: str | None = None
    """The job, in this sandbox, that left the shell as it was after that call."""


class ReclaimedEntry(FrozenModel):
    """An idle sandbox was given back, and nothing was lost by it."""

    lease: int
    through: str
    """The last call made in it; empty if there was none."""
    checkpoint: Checkpoint
    """The sandbox after that call."""

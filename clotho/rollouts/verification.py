"""Verification of a rollout: its request, its result, and its journal entries."""

from typing import Annotated

from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.rollouts.lease import Lease
from clotho.rollouts.outcome import Ending
from clotho.rollouts.step_request import StepRequest


class RewardRequest(StepRequest):
    ending: Ending
    turns: int
    lease: Lease | None
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""
    shell: str | None = None
    """The call that last ran a command: verification starts in the directory that it left."""
    exhausted: str | None = None
    """The resource that verification exhausted each time it lost its sandbox: the score is then 0."""


class RewardResult(FrozenModel):
    score: float
    lease: Lease | None
    """The sandbox it verified in, which verification may have opened itself."""


class EpochEntry(FrozenModel):
    """An epoch of verification was given up; the next one begins from what the agent left."""

    reason: str
    lease: int | None = None
    """The number of the lease whose sandbox it may have changed."""
    claim: int = 0
    """The claim of the process that gave it up."""
    conflict: bool = False
    """Whether the author's code took another way than in an earlier attempt."""
    exhausted: str | None = None
    """The resource that its sandbox for grading had used up, where it was lost."""
    grading_lost: bool = False
    """Whether its sandbox for grading was lost."""


class OpenedEntry(FrozenModel):
    """An epoch of verification has opened a sandbox: another incarnation of it lacks what the epoch did there."""

    incarnation: str


class RaisedEntry(FrozenModel):
    """An exception of the verifier's."""

    reason: str


class ArtifactFile(FrozenModel):
    name: str
    size: int
    """Bytes."""
    sha256: str


class ArtifactArchive(FrozenModel):
    """Files of a rollout's sandbox that were kept, in one archive."""

    sha256: str
    """SHA-256 of the archive, a zstandard-compressed tar: its address in the run."""
    files: tuple[ArtifactFile, ...]


class RewardEntry(FrozenModel):
    score: float
    breakdown: dict[str, float]
    log: str
    lease: Lease | None
    epoch: int
    seconds: float
    error: str | None = None
    """The verifier's failure, where the score is 0 for that reason alone."""
    refused: str | None = None
    """The reason why the agent's files could not be verified, where the score is 0 for that alone."""
    artifacts: ArtifactArchive | None = None
    """The archive of files that the rollout left; None where there are none."""
    claim: int = 0
    """How often another process had taken the verification over."""
    verifier_failed: Annotated[str | None, WHERE_SET] = None
    """The verifier's failure, where it is the agent's doing: the score is 0 for that alone."""
    code: Annotated[str, WHERE_SET] = ""
    """The fingerprint of the environment's code that computed it; empty where the code isn't kept."""
    in_agents_instance: bool = False
    """True if verified beside the agent's own processes, which the environment asked to keep."""

"""The rows that trainers train on, and the names of what befell their rollouts."""

from enum import StrEnum
from typing import Literal

from clotho_client.message import Answer, Message

LogprobsMode = Literal["raw", "processed", "unknown"]
"""Logprobs of the model at temperature 1, or of the distribution that was sampled from."""


class VersionSpan(Message):
    """Tokens [start, end) of a turn were sampled from weights `version`.

    It is the server's name of them, or, for a server that names none, `step:` and the trainer's step.
    """

    version: str
    start: int
    end: int


class Outcome(StrEnum):
    """The outcome of a scored rollout. Cancelled and failed ones end as workflow states instead."""

    COMPLETED = "completed"
    LIMIT_REACHED = "limit_reached"
    CONTEXT_OVERFLOW = "context_overflow"
    POLICY_KILLED = "policy_killed"


class Fidelity(StrEnum):
    """The degree to which a restored sandbox equals the lost one."""

    EXACT = "exact"
    RESTORED = "restored"
    """Restored from a checkpoint that lacks processes or files of the sandbox; or on a host with other programs."""
    REPLAYED = "replayed"
    """Commands since the checkpoint were run again, with the same results."""
    DIVERGED = "diverged"
    """Commands were run again, with other results."""


class Disturbance(StrEnum):
    """What happened to a scored rollout, by which inexact ones can be left out of training data."""

    SANDBOX_LOST = "sandbox_lost"
    """A sandbox was lost; one of the next three is added if the restored one differed."""
    RESTORED = "restored"
    REPLAYED = "replayed"
    DIVERGED = "diverged"
    RESUMED = "resumed"
    """A turn was interrupted, and continued from its tokens."""
    REPAIRED = "repaired"
    """The rollout failed, and continued from its last journalled turn."""
    REPLACED = "replaced"
    """The rollout replaced a failed sibling from scratch, which favours short ones."""
    UNPROVED = "unproved"
    """It ended `policy_killed`, and it is not proved that its commands, and not their host, ended the sandboxes."""
    REWARD_ERROR = "reward_error"
    """The score is 0 because the verifier failed."""
    VERIFIER_FAILED = "verifier_failed"
    """The score is 0 because the agent made the verifier fail: the same tests end without its files."""
    VERIFIED_AGAIN = "verified_again"
    """Verification began anew from the agent's last state, or another process took it over."""


class TrainingRow(Answer):
    """One sequence to train on. `ids`, `mask` and `logprobs` are equally long."""

    group: str
    """The group's id."""
    item: str
    """The name of the group's item: its `id`, or a hash of its content."""
    rollout: str
    """The sibling whose reward this is."""
    branch: int
    """Number of the row among those of its rollout."""
    sampled_by: str | None
    """The rollout that sampled the tokens: its own, or a child; None for a row without tokens."""
    ids: tuple[int, ...] = ()
    """The tokens, as the server consumed and sampled them."""
    mask: tuple[bool, ...] = ()
    """True for each sampled token: those are trained on."""
    logprobs: tuple[float, ...] = ()
    """Natural logarithm, as the server returned it; 0.0 where not sampled."""
    logprobs_mode: LogprobsMode | None = None
    """What the logprobs are of; None where the row's turns differ."""
    temperature: float | None = None
    """The temperature of every sampled token; None where they differ."""
    versions: tuple[VersionSpan, ...] = ()
    """Positions whose weight version is known, in order."""
    versions_known: bool = True
    """Whether the weight version of every sampled token is known."""
    reward: float
    """The rollout's. Advantages are the trainer's."""
    outcome: Outcome
    """How the rollout ended."""
    limit: str | None
    """The limit that ended the rollout, if one did."""
    disturbances: tuple[Disturbance, ...] = ()
    """What happened to the rollout, or its children, on the way."""
    sandbox_losses: tuple[Fidelity, ...] = ()
    """Fidelity of each sandbox that replaced a lost one."""
    resumed_turns: int = 0
    """Turns that were interrupted and continued from their tokens."""
    repairs: int = 0
    """Repairs of its group that led to the rollout."""
    replacement_of: str | None = None
    """The failed rollout that it replaced from scratch, if it did."""
    excluded: bool = False
    """The rollout is left out because of its disturbances: only its reward counts, in its group."""

    @property
    def weight_versions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(span.version for span in self.versions))

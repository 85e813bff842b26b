"""What a rollout may spend, and what it comes to."""

from enum import StrEnum

from clotho.frozen_model import FrozenModel


class Limits(FrozenModel):
    """What a rollout may spend; all of it counts journalled active work, never outages or pauses."""

    max_turns: int = 30
    max_sampled_tokens: int | None = None
    max_active_seconds: float | None = None
    max_calls_per_turn: int = 64
    """The tool calls of a turn that are run; the model is told of those after them."""
    keep_diverged: bool = True
    """Whether a rollout goes on in a sandbox that is not what its lost one was; it is marked in any case."""


class Outcome(StrEnum):
    """What a scored rollout came to. Cancelled and infrastructure-failed ones end as workflow states instead."""

    COMPLETED = "completed"
    LIMIT_REACHED = "limit_reached"
    CONTEXT_OVERFLOW = "context_overflow"
    POLICY_KILLED = "policy_killed"


class Ending(FrozenModel):
    """How the agent's part of a rollout ended."""

    outcome: Outcome
    limit: str | None = None
    """Set for LIMIT_REACHED: which one; for POLICY_KILLED: what ran out (memory, processes, disk), if known."""

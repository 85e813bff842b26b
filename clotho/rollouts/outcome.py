"""Limits and outcomes of rollouts."""

from typing import Annotated

from clotho_client.rows import Outcome as Outcome

from clotho.frozen_model import WHERE_SET, FrozenModel
from clotho.rollouts.budget import Budget


class Limits(FrozenModel):
    """Limits of a rollout, in journalled active work: outages and pauses don't count.

    `RolloutState.limit_met` looks at those of turns, tokens and time, and at the budget, before each turn.
    A rollout that has met one ends, and is verified. Commands get what is left of the time
    (`RolloutState.seconds_left`), children what is left of all (`RolloutState.limits_of_child`).
    A run has a budget, which pauses it (`RunBudget`).
    """

    max_turns: int = 30
    max_sampled_tokens: int | None = None
    max_active_seconds: float | None = None
    max_calls_per_turn: int = 64
    """Tool calls of a turn that are run; the model is told that the others weren't."""
    parallel_tools: bool = False
    """Whether calls of a turn that only read may run side by side."""
    keep_diverged: bool = True
    """Whether a rollout goes on in a sandbox that is not what its lost one was; it is marked in any case."""
    rollout_budget: Annotated[Budget | None, WHERE_SET] = None
    """Spending after which a rollout is ended and verified."""


UNPROVED = "unproved"
"""The limit of a POLICY_KILLED where the backend can't tell whether commands or their host ended the sandboxes."""


class Ending(FrozenModel):
    """The end of the agent's part of a rollout."""

    outcome: Outcome
    limit: str | None = None
    """Set for LIMIT_REACHED: which one; for POLICY_KILLED: what commands ran out of (memory, processes, disk),
    `disrupted` where they kept their sandbox from serving, or UNPROVED."""

"""Items of a finished evaluation as `Environment.evaluate` sees them."""

from pydantic import TypeAdapter

from clotho.frozen_model import FrozenModel
from clotho.rollouts.item import Item
from clotho.rollouts.outcome import Outcome


class EvaluatedRollout(FrozenModel):
    """A scored rollout."""

    score: float
    breakdown: dict[str, float]
    outcome: Outcome
    limit: str | None
    """The limit that ended the rollout, if one did."""
    turns: int
    sampled_tokens: int
    tool_errors: int


class EvaluatedItem(FrozenModel):
    item: Item
    rollouts: tuple[EvaluatedRollout, ...]
    """All of them are scored: an item of which one failed is left out."""


EVALUATED = TypeAdapter(list[EvaluatedItem])

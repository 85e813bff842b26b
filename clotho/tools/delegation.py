"""Settings of `delegate_task`, and what became of a delegated task."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from clotho.frozen_model import FrozenModel


class DelegationSettings(FrozenModel):
    """Settings of the rollouts that do delegated tasks: the children of those that delegate."""

    depth: int = Field(default=1, ge=1, le=4)
    """How often a task may be delegated: with 1, children don't delegate."""
    children: int = Field(default=8, ge=1, le=100)
    """Tasks that one rollout may delegate."""
    turns: int = Field(default=15, ge=1)
    """Turns after which a child ends."""
    tools: tuple[str, ...] | None = None
    """Toolsets that children may be offered; None: those of their parents."""
    sandbox: Literal["own", "shared"] = "own"
    """Whether a child has a sandbox of its own, with the item's files, or works in its parent's."""
    attributed: bool = False
    """Whether children's tokens are trained on, with the reward of the rollout that their tasks come from."""


@dataclass(frozen=True)
class DelegatedTask:
    """The end of a delegated task, or the reason why it wasn't begun."""

    refused: str | None = None
    status: str = ""
    """The outcome of the child."""
    limit: str | None = None
    """The limit that it met, or the resource that ran out."""
    turns: int = 0
    said: str = ""
    """Its last message."""

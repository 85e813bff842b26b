"""Delegated tasks: the call that delegates one, the child that does it, and what that leaves."""

from typing import Annotated

from clotho.frozen_model import WHERE_SET, FrozenModel, Seconds
from clotho.rollouts.budget import Calls, Cost
from clotho.rollouts.lease import Fidelity, Lease


class DelegationEntry(FrozenModel):
    """Result of the step before a call that delegates: the child, or why there is none."""

    child: str | None
    """The rollout that does the task; None: the call is refused."""
    refused: str | None = None
    """The reason that the model reads."""
    turns: int = 0
    """Turns that the child may take."""
    shared: bool = False
    """The child works in the sandbox of its parent."""


class DelegatedPrompt(FrozenModel):
    """The part of a child's prompt that other rollouts don't have."""

    parent: str
    call: str
    """The parent's call that delegated the task."""
    tools: tuple[str, ...]
    """The names of the tools that it is offered, of its group's."""


class SharedSandbox(FrozenModel):
    """A sandbox that a child works in, and which another rollout holds."""

    owner: str
    """The rollout that holds its leases: the parent, or the one in whose sandbox that works."""
    turns: int
    """The owner's turns so far."""


class LeftSandbox(FrozenModel):
    """A shared sandbox as a child leaves it: its parent goes on there."""

    lease: Lease | None
    losses: tuple[Fidelity, ...]
    checkpoint: str | None
    """The place of the call after which it was last checkpointed."""
    shell: str | None
    """The place of the call that last ran a command."""


class DelegatedWork(FrozenModel):
    """A child's use of its parent's limits, its own children included."""

    sampled_tokens: int
    active_seconds: Seconds
    prompt_tokens: Annotated[int, WHERE_SET] = 0
    cost: Cost = 0.0
    calls: Calls = {}
    left: LeftSandbox | None = None
    """None where it had a sandbox of its own."""

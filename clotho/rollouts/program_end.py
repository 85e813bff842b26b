"""The request to run an agent's program in one sandbox, how it ends there, and the workflow's answers meanwhile."""

from typing import Annotated

from clotho.frozen_model import WHERE_SET, FrozenModel, Seconds
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.step_request import StepRequest


class ProgramRequest(StepRequest):
    lease: int
    asked: Annotated[tuple[int, ...], WHERE_SET] = ()
    """The turns that the workflow has counted: it is asked for the others that the journal has."""
    seconds_left: float | None = None
    """Seconds of active work left to the rollout; None: no limit."""


class ProgramEnd(FrozenModel):
    """The end of a program in one sandbox."""

    exit_code: int
    seconds: Seconds
    """Its own work: without the time in which it waited for the model."""
    limit: Annotated[str | None, WHERE_SET] = None
    """The limit at which it was ended."""
    context_overflow: Annotated[bool, WHERE_SET] = False
    """Its last call didn't fit into the model's context."""
    replayed: Annotated[Fidelity | None, WHERE_SET] = None
    """In a sandbox that replaced a lost one: whether its calls were those of the earlier start, REPLAYED, or
    another way was taken, DIVERGED."""


class AskedTurn(FrozenModel):
    """The workflow's answer to a program that asks for a turn; the journal has the turn itself."""

    limit: Annotated[str | None, WHERE_SET] = None
    """The limit that leaves no room for it."""
    failed: Annotated[bool, WHERE_SET] = False
    """The rollout fails: there will be no turn."""

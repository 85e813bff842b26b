"""A turn: its request, its result, and its journal entry."""

from typing import Annotated

from clotho.frozen_model import WHERE_FALSE, WHERE_SET, FrozenModel, Seconds
from clotho.models.backend import SampledTurn
from clotho.models.messages import CallDefects, ToolCall
from clotho.rollouts.budget import Cost
from clotho.rollouts.step_request import StepRequest


class ModelProcessRequest(FrozenModel):
    """A request for a process to sample a rollout's turns: the one at `queue`, while it is alive."""

    rollout: str
    queue: str | None


class TurnRequest(StepRequest):
    turn: int
    next_home: Annotated[str | None, WHERE_SET] = None
    """The queue of the process that would sample the turn after this one; None: of the one that samples this."""
    asked: Annotated[bool, WHERE_SET] = False
    """Whether the agent's program asked for it; else it follows from the turns before."""


class FirstTurnRequest(TurnRequest):
    """A request to begin a rollout, with the first turn that its workflow samples."""

    sample: bool
    """Whether the turn is sampled, if the rollout has no end yet."""


class ChosenProcess(FrozenModel):
    """The process that samples the turns of one run of a rollout's workflow."""

    queue: str


class ToolCallReference(FrozenModel):
    """One tool call of a turn. Its arguments stay in the journal."""

    name: str
    """Bounded and escaped: a model invents it."""
    sandboxed: Annotated[bool, WHERE_FALSE] = True
    delegates: Annotated[bool, WHERE_SET] = False
    """Whether a child does a task before the call is made."""
    command: Annotated[str, WHERE_SET] = ""
    """The beginning of its command, bounded and redacted; empty where there is none, or workers show none."""


class TurnResult(FrozenModel):
    tool_calls: tuple[ToolCallReference, ...]
    batches: Annotated[tuple[int, ...], WHERE_SET] = ()
    """Numbers of the calls that run side by side, in their order; none: each runs alone."""
    context_overflow: Annotated[bool, WHERE_SET] = False
    truncated: Annotated[bool, WHERE_SET] = False
    """The answer was cut off at the turn's token limit."""
    resumed: Annotated[bool, WHERE_SET] = False
    """True if the turn was interrupted, and continued from its journalled tokens."""
    prompt_tokens: int
    sampled_tokens: int
    seconds: Seconds
    cost: Cost = 0.0
    """US dollars, where the rollout has a budget of them."""
    next_home: Annotated[str, WHERE_SET] = ""
    """The turn's `TurnEntry.next_home`, where that isn't the process that returns this."""
    silence: Annotated[int, WHERE_SET] = 0
    """Seconds for which the next turn may be silent; 0 as usual."""
    defective_calls: Annotated[int, WHERE_SET] = 0
    """Calls that are not run, or not as the model wrote them."""


class TurnEntry(FrozenModel):
    """A sampled turn, or a context overflow."""

    sampled: SampledTurn | None
    context_overflow: str | None = None
    """The model server's words."""
    next_home: str = ""
    """The queue of the process that may begin the next turn; others ask it to, while it lives."""

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        return self.sampled.message.tool_calls if self.sampled is not None else ()

    @property
    def defects(self) -> CallDefects:
        return self.sampled.defects if self.sampled is not None else CallDefects()

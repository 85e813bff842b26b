"""What the steps of a rollout are asked and answer: turns, tool calls, verification."""

from clotho.records.base import Record, Seconds
from clotho.records.lease import Fidelity, Lease
from clotho.records.outcome import Ending


class ModelProcessRequest(Record):
    """Which process shall sample a rollout's turns: the one at `queue`, while it is there."""

    rollout: str
    queue: str | None


class TurnRequest(Record):
    run: str
    rollout: str
    turn: int


class ToolCallReference(Record):
    """One tool call of a turn. Its arguments stay in the journal."""

    name: str
    """Bounded and escaped: a model invents it."""
    sandboxed: bool


class TurnResult(Record):
    tool_calls: tuple[ToolCallReference, ...]
    context_overflow: bool
    truncated: bool
    """The answer was cut off at the turn's token limit."""
    prompt_tokens: int
    sampled_tokens: int
    seconds: Seconds


class CallRequest(Record):
    run: str
    rollout: str
    turn: int
    index: int
    lease: int | None
    """The number of the one that it is made under; None for a tool that needs no sandbox."""
    tool_state: dict[str, str]
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""


class CallResult(Record):
    call: str
    failed: bool
    seconds: Seconds
    wrote_state: tuple[str, ...] = ()
    """The slots of tool state that this call wrote."""
    checkpointed: bool = False
    replayed: Fidelity | None = None
    """Set where it was made in a lost sandbox, known of only now, and made again in this one: what that came to."""


class RewardRequest(Record):
    run: str
    rollout: str
    ending: Ending
    turns: int
    lease: Lease | None
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""


class RewardResult(Record):
    score: float
    lease: Lease | None
    """The sandbox it verified in, which verification may have opened itself."""

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
    resumed: bool = False
    """It was interrupted, and went on from the tokens that were journalled."""
    prompt_tokens: int
    sampled_tokens: int
    seconds: Seconds
    defective_calls: int = 0
    """Calls that are not run, or not as the model wrote them."""


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
    shell: str | None = None
    """The call that last ran a command: verification starts in the directory that it left."""
    exhausted: str | None = None
    """What verification used up each time that it lost its sandbox: it isn't tried again, and the score is 0."""


class RewardResult(Record):
    score: float
    lease: Lease | None
    """The sandbox it verified in, which verification may have opened itself."""

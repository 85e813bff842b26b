"""A tool call: its request, its result, and its journal entry."""

from pydantic import JsonValue

from clotho.frozen_model import FrozenModel, Seconds
from clotho.rollouts.lease import Fidelity
from clotho.sandbox.checkpoints import Checkpoint


class CallRequest(FrozenModel):
    run: str
    rollout: str
    turn: int
    index: int
    lease: int | None
    """The number of the one that it is made under; None for a tool that needs no sandbox."""
    tool_state: dict[str, str]
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""


class CallResult(FrozenModel):
    call: str
    failed: bool
    seconds: Seconds
    wrote_state: tuple[str, ...] = ()
    """The slots of tool state that this call wrote."""
    checkpointed: bool = False
    replayed: Fidelity | None = None
    """Set where it was made in a lost sandbox, known of only now, and made again in this one: what that came to."""


class ToolError(FrozenModel):
    """A failed tool call as an environment's author and the metrics see it."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


class CallEntry(FrozenModel):
    """A tool call that was made, and what the model is shown of it."""

    tool: str
    content: str
    error: ToolError | None
    state: dict[str, JsonValue]
    lease: int | None
    """The number of the lease in whose sandbox it was made."""
    started: float
    seconds: float
    changes: bool
    """It may have changed the sandbox, as its tool declares: what follows a lost one needs it again."""
    spilled: bool = False
    """What the model is shown is the beginning of a file in the sandbox."""
    exit_code: int | None = None
    """Of its command, where there was one. A replay is judged by it, and by whether the result names an error."""
    troubled: bool = False
    checkpoint: Checkpoint | None = None
    """Of the sandbox after this call; the blob is beside the entry."""
    manifest: str | None = None
    """Digest of the workspace after this call, where no checkpoint was taken."""

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
    """Number of the lease that the call is made under; None for a tool that needs no sandbox."""
    tool_state: dict[str, str]
    seconds_left: float | None = None
    """Of the rollout's time: a command is ended when it is over. None: no limit."""
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
    """Fidelity of replaying the call, if it was journalled by a lost sandbox after this one was restored."""


class ToolError(FrozenModel):
    """A failed tool call as an environment's author and the metrics see it."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


class CallEntry(FrozenModel):
    """A finished tool call, with the result that the model is shown."""

    tool: str
    content: str
    error: ToolError | None
    state: dict[str, JsonValue]
    lease: int | None
    """Number of the lease in whose sandbox it ran."""
    started: float
    seconds: float
    changes: bool
    """It may have changed the sandbox, as its tool declares: a restored sandbox needs it again."""
    spilled: bool = False
    """The model is shown the beginning of a file in the sandbox."""
    seconds_left: float | None = None
    """As in its request."""
    exit_code: int | None = None
    """Of its command, if there was one. A replay is compared by it, and by whether the result names an error."""
    names_error: bool = False
    checkpoint: Checkpoint | None = None
    """The sandbox after this call; the blob is beside the entry."""
    manifest: str | None = None
    """Digest of the workspace after this call, where no checkpoint was taken."""

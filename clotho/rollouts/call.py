"""A tool call: its request, its result, and its journal entry."""

from typing import TYPE_CHECKING, Annotated

from pydantic import JsonValue

from clotho.escaping import truncate_middle
from clotho.frozen_model import WHERE_SET, FrozenModel, Seconds
from clotho.identifiers.ids import call_id, place_of
from clotho.rollouts.delegation import DelegatedWork
from clotho.rollouts.lease import Fidelity
from clotho.rollouts.step_request import StepRequest
from clotho.sandbox.checkpoints import Checkpoint

if TYPE_CHECKING:  # an author's module needs none of the tools
    from clotho.tools.tool import Dispatched

ERROR_RESULT_CHARACTERS = 300
"""Characters of a failed call's result that metrics keep; the model is shown more."""


class CallRequest(StepRequest):
    turn: int
    index: int
    lease: int | None
    """Number of the lease that the call is made under; None for a tool that needs no sandbox."""
    tool_state: dict[str, str]
    seconds_left: float | None = None
    """Seconds left to the rollout, after which a command is ended. None: no limit."""
    checkpoint: str | None = None
    """The call after which the sandbox was last checkpointed."""
    owner: Annotated[str | None, WHERE_SET] = None
    """The rollout in whose sandbox it is made; None: its own."""

    @property
    def call(self) -> str:
        return call_id(self.turn, self.index)

    @property
    def sandbox_of(self) -> str:
        return self.owner or self.rollout

    @property
    def place(self) -> str:
        """The call's place in the sandbox that it is made in, by which checkpoints and shells name it."""
        return place_of(self.sandbox_of, self.rollout, self.call)


class CallResult(FrozenModel):
    failed: Annotated[bool, WHERE_SET] = False
    seconds: Seconds
    wrote_state: Annotated[tuple[str, ...], WHERE_SET] = ()
    """The slots of tool state that this call wrote."""
    checkpointed: Annotated[bool, WHERE_SET] = False
    replayed: Annotated[Fidelity | None, WHERE_SET] = None
    """Fidelity of replaying the call, if it was journalled by a lost sandbox after this one was restored."""
    budgeted: Annotated[str | None, WHERE_SET] = None
    """The tool, where the rollout has a budget of calls of it."""
    delegated: Annotated[DelegatedWork | None, WHERE_SET] = None
    """The work of the child that did the task which it delegated."""


class ToolError(FrozenModel):
    """A failed tool call as an environment's author and the metrics see it."""

    turn: int
    tool_name: str
    arguments: str
    error: str
    tool_result: str


def tool_error(turn: int, dispatched: "Dispatched") -> ToolError | None:
    """The failure of a call, if it counts as one."""
    if (failure := dispatched.failure) is None:
        return None
    return ToolError(
        turn=turn,
        tool_name=failure.tool,
        arguments=failure.arguments,
        error=failure.error,
        tool_result=truncate_middle(dispatched.content, ERROR_RESULT_CHARACTERS),
    )


class CallBegun(FrozenModel):
    """A call that may be made only once has begun."""

    attempt: str
    """Tells the attempt that began it from later ones."""


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
    """True if the call may have changed the sandbox, as its tool declares: a restored sandbox needs it again."""
    spilled: bool = False
    """The model is shown the beginning of a file in the sandbox."""
    seconds_left: float | None = None
    """Seconds left to the rollout, as in the call's request."""
    exit_code: int | None = None
    """Exit code of the call's command, if any. Replays are compared by it, and by whether there was an error."""
    names_error: bool = False
    checkpoint: Checkpoint | None = None
    """The sandbox after this call; the blob is beside the entry."""
    manifest: str | None = None
    """Digest of the workspace after this call, where no checkpoint was taken."""
    child: Annotated[str | None, WHERE_SET] = None
    """The rollout that did the task which it delegated."""

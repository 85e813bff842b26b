"""Declared functions as tools of a worker, which sends their calls to where the author's code runs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from clotho.environment.functions import FunctionDescription
from clotho.environment.handles import AuthorProcessEnded, FunctionCall, FunctionCalls
from clotho.environment.threads import TimedOut
from clotho.environment.tool_context import ContextCalls
from clotho.environment.workspace import Workspace
from clotho.errors import ClothoError, CommandConflict, FileRefused, InvalidInput
from clotho.tools.results import INTERRUPTED, problem, refusal
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

Caller = Callable[[FunctionCall, FunctionCalls], Awaitable[ToolOutcome]]
"""Calls a function where the author's code runs. Raises TimedOut where it gave no answer in time."""


class FunctionTool(Tool):
    """A function as a tool."""

    function: ClassVar[FunctionDescription]
    caller: ClassVar[Caller]

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        slot = self.function.slot
        bounds = (self.function.seconds, context.seconds_left)
        seconds = min(bound for bound in bounds if bound is not None)
        state = None if slot is None else context.state.get(slot)
        call = FunctionCall(self.name, arguments, state, seconds)
        workspace = _workspace(context)
        try:
            made = await type(self).caller(call, WorkspaceCalls(workspace, context.claim))
        except Exception as error:
            # what `ctx` met comes first: the function's error may follow from it
            if (failure := _infrastructure(workspace)) is not None:
                if isinstance(failure, CommandConflict):  # an interrupted attempt had run other commands
                    return problem(INTERRUPTED)
                raise failure from None
            if isinstance(error, TimedOut):
                return refusal(f"Tool execution failed: {self.name} gave no answer within {seconds:g} s")
            if isinstance(
                error, AuthorProcessEnded
            ):  # like an exception of it: the model chose the arguments
                return refusal(f"Tool execution failed: {error}")
            raise
        if (failure := _infrastructure(workspace)) is not None:
            if isinstance(failure, CommandConflict):
                return problem(INTERRUPTED)
            raise failure
        return made

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        if not self.function.idempotent:
            return None
        return await self.run(arguments, replace(context, seconds_left=None))


@dataclass(frozen=True)
class WorkspaceCalls:
    """The calls of a function: those of its workspace, and the claim of the call itself."""

    workspace: Workspace
    first: Callable[[], Awaitable[bool]]

    async def claim(self) -> bool:
        """Claim the call; keep an error as the workspace's failure: it counts wherever the author's code runs."""
        try:
            return await self.first()
        except ClothoError as error:
            self.workspace.failure = self.workspace.failure or error
            raise

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> str:
        return await self.workspace.call_tool(name, arguments)

    async def ask_judge(self, prompt: str) -> str | None:
        return await self.workspace.ask_judge(prompt)

    async def read_bytes(self, path: str, max_bytes: int) -> bytes | None:
        return await self.workspace.read_bytes(path, max_bytes)

    async def write_bytes(self, path: str, content: bytes) -> None:
        await self.workspace.write_bytes(path, content)

    async def hidden_files(self) -> str:
        return await self.workspace.hidden_files()

    async def host_failed(self, reason: str) -> None:
        await self.workspace.host_failed(reason)

    @property
    def grading(self) -> ContextCalls:
        return self.workspace.grading


def _infrastructure(workspace: Workspace) -> Exception | None:
    """The failure that the function's `ctx` met, unless the author may handle it."""
    failure = workspace.failure
    return None if isinstance(failure, FileRefused | InvalidInput) else failure


def _workspace(context: CallContext) -> Workspace:
    """The workspace of the function's `ctx`: its commands begin where the model's last one ended."""
    assert context.dispatcher is not None, "a function was called without a dispatcher"

    async def opened() -> Any:
        return context.sandbox

    return Workspace(
        rollout=context.rollout,
        place=(*context.call, "function"),
        lease=context.lease,
        open=opened,
        dispatcher=context.dispatcher,
        tools=context.dispatcher.names,
        settings=context.settings,
        once=context.once,
        require_claim=context.require_claim,
        state=dict(context.state),
    )


def function_tool(described: FunctionDescription, caller: Caller) -> FunctionTool:
    """Make the tool of a declared function."""
    members = {
        "name": described.name,
        "toolset": described.toolset,
        "description": described.description,
        "parameters": described.parameters,
        "sandboxed": described.sandboxed,
        "changes_workspace": not described.read_only,
        "read_only": described.read_only,
        "function": described,
        # a plain function would be bound to the tool as a method
        "caller": staticmethod(caller),
    }
    kind: type[FunctionTool] = type(described.name, (FunctionTool,), members)
    return kind()

"""Functions and methods that authors declared with `@tool`, as tools.

A function runs in a thread of its own, so that one that blocks holds up nothing else. Unless it is declared
idempotent, a call that was begun and left no answer is never made again: the model is told.
"""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from pydantic import JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from clotho.environment.declarations import DECLARED, Declaration, StatefulTools
from clotho.environment.signatures import Signature, signature_of
from clotho.environment.threads import TimedOut, in_thread
from clotho.environment.tool_context import AsyncToolContext, ToolContext
from clotho.environment.workspace import Workspace
from clotho.errors import CommandConflict, EnvironmentFailed, FileRefused, InvalidInput
from clotho.frozen_model import field_errors
from clotho.tools.registry import tools_in
from clotho.tools.results import INTERRUPTED, problem, refusal
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

MOST_STATE_CHARS = 256_000
"""Characters of a class's state as JSON: every call that changes it writes it into the journal."""
MOST_ERROR_CHARS = 300


class NotJson(Exception):
    """A function's result, or the state that it left, that is no JSON."""


class FunctionTool(Tool):
    """A function as a tool."""

    function: ClassVar[Callable[..., Any]]
    signature: ClassVar[Signature]
    declaration: ClassVar[Declaration]
    owner: ClassVar[type[StatefulTools] | None] = None

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        try:
            given = self.signature.validated(arguments)
        except ValidationError as error:
            return refusal(f"Invalid arguments for {self.name}: {field_errors(error)}")
        owner = self._owner(context)
        if not await context.claim() and not self.declaration.idempotent:
            return problem(INTERRUPTED)
        bounds = (self.declaration.seconds, context.seconds_left)
        seconds = min(bound for bound in bounds if bound is not None)
        try:
            return await self._outcome(owner, given, context, seconds)
        except TimedOut:
            return refusal(f"Tool execution failed: {self.name} gave no answer within {seconds:g} s")
        except NotJson as error:
            return refusal(f"Tool execution failed: {self.name} returned what isn't JSON: {error}")
        except CommandConflict:  # an interrupted attempt had run other commands
            return problem(INTERRUPTED)

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        if not self.declaration.idempotent:
            return None
        return await self.run(arguments, replace(context, seconds_left=None))

    def _owner(self, context: CallContext) -> StatefulTools | None:
        """The instance with the rollout's state; raises EnvironmentFailed for one that another class left."""
        if self.owner is None:
            return None
        try:
            return self.owner.model_validate(context.state.get(self.owner.__name__, {}))
        except ValidationError as error:
            raise EnvironmentFailed(f"the state of {self.owner.__name__}: {field_errors(error)}") from error

    async def _outcome(
        self, owner: StatefulTools | None, given: Arguments, context: CallContext, seconds: float
    ) -> ToolOutcome:
        """Call the function; an infrastructure failure that it met counts even where it swallows it."""
        loop = asyncio.get_running_loop()
        workspace = _workspace(context)
        aio = AsyncToolContext(workspace, loop)
        contexts: dict[str, Any] = {
            name: aio if asynchronous else ToolContext(aio, loop)
            for name, asynchronous in self.signature.contexts.items()
        }
        function = type(self).function if owner is None else partial(type(self).function, owner)

        def called() -> Any:
            returned = function(**given, **contexts)
            return awaited(returned) if inspect.isawaitable(returned) else outcome(returned)

        async def awaited(work: Awaitable[Any]) -> ToolOutcome:
            return outcome(await work)

        def outcome(returned: Any) -> ToolOutcome:
            return ToolOutcome(content=_as_text(returned), state=_state(owner, context))

        try:
            made: ToolOutcome = await in_thread(called, seconds)
        except Exception as error:
            raise (_infrastructure(workspace) or error) from None
        finally:
            await aio.cleanup()
        if (failure := _infrastructure(workspace)) is not None:
            raise failure
        return made


def _infrastructure(workspace: Workspace) -> Exception | None:
    """The failure that the function's `ctx` met, unless it is one that its author may handle."""
    failure = workspace.failure
    return None if isinstance(failure, FileRefused | InvalidInput) else failure


def _workspace(context: CallContext) -> Workspace:
    """The sandbox as the function's `ctx` has it: its commands begin where the model's last one ended."""
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
        state=dict(context.state),
    )


def _as_text(returned: Any) -> str:
    """The result for the model: a string as it is, an object as JSON, anything else as `{"result": …}`."""
    try:
        plain = to_jsonable_python(returned)
        if not isinstance(plain, str):
            plain = plain if isinstance(plain, dict) else {"result": plain}
            plain = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)[:MOST_ERROR_CHARS]) from error
    return str(plain).encode(errors="replace").decode()


def _state(owner: StatefulTools | None, context: CallContext) -> dict[str, JsonValue]:
    """The slot that the call changed; raises NotJson for state that is none."""
    if owner is None:
        return {}
    name = type(owner).__name__
    try:
        state = owner.model_dump(mode="json")
        size = len(json.dumps(state, allow_nan=False))
    except (ValueError, RecursionError) as error:
        raise NotJson(f"the state of {name}: {str(error)[:MOST_ERROR_CHARS]}") from error
    if size > MOST_STATE_CHARS:
        raise NotJson(f"the state of {name} is over {MOST_STATE_CHARS:,} characters")
    return {} if state == context.state.get(name) else {name: state}


def declared_tools(module: ModuleType) -> Iterator[Tool]:
    """The tools in a module: functions and classes declared with `@tool`, and Tool classes that it defines."""
    for value in vars(module).values():
        if inspect.isfunction(value) and hasattr(value, DECLARED):
            yield function_tool(value)
        elif isinstance(value, type) and issubclass(value, StatefulTools):
            for method in vars(value).values():
                if hasattr(method, DECLARED):
                    yield function_tool(method, value)
    yield from (kind() for kind in tools_in(module))


def function_tool(function: Callable[..., Any], owner: type[StatefulTools] | None = None) -> FunctionTool:
    """The tool that a declared function is."""
    declaration: Declaration = getattr(function, DECLARED)
    signature = signature_of(function)
    members = {
        "name": function.__name__,
        "toolset": declaration.toolset,
        "description": signature.description,
        "parameters": signature.parameters,
        "sandboxed": bool(signature.contexts),
        "changes_workspace": not declaration.read_only,
        "read_only": declaration.read_only,
        "function": staticmethod(function),
        "signature": signature,
        "declaration": declaration,
        "owner": owner,
    }
    kind: type[FunctionTool] = type(function.__name__, (FunctionTool,), members)
    return kind()

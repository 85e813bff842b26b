"""Functions and methods that authors declared with `@tool`: their calls, where the author's code runs.

Unless it is declared idempotent, a call that was begun and left no answer is never made again: the model is told.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from pydantic import JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from clotho.environment.declarations import DECLARED, Declaration, StatefulTools
from clotho.environment.signatures import Signature, signature_of
from clotho.environment.tool_context import AsyncToolContext, ToolContext
from clotho.errors import EnvironmentFailed
from clotho.frozen_model import FrozenModel, field_errors
from clotho.tools.results import INTERRUPTED, problem, refusal
from clotho.tools.tool import Arguments, ToolOutcome

MOST_STATE_CHARS = 256_000
"""Characters of a class's state as JSON: every call that changes it writes it into the journal."""
MOST_ERROR_CHARS = 300

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Calls a function where it holds nothing up, and awaits what it returns there."""


class NotJson(Exception):
    """A function's result, or the state that it left, isn't JSON."""


class FunctionDescription(FrozenModel):
    """A declared function as a worker offers it."""

    name: str
    toolset: str
    description: str
    parameters: dict[str, JsonValue]
    sandboxed: bool
    read_only: bool
    idempotent: bool
    seconds: float
    slot: str | None = None
    """The name of its class, whose state its calls share; None: it has no class."""


@dataclass(frozen=True)
class DeclaredFunction:
    """A declared function, and the class whose method it is."""

    function: Callable[..., Any]
    signature: Signature
    declaration: Declaration
    owner: type[StatefulTools] | None = None

    @property
    def description(self) -> FunctionDescription:
        return FunctionDescription(
            name=self.function.__name__,
            toolset=self.declaration.toolset,
            description=self.signature.description,
            parameters=self.signature.parameters,
            sandboxed=bool(self.signature.contexts),
            read_only=self.declaration.read_only,
            idempotent=self.declaration.idempotent,
            seconds=self.declaration.seconds,
            slot=None if self.owner is None else self.owner.__name__,
        )

    async def call(
        self,
        arguments: Arguments,
        state: JsonValue,
        context: ToolContext,
        claim: Callable[[], Awaitable[bool]],
        run: Run,
    ) -> ToolOutcome:
        """Call the function by `run`; raises what it raises, and EnvironmentFailed for a state of another class."""
        name = self.function.__name__
        try:
            given = self.signature.validated(arguments)
        except ValidationError as error:
            return refusal(f"Invalid arguments for {name}: {field_errors(error)}")
        owner = self._owner(state)
        # claimed as late as this: a call that is refused above was never begun
        if not await claim() and not self.declaration.idempotent:
            return problem(INTERRUPTED)
        contexts: dict[str, ToolContext | AsyncToolContext] = {
            parameter: context.aio if asynchronous else context
            for parameter, asynchronous in self.signature.contexts.items()
        }
        function = self.function if owner is None else partial(self.function, owner)

        # the state is taken where the function runs: a large one would hold up the event loop
        def called() -> Any:
            returned = function(**given, **contexts)
            return awaited(returned) if inspect.isawaitable(returned) else outcome(returned)

        async def awaited(work: Awaitable[Any]) -> ToolOutcome:
            return outcome(await work)

        def outcome(returned: Any) -> ToolOutcome:
            return ToolOutcome(content=_as_text(returned), state=_state(owner, state))

        try:
            made: ToolOutcome = await run(called)
        except NotJson as error:
            return refusal(f"Tool execution failed: {name} returned what isn't JSON: {error}")
        return made

    def _owner(self, state: JsonValue) -> StatefulTools | None:
        """The instance with the rollout's state."""
        if self.owner is None:
            return None
        try:
            return self.owner.model_validate({} if state is None else state)
        except ValidationError as error:
            raise EnvironmentFailed(f"the state of {self.owner.__name__}: {field_errors(error)}") from error


def _as_text(returned: Any) -> str:
    """The result for the model: a string as it is, an object as JSON, anything else as `{"result": …}`."""
    try:
        plain = to_jsonable_python(returned)
        if not isinstance(plain, str):
            plain = plain if isinstance(plain, dict) else {"result": plain}
            plain = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)[:MOST_ERROR_CHARS]) from error
    # half a character, which no file or request can hold, becomes ?
    return str(plain).encode(errors="replace").decode()


def _state(owner: StatefulTools | None, before: JsonValue) -> dict[str, JsonValue]:
    """The slot that the call changed; raises NotJson for a state that isn't JSON."""
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
    return {} if state == before else {name: state}


def declared_functions(module: ModuleType) -> Iterator[DeclaredFunction]:
    """The functions and the classes' methods in a module that are declared with `@tool`."""
    for value in vars(module).values():
        if inspect.isfunction(value) and hasattr(value, DECLARED):
            yield _declare(value)
        elif isinstance(value, type) and issubclass(value, StatefulTools):
            for method in vars(value).values():
                if hasattr(method, DECLARED):
                    yield _declare(method, value)


def _declare(function: Callable[..., Any], owner: type[StatefulTools] | None = None) -> DeclaredFunction:
    declaration: Declaration = getattr(function, DECLARED)
    return DeclaredFunction(function, signature_of(function), declaration, owner)

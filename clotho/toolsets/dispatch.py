"""Running one tool call as a model made it: every fault of the model's becomes a result that it can read."""

import json
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from pydantic import JsonValue

from clotho.errors import ClothoError, FileRefused, InvalidInput, bounded
from clotho.identifiers import displayable
from clotho.toolsets import budget, catalogue
from clotho.toolsets.base import Arguments, CallContext, Tool, ToolOutcome
from clotho.toolsets.coercion import coerce, violation
from clotho.toolsets.registry import Registry
from clotho.toolsets.results import problem, refusal
from clotho.toolsets.secrecy import Redactor

ARGUMENTS_SHOWN = 150
ERROR_SHOWN = 300

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallFailure:
    """A call that counts as a tool error, bounded for metrics."""

    tool: str
    arguments: str
    """As the model wrote them, at most 150 characters."""
    error: str
    """At most 300 characters."""


@dataclass(frozen=True)
class Dispatched:
    """What a call came to, ready for the journal."""

    content: str
    """What the model is shown."""
    failure: CallFailure | None = None
    state: dict[str, JsonValue] = field(default_factory=dict)


class Dispatcher:
    """Runs tool calls. `secrets` are values that no result may show."""

    def __init__(self, registry: Registry, secrets: Collection[str] = ()) -> None:
        self._registry = registry
        self._redact = Redactor(secrets)

    async def run(
        self, name: str, arguments: str, offered: Collection[str], context: CallContext, turn_chars: int = 0
    ) -> Dispatched:
        """Run the call of tool `name` with JSON text `arguments`.

        `offered` are the rollout's tools, `turn_chars` the characters of the earlier results of this turn.
        Errors of the infrastructure and cancellation propagate: they are nothing a model should see.
        """
        tool = self._registry.get(name) if name in offered else None
        if tool is None:
            outcome = refusal(unknown_tool(name, offered))
        else:
            outcome = await _outcome(tool, arguments, context)
        content = self._redact(outcome.content)
        error = outcome.error or negative_exit(content)
        if tool is not None and budget.exceeds(content, tool, context.settings, turn_chars):
            content = await budget.spill(content, tool, context)
        failure = error and CallFailure(
            tool=displayable(name),
            arguments=self._redact(arguments)[:ARGUMENTS_SHOWN],
            error=bounded(self._redact(error), ERROR_SHOWN),
        )
        return Dispatched(content, failure or None, outcome.state)


def unknown_tool(name: str, offered: Collection[str]) -> str:
    shown = displayable(name)
    if name in catalogue.OUTSIDE_ROLLOUTS:
        return f"{shown} is {catalogue.reason_missing(name)}"
    return f"Unknown tool '{shown}'. Available tools: {', '.join(sorted(offered)) or 'none'}"


async def _outcome(tool: Tool, text: str, context: CallContext) -> ToolOutcome:
    try:
        arguments = parsed_arguments(text)
    except (ValueError, RecursionError) as error:
        return refusal(
            f"Invalid JSON in tool arguments: {bounded(str(error), ERROR_SHOWN)}. "
            "Please retry with valid JSON."
        )
    arguments = coerce(arguments, tool.parameters)
    if fault := violation(arguments, tool.parameters):
        return refusal(f"Invalid arguments for {tool.name}: {fault}")
    try:
        return await tool.run(arguments, context)
    except (InvalidInput, FileRefused) as error:
        return problem(bounded(str(error)))
    except ClothoError:
        raise
    except Exception as error:
        log.warning("tool %s failed", tool.name, exc_info=True)
        return refusal(f"Tool execution failed: {type(error).__name__}: {bounded(str(error))}")


def parsed_arguments(text: str) -> Arguments:
    """The arguments that `text` holds; none at all mean no arguments. Raises ValueError for anything else."""
    arguments = json.loads(text or "{}", parse_constant=_no_constant)
    if not isinstance(arguments, dict):
        raise ValueError(f"expected an object, not {type(arguments).__name__}")
    json.dumps(arguments, ensure_ascii=False).encode()
    return arguments


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def negative_exit(content: str) -> str | None:
    """The error of a JSON result that has one and a negative exit code."""
    if '"exit_code"' not in content or '"error"' not in content:
        return None
    try:
        result = json.loads(content)
    except ValueError:
        return None
    match result:
        case {"error": str(error), "exit_code": int(code)} if error and code < 0:
            return error
    return None

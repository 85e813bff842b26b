"""Dispatch of one tool call: every mistake of the model becomes a result that it can read."""

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import TypeVar

from pydantic import JsonValue

from clotho.errors import ClothoError, FileRefused, HostUnavailable, InvalidInput
from clotho.escaping import displayable, truncate_middle
from clotho.host_failures import described, is_host_failure, raised_by_clotho
from clotho.tools import catalogue, result_budget
from clotho.tools.arguments import coerce, parsed_arguments, require_text, violation
from clotho.tools.registry import Registry
from clotho.tools.results import problem, refusal
from clotho.tools.secrecy import Redactors
from clotho.tools.tool import Arguments, CallContext, CallFailure, Dispatched, Tool, ToolOutcome
from clotho.untrusted import Unreadable, in_thread_if_long, load_json

MAX_ARGUMENTS_CHARS = 150
MAX_ERROR_CHARS = 300
OWN_SCOPE = f"process-{os.getpid()}"
"""The scope of a process that is no host's worker."""

log = logging.getLogger(__name__)

Outcome = TypeVar("Outcome", bound=ToolOutcome | None)


class Dispatcher:
    """Runs tool calls. `variable` reads an environment variable: a run names those that no result may show."""

    def __init__(
        self, registry: Registry, variable: Callable[[str], str | None], scope: str = OWN_SCOPE
    ) -> None:
        self.registry = registry
        self.variable = variable
        self.scope = scope
        self._redactors = Redactors(variable)

    @property
    def names(self) -> tuple[str, ...]:
        return self.registry.names

    def tool(self, name: str) -> Tool | None:
        return self.registry.get(name)

    def with_tools(self, tools: Iterable[Tool]) -> "Dispatcher":
        """A copy of this dispatcher with further tools."""
        found = copy(self)
        found.registry = self.registry.with_tools(tools)
        return found

    async def run(
        self, name: str, arguments: str, offered: Collection[str], context: CallContext, turn_chars: int = 0
    ) -> Dispatched:
        """Run the call of tool `name` with JSON text `arguments`.

        `offered` are the rollout's tools, `turn_chars` the characters of the earlier results of this turn.
        Errors of the infrastructure and cancellation propagate: they are nothing a model should see.
        """
        tool = self.tool(name) if name in offered else None
        if tool is None and name in offered:
            # Another host offered it when the group began: this installation is at fault, and no result for
            # the model.
            raise HostUnavailable(f"the tool {displayable(name)} of this run isn't installed on this host")
        if tool is None:
            return await self._dispatched(name, arguments, refusal(unknown_tool(name, offered)), context)
        accepted = await in_thread_if_long(len(arguments), accepted_arguments, tool, arguments)
        if isinstance(accepted, ToolOutcome):
            return await self._dispatched(name, arguments, accepted, context)
        context = self._completed(context, offered)
        outcome = await _outcome(tool.run(accepted, context))
        done = replace(
            await self._dispatched(name, arguments, outcome, context), changes=_may_change(tool, accepted)
        )
        if result_budget.exceeds(done.content, tool, context.settings, turn_chars):
            return await _spilled(done, tool, context)
        return done

    async def replay(
        self,
        name: str,
        arguments: str,
        offered: Collection[str],
        context: CallContext,
        shown: str,
        spilled: bool,
    ) -> Dispatched | None:
        """Repeat a call that changed a lost sandbox, in the one that follows it; None where that can't be done.

        `offered` are the rollout's tools, `shown` is what the model was shown of it, `spilled` whether its
        result went into a file.
        """
        tool = self.tool(name)
        if tool is None:
            return None
        accepted = await in_thread_if_long(len(arguments), accepted_arguments, tool, arguments)
        if isinstance(accepted, ToolOutcome):
            return None
        context = self._completed(context, offered)
        # a call that changed nothing is replayed for the file that its long result went into
        work = (
            tool.replay(accepted, context, shown)
            if _may_change(tool, accepted)
            else tool.run(accepted, context)
        )
        outcome = await _outcome(work)
        if outcome is None:
            return None
        done = await self._dispatched(name, arguments, outcome, context)
        return await _spilled(done, tool, context) if spilled else done

    def _completed(self, context: CallContext, offered: Collection[str]) -> CallContext:
        return replace(
            context,
            dispatcher=self,
            offered=frozenset(offered),
            variable=self.variable,
            scope=self.scope,
        )

    async def _dispatched(
        self, name: str, arguments: str, outcome: ToolOutcome, context: CallContext
    ) -> Dispatched:
        length = len(arguments) + len(outcome.content)
        return await in_thread_if_long(length, self._redacted, name, arguments, outcome, context)

    def _redacted(self, name: str, arguments: str, outcome: ToolOutcome, context: CallContext) -> Dispatched:
        redact = self._redactors.of(context.settings.secrets)
        # Before the result is spilled or journalled: there a secret would outlive the rollout.
        content = redact(outcome.content)
        result = _fields(content)
        code = result.get("exit_code")
        error = outcome.error or negative_exit(result)
        failure = error and CallFailure(
            tool=displayable(name),
            arguments=redact(arguments)[:MAX_ARGUMENTS_CHARS],
            error=truncate_middle(redact(error), MAX_ERROR_CHARS),
        )
        return Dispatched(
            content,
            failure or None,
            outcome.state,
            exit_code=code if isinstance(code, int) else None,
            names_error=bool(result.get("error")),
        )


async def _spilled(done: Dispatched, tool: Tool, context: CallContext) -> Dispatched:
    kept = tool.sandboxed
    content = await result_budget.spill(done.content, tool, context)
    # the file is a change of the sandbox, which a replay has to make again
    return replace(done, content=content, spilled=kept, changes=done.changes or kept)


def beyond_limit(name: str, limit: int, left_out: int) -> Dispatched:
    """The result of the first call after as many as a turn may have; it speaks for all that follow."""
    error = (
        f"Not run: a turn may have {limit} tool calls. This call and all after it, {left_out} in number, were "
        "left out. Make them in the next turn."
    )
    return Dispatched(refusal(error).content, CallFailure(displayable(name), "", error))


def refused(name: str, error: ClothoError) -> Dispatched:
    """The result of a call that can't be made as the model wrote it."""
    text = truncate_middle(str(error))
    return Dispatched(problem(text).content, CallFailure(displayable(name), "", text[:MAX_ERROR_CHARS]))


def unknown_tool(name: str, offered: Collection[str]) -> str:
    shown = displayable(name)
    if name in catalogue.OUTSIDE_ROLLOUTS:
        return f"{shown} is {catalogue.reason_missing(name)}"
    return f"Unknown tool '{shown}'. Available tools: {', '.join(sorted(offered)) or 'none'}"


def accepted_arguments(tool: Tool, text: str) -> Arguments | ToolOutcome:
    """The arguments that `text` holds, or what the model is told of their fault."""
    try:
        # Models send "3" for 3, and JSON text for a list: what can be meant in one way only is taken for
        # that.
        arguments: Arguments = coerce(parsed_arguments(text), tool.parameters)
        require_text(arguments)  # coercion has parsed further JSON
    except (ValueError, RecursionError) as error:
        return refusal(
            f"Invalid JSON in tool arguments: {truncate_middle(str(error), MAX_ERROR_CHARS)}. "
            "Please retry with valid JSON."
        )
    if fault := violation(arguments, tool.parameters):
        return refusal(f"Invalid arguments for {tool.name}: {fault}")
    return arguments


def _may_change(tool: Tool, arguments: Arguments) -> bool:
    """Whether the call may change the sandbox; where the tool's own code fails to say so, it may."""
    try:
        return tool.sandboxed and tool.changes(arguments)
    except Exception:
        log.warning("tool %s doesn't say what it changes", tool.name, exc_info=True)
        return True


async def _outcome(work: Awaitable[Outcome]) -> Outcome | ToolOutcome:
    try:
        return await work
    except (InvalidInput, FileRefused) as error:
        return problem(truncate_middle(str(error)))
    except ClothoError:
        raise
    except Exception as error:
        # What Clotho's own code meets is no result, whatever its number; other packages' tools may have reasons.
        if is_host_failure(error) or (isinstance(error, OSError) and raised_by_clotho(error)):
            raise HostUnavailable(f"in a tool: {described(error)}") from error
        log.warning("a tool failed", exc_info=True)
        return refusal(f"Tool execution failed: {truncate_middle(described(error))}")


def _fields(content: str) -> dict[str, JsonValue]:
    """The fields of a result, if it is a JSON object with an exit code or an error; else none."""
    # most results have neither: to look costs less than to parse
    if '"exit_code"' not in content and '"error"' not in content:
        return {}
    try:
        result = load_json(content)
    except Unreadable:
        return {}
    return result if isinstance(result, dict) else {}


def negative_exit(result: Mapping[str, JsonValue]) -> str | None:
    """The error that a result names, if its exit code is negative."""
    match result:
        case {"error": str(error), "exit_code": int(code)} if error and code < 0:
            return error
    return None

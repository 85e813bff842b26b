"""Tools of MCP servers.

A call whose answer is lost is never made again unless its tool is declared idempotent: the model is told. One
that was certainly not made is made by a later attempt, and so is one that may be repeated after an outage.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.errors import InvalidInput, ServiceRejected, ServiceUnavailable
from clotho.escaping import displayable
from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.session import Answer, Definition, NoAnswer, NotStarted, Refused
from clotho.plugins.mcp.settings import McpServer, McpSettings, toolset_of
from clotho.tools.claims import is_first, journalled
from clotho.tools.results import INTERRUPTED, answer, problem, refusal
from clotho.tools.source import ProbedSandbox
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome, ToolPlace, ToolSettings

MOST_NAME_CHARS = 64
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
ATTEMPTS = 2
"""Of a call that may be repeated, or was never made, within one attempt at its activity."""
NOT_MADE, UNKNOWN = "not made", "unknown"
"""How a claimed call that left no answer ended."""


@dataclass(frozen=True)
class ServerTool:
    """A tool as its server knows it: the server's name, and the tool's there."""

    server: str
    tool: str


class McpTool(Tool):
    """A tool of a server."""

    called_by_code = True

    @property
    @abstractmethod
    def origin(self) -> ServerTool: ...

    @property
    @abstractmethod
    def servers(self) -> McpServers: ...

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        if self.sandboxed:
            return await self._run_in_sandbox(arguments, context)
        server = self._server(context.settings)
        repeats = server.repeats(self.origin.tool)
        bounds = (server.seconds, context.seconds_left)
        seconds = min(bound for bound in bounds if bound is not None)
        claim: int | None = None
        for left in reversed(range(ATTEMPTS)):
            async with self.servers.session(context.rollout, self.origin.server, server) as session:
                if changed := self._change(session.definitions):
                    raise ServiceRejected(changed)
                # After the server has started: an attempt that finds none has called nothing.
                if not repeats and (claim := await _claim(context)) is None:
                    return problem(INTERRUPTED)
                try:
                    found = await session.call(self.origin.tool, arguments, seconds)
                except NoAnswer as lost:
                    await session.close()
                    if claim is not None and not lost.made:
                        # at once: if this process dies now, a later attempt still knows that it may make the call
                        await _journal_end(context, claim, NOT_MADE)
                    if lost.made and not repeats:
                        return refusal(_unanswered(self.origin.server, lost))
                    if left and lost.wait is None:
                        continue
                    if lost.outage:
                        raise ServiceUnavailable(_unanswered(self.origin.server, lost), lost.wait) from lost
                    return refusal(_unanswered(self.origin.server, lost))
                except Refused as refused:
                    return refusal(str(refused))
            return _outcome_of(found)
        raise AssertionError("the last attempt returns")

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome | None:
        """Call a tool again that is declared idempotent; what another one did to its server is lost."""
        return await self.run(arguments, context) if self.repeats(context.settings) else None

    def repeats(self, settings: ToolSettings) -> bool:
        """Whether a call may be made again when its answer is lost."""
        return self._server(settings).repeats(self.origin.tool)

    def _server(self, settings: ToolSettings) -> McpServer:
        found = settings.of(McpSettings)
        assert found is not None, "a tool of a server was offered to a run without servers"
        return found.servers[self.origin.server]

    async def _run_in_sandbox(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        """Call the server in the sandbox. Its failures are told to the model, as the agent may have caused them."""
        sandbox, settings = context.sandbox, self._server(context.settings)
        server = self.servers.in_sandbox(context, self.origin.server, settings)
        bounds = (settings.seconds, context.seconds_left)
        seconds = min(bound for bound in bounds if bound is not None)
        first = False

        async def chosen() -> ToolOutcome:
            nonlocal first
            first, number = True, await server.start(sandbox)
            return ToolOutcome(content=self._change(server.definitions) or str(number))

        try:
            # Journalled: a later attempt asks the start of the server that the first one has asked.
            asked = (await context.once(f"mcp-l{context.lease}", chosen)).content
            if not asked.isdecimal():
                return refusal(asked)
            if not first:
                server.read_again()
            found = await server.call(
                sandbox, int(asked), context.job_key(), self.origin.tool, arguments, seconds
            )
        except NotStarted as error:
            return refusal(f"MCP server {self.origin.server} can't be started: {error}")
        except NoAnswer as lost:
            return refusal(_unanswered(self.origin.server, lost))
        except Refused as refused:
            return refusal(str(refused))
        return _outcome_of(found)

    def _change(self, definitions: Sequence[Definition]) -> str | None:
        """Say how the server has changed this tool since the group began; None where it hasn't."""
        name = displayable(self.origin.tool)
        for each in definitions:
            if each.name == self.origin.tool:
                if (each.description, each.parameters) == (self.description, self.parameters):
                    return None
                return f"MCP server {self.origin.server} has changed its tool {name} since the group began"
        return f"MCP server {self.origin.server} has lost its tool {name} since the group began"


async def _claim(context: CallContext) -> int | None:
    """The number of this attempt's claim on the call; None where the call may have been made before."""
    number = 0
    first = await context.claim()
    while not first:
        # write-once: from here on, the attempt before can't journal that it made no call
        if await _journal_end(context, number, UNKNOWN) != NOT_MADE:
            return None
        number += 1
        first = await is_first(context.once, f"mcp-claim-{number}")
    return number


async def _journal_end(context: CallContext, claim: int, end: str) -> str:
    """Journal how the call under `claim` ended; returns what was journalled first."""
    return await journalled(context.once, f"mcp-end-{claim}", end)


def _outcome_of(found: Answer) -> ToolOutcome:
    return refusal(found.text or "The tool failed") if found.failed else answer(result=found.text)


def _unanswered(server: str, lost: NoAnswer) -> str:
    said = f"MCP server {server} gave no answer: {lost}. "
    if not lost.made:
        return said + "The call wasn't made"
    return said + "Whether the call had its effect is unknown: look before you repeat it"


def mcp_tool(
    name: str,
    origin: ServerTool,
    description: str,
    parameters: Mapping[str, JsonValue],
    servers: McpServers,
    sandboxed: bool = False,
) -> McpTool:
    """The tool of a server that rollouts know by `name`."""
    members = {
        "name": name,
        "toolset": toolset_of(origin.server),
        "description": description,
        "parameters": dict(parameters),
        "origin": origin,
        "place": ToolPlace(plugin=McpSettings.plugin, at={"server": origin.server, "tool": origin.tool}),
        "servers": servers,
        "sandboxed": sandboxed,
        # a server elsewhere can't reach the sandbox's files
        "changes_workspace": sandboxed,
    }
    kind: type[McpTool] = type(name, (McpTool,), members)
    return kind()


async def tools_of(
    name: str, server: McpServer, servers: McpServers, sandbox: ProbedSandbox | None = None
) -> list[McpTool]:
    """The tools that a server has now; one that runs in sandboxes is asked in `sandbox`.

    Raises as `McpServers.session`, and InvalidInput for two of one name.
    """
    found: dict[str, McpTool] = {}
    for each in await servers.definitions(name, server, sandbox):
        known = NOT_IN_NAMES.sub("_", f"mcp_{name}_{each.name}")[:MOST_NAME_CHARS]
        if known in found:
            raise InvalidInput(f"MCP server {name} has two tools that would be called {known}")
        place = ServerTool(name, each.name)
        found[known] = mcp_tool(known, place, each.description, each.parameters, servers, server.sandboxed)
    return list(found.values())

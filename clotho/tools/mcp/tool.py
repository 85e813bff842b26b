"""Tools of MCP servers.

A call whose answer is lost is never made again unless its tool is declared idempotent: the model is told.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from clotho.errors import InvalidInput, ServiceRejected
from clotho.identifiers.ids import displayable
from clotho.tools.mcp.servers import McpServers
from clotho.tools.mcp.session import Definition, NoAnswer, Refused, Session
from clotho.tools.mcp.settings import McpServer, toolset_of
from clotho.tools.results import INTERRUPTED, answer, problem, refusal
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

MOST_NAME_CHARS = 64
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")
ATTEMPTS = 2
"""Of a call that may be repeated, or was never made, within one attempt at its activity."""


@dataclass(frozen=True)
class Offer:
    """The place of a tool: its server, and its name there."""

    server: str
    tool: str


class McpTool(Tool):
    """A tool of a server."""

    changes_workspace = False
    sandboxed = False

    @property
    @abstractmethod
    def offer(self) -> Offer: ...

    @property
    @abstractmethod
    def servers(self) -> McpServers: ...

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        server = context.settings.mcp_servers[self.offer.server]
        repeats = server.repeats(self.offer.tool)
        bounds = (server.seconds, context.seconds_left)
        seconds = min(bound for bound in bounds if bound is not None)
        claimed = repeats
        for left in reversed(range(ATTEMPTS)):
            async with self.servers.session(context.rollout, self.offer.server, server) as session:
                self._require_same(session)
                # After the server has started: an attempt that finds none has called nothing.
                if not claimed and not await context.claim():
                    return problem(INTERRUPTED)
                claimed = True
                try:
                    found = await session.call(self.offer.tool, arguments, seconds)
                except NoAnswer as lost:
                    await session.close()
                    if left and (repeats or not lost.made):
                        continue
                    return refusal(_unanswered(self.offer.server, lost))
                except Refused as refused:
                    return refusal(str(refused))
            return refusal(found.text or "The tool failed") if found.failed else answer(result=found.text)
        raise AssertionError("the last attempt returns")

    def _require_same(self, session: Session) -> None:
        """Raise ServiceRejected where the server has other tools than when the group began."""
        for each in session.definitions:
            if each.name == self.offer.tool:
                if (each.description, each.parameters) == (self.description, self.parameters):
                    return
                raise ServiceRejected(
                    f"MCP server {self.offer.server} has changed its tool {displayable(each.name)} since the "
                    "group began"
                )
        raise ServiceRejected(
            f"MCP server {self.offer.server} has lost its tool {displayable(self.offer.tool)} since the group began"
        )


def _unanswered(server: str, lost: NoAnswer) -> str:
    said = f"MCP server {server} gave no answer: {lost}. "
    if not lost.made:
        return said + "The call wasn't made"
    return said + "Whether the call had its effect is unknown: look before you repeat it"


def mcp_tool(
    name: str, offer: Offer, description: str, parameters: Mapping[str, JsonValue], servers: McpServers
) -> McpTool:
    """The tool of a server that rollouts know by `name`."""
    members = {
        "name": name,
        "toolset": toolset_of(offer.server),
        "description": description,
        "parameters": dict(parameters),
        "offer": offer,
        "servers": servers,
    }
    kind: type[McpTool] = type(name, (McpTool,), members)
    return kind()


async def tools_of(name: str, server: McpServer, servers: McpServers) -> list[McpTool]:
    """The tools that a server has now. Raises as `McpServers.session`, and InvalidInput for two of one name."""
    found: dict[str, McpTool] = {}
    for each in await servers.definitions(name, server):
        tool = _tool(name, each, servers)
        if tool.name in found:
            raise InvalidInput(f"MCP server {name} has two tools that would be called {tool.name}")
        found[tool.name] = tool
    return list(found.values())


def _tool(server: str, each: Definition, servers: McpServers) -> McpTool:
    name = NOT_IN_NAMES.sub("_", f"mcp_{server}_{each.name}")[:MOST_NAME_CHARS]
    return mcp_tool(name, Offer(server, each.name), each.description, each.parameters, servers)

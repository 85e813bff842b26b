"""The tools of a run's MCP servers, as its groups find them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from clotho.plugins.mcp.servers import McpServers
from clotho.plugins.mcp.settings import McpServer, McpSettings, toolset_of
from clotho.plugins.mcp.tool import ServerTool, mcp_tool, tools_of
from clotho.tools.source import ProbedSandbox, ToolSource, Wanted
from clotho.tools.tool import Tool, ToolSettings


class McpSource(ToolSource):
    def __init__(self, variable: Callable[[str], str | None]) -> None:
        self._servers = McpServers(variable)

    def needs_sandbox(self, settings: ToolSettings, wanted: Wanted) -> bool:
        return any(server.sandboxed for server in _wanted(settings, wanted).values())

    async def tools(
        self, settings: ToolSettings, wanted: Wanted, sandbox: ProbedSandbox | None
    ) -> list[Tool]:
        """Raises as `McpServers.session`, and InvalidInput for two tools of one name."""
        servers = _wanted(settings, wanted).items()
        found = await asyncio.gather(
            *(tools_of(name, server, self._servers, sandbox) for name, server in servers)
        )
        return [tool for tools in found for tool in tools]

    def tool(
        self, name: str, at: Mapping[str, str], description: str, parameters: dict[str, Any], sandboxed: bool
    ) -> Tool:
        origin = ServerTool(at["server"], at["tool"])
        return mcp_tool(name, origin, description, parameters, self._servers, sandboxed)

    async def close(self) -> None:
        await self._servers.close()


def _wanted(settings: ToolSettings, wanted: Wanted) -> dict[str, McpServer]:
    servers = (settings.of(McpSettings) or McpSettings()).servers
    return {name: server for name, server in servers.items() if wanted(toolset_of(name))}

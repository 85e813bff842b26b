"""The tools of an environment's MCP servers, for an author's tests."""

from collections.abc import Awaitable, Callable

from clotho.plugins.mcp.servers import McpServers, ProbedSandbox
from clotho.plugins.mcp.settings import wanted_servers
from clotho.plugins.mcp.tool import McpTool, tools_of
from clotho.rollouts.run import ToolSelection
from clotho.sandbox.backend import SandboxInstance
from clotho.tools.tool import ToolSettings


async def tools_of_servers(
    servers: McpServers,
    settings: ToolSettings,
    selection: ToolSelection,
    probe: Callable[[], Awaitable[SandboxInstance]],
) -> list[McpTool]:
    """The tools of the enabled servers; those of sandboxes are asked for theirs in one that `probe` makes."""
    wanted = wanted_servers(settings.mcp_servers, selection.enabled, selection.disabled)
    sandbox = None
    if any(server.sandboxed for server in wanted.values()):
        sandbox = ProbedSandbox(await probe(), ("tools",), settings.terminal_cwd)
    found = [await tools_of(name, server, servers, sandbox) for name, server in wanted.items()]
    return [tool for tools in found for tool in tools]

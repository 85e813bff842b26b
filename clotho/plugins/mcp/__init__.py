"""Tools of MCP servers: of programs in sandboxes and on the workers' hosts, and of services by URL.

`servers.py` says what ends a server.
"""

from clotho.plugin import Plugin

PLUGIN = Plugin(
    "mcp",
    run_settings="clotho.plugins.mcp.settings:McpSettings",
    tool_source="clotho.plugins.mcp.source:McpSource",
    toolset_prefix="mcp-",
)

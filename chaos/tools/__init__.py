"""Tools that have a process of their own: code, an MCP server in the sandbox, the browser."""

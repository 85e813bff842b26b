"""Tools that are more than their call: code, an MCP server in the sandbox, the browser, tasks of other agents."""

"""Tools of MCP servers: of programs on the workers' hosts, and of services by URL."""

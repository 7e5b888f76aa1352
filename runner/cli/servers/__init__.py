"""Commands that serve other programs: HTTP, and MCP and ACP over standard input and output."""

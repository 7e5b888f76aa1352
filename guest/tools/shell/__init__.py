"""The `shell_exec` tool, and the client of the shell guest."""

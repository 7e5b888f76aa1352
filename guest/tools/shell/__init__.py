"""The shell family: one tool over the shell guest, and the client that reaches it."""

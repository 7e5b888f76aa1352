"""The audit log: every tool call of a user, in a chain that shows what was changed afterwards."""

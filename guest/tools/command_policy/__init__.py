"""The operator's rules for shell commands."""

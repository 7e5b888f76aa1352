"""Directories of the operator's that the agent works in."""

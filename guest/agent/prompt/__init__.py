"""Builds a turn's prompt and keeps it within the window."""

"""Moves a user's memory between stores: as lines of a file, or directly."""

"""Vectors that are made in the background."""

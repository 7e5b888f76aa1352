"""Embedding of passages in the background."""

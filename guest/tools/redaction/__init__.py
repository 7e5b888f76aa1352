"""Secrets and what looks like them, kept out of what models and people are shown."""

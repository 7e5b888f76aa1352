"""Hybrid search: by words and by meaning, merged into one order."""

"""The host's embedder: one process or container, shared by all users."""

"""Notes, conversations and search over libSQL."""

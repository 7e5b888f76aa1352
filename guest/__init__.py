"""The agent guest: it remembers."""

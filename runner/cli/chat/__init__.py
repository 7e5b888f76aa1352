"""The chat, in a terminal and through a pipe."""

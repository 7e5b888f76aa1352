"""The tools a model may call, and the one pipeline they go through."""

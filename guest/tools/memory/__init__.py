"""The families of tools over memory."""

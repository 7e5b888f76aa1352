"""The four families of tools over memory."""

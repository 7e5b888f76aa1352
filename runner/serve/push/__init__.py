"""Web Push: browsers are told of notices although no page of the console is open."""

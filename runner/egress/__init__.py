"""The host's side of egress: what it is configured with, and what it tells."""

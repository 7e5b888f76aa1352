"""The operator's own interface: the host's API, and what guests take."""

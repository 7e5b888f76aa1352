"""What only the operator is told and may do: the host's API, and what guests take."""

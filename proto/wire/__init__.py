"""The contract between runner, guests and surfaces: messages, limits, errors, virtual paths."""

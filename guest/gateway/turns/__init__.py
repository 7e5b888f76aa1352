"""The turns of an agent, which go on whether anybody follows them or not."""

"""The egress guest: the only one with a way out. A program of its own; imports `wire` alone."""

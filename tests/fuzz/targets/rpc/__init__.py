"""Targets that are real servers, called over their sockets."""

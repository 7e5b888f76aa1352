"""Databases: one interface, a local file and a server behind it."""

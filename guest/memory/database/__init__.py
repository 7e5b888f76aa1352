"""Databases: one interface, several engines."""

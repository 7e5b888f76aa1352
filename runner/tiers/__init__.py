"""Tier drivers: how a guest is confined."""

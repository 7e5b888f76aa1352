"""Credentials: keys that commands use without having them."""

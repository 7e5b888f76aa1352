"""Keeps secrets out of what models and people see."""

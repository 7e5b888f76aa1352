"""Whole sessions: in use, put away, forgotten by hand or by age."""

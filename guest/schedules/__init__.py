"""Turns that begin by themselves, at times that a person has chosen."""

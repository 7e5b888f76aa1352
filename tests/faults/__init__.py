"""Faults made on purpose, counted: `python -m tests.faults` prints what memory did in them."""

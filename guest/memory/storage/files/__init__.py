"""Whole database files: backed up, restored, checked, and given another key."""

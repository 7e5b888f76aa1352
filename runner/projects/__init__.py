"""Directories of the operator's that guests see as /projects/NAME."""

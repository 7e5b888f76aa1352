"""System calls that Python does not offer, for all guests."""

"""Notes: their rows, how they are written, replaced, taken back and reviewed."""

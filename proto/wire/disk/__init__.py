"""Disks on which somebody else writes: walking through their directories, and the room on them."""

"""Notes: storing, replacing, undoing and reviewing them."""

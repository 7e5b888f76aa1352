"""The boundary self-test: checks from inside the shell guest, as any command could make them."""

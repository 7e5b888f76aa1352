"""The boundary self-test, as the runner asks it."""

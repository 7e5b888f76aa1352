"""The agent guest's end of the shell guest."""

"""The process tier: child processes, the shell inside bubblewrap."""

"""The boundary, looked at from inside the shell guest, as any command could."""

"""Tools that others have made: presets and pasted blocks, as settings."""

"""Bounds of `shell_exec`, for whoever checks settings without importing the shell."""

from typing import Final

TIMEOUT_DEFAULT_S: Final = 60.0
TIMEOUT_MAX_S: Final = 3600.0

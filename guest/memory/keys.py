"""The two notes whose names are fixed: they belong to the work at hand and change all the
time, so they are no memories, and nothing is their duplicate."""

from typing import Final

HANDOFF: Final = "session-handoff"
SCRATCHPAD: Final = "scratchpad"
FIXED: Final = (HANDOFF, SCRATCHPAD)

VERSIONS_KEPT: Final = 20
"""How many earlier versions of each of them are kept: they are overwritten by contract."""

"""The stand-in guest as a command."""

import sys
from pathlib import Path

STANDIN = Path(__file__).parent / "standin_guest.py"


def command(behaviour: str) -> tuple[str, ...]:
    """See `standin_guest` for the behaviours."""
    return (sys.executable, "-P", str(STANDIN), behaviour)

"""Who wants something to go out."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Caller:
    """The guest at the door, and the session and turn that it says it works for."""

    role: str
    session_id: str = ""
    turn_id: str = ""

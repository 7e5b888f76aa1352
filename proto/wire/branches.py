"""Sessions of one conversation that a program sends whole each time: where it was edited or is
answered anew, it goes on in a session beside the first one; what was edited away stays there."""

import re
import uuid
from typing import Final

_NAMED_CHARS: Final = 46
_BRANCH: Final = re.compile(r"(.+)\.([0-9]{1,6})\.[0-9a-f]{8}")


def branch_of(session_id: str, told: int) -> str:
    """A new name for a session beside `session_id`, which is told of so many exchanges."""
    return f"{session_id[:_NAMED_CHARS]}.{told}.{uuid.uuid4().hex[:8]}"


def told_in(session_id: str, of: str) -> int | None:
    """Of how many exchanges a session beside `of` was told; None for a session that is none."""
    match = _BRANCH.fullmatch(session_id)
    return int(match[2]) if match and match[1] == of[:_NAMED_CHARS] else None


def are_branches(one: str, other: str) -> bool:
    """Whether two sessions are of the same conversation."""
    return one != other and _named(one) == _named(other)


def _named(session_id: str) -> str:
    match = _BRANCH.fullmatch(session_id)
    return match[1] if match else session_id[:_NAMED_CHARS]

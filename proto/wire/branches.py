"""Sessions of one conversation that a program sends whole each time: where it was edited or is
answered anew, it goes on in a session beside the first one; what was edited away stays there."""

import hashlib
import re
import uuid
from typing import Final

_NAMED_CHARS: Final = 46
_BRANCH: Final = re.compile(r"(.+)\.([0-9]{1,6})\.([0-9a-f]{4})[0-9a-f]{4}")


def branch_of(session_id: str, told: int, words: str) -> str:
    """A new name for a session beside `session_id`, which is told of so many exchanges in these
    words."""
    return f"{_named(session_id)}.{told}.{_digest(words)[:4]}{uuid.uuid4().hex[:4]}"


def told_in(session_id: str, of: str) -> int | None:
    """Of how many exchanges a session beside `of` was told; None for a session that is none."""
    match = _BRANCH.fullmatch(session_id)
    return int(match[2]) if match and match[1] == _named(of) else None


def told_so(session_id: str, words: str) -> bool:
    """Whether these words are those that a session beside another one was told."""
    match = _BRANCH.fullmatch(session_id)
    return match is None or match[3] == _digest(words)[:4]


def are_branches(one: str, other: str) -> bool:
    """Whether two sessions are of the same conversation."""
    return one != other and _named(one) == _named(other)


def _named(session_id: str) -> str:
    if match := _BRANCH.fullmatch(session_id):
        return match[1]
    long = len(session_id) > _NAMED_CHARS
    return f"{session_id[: _NAMED_CHARS - 8]}{_digest(session_id)[:8]}" if long else session_id


def _digest(words: str) -> str:
    return hashlib.sha256(words.encode(errors="replace")).hexdigest()

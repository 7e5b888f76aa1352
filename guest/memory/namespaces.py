"""Whose text a row is. Every query carries a namespace; nothing searches across."""

import re
from typing import Final

from wire.limits import USER_ID_PATTERN

_USER_ID: Final = re.compile(USER_ID_PATTERN)


def notes_of(user_id: str) -> str:
    """Where a user's notes live. Raises `ValueError` for what is no user id."""
    return f"memory:{_checked(user_id)}"


def conversations_of(user_id: str) -> str:
    """Where the passages of all of a user's conversations live."""
    return f"conversation:{_checked(user_id)}"


def _checked(user_id: str) -> str:
    if not _USER_ID.fullmatch(user_id):
        raise ValueError(f"user_id: {user_id!r} does not match {USER_ID_PATTERN}")
    return user_id

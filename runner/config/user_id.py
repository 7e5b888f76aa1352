"""The id of a user, which is safe in paths, labels and namespaces."""

import re
from typing import Final

from wire.errors import Code
from wire.limits import USER_ID_PATTERN
from wire.text import shortened

from runner.errors import WorkspaceError

DEFAULT_USER_ID: Final = "default"
USER_ID_MAX_CHARS: Final = 32
_SHOWN_CHARS = 40


def is_user_id(text: str) -> bool:
    """Whether `text` is a valid user id."""
    return re.fullmatch(USER_ID_PATTERN, text, re.ASCII) is not None


def check_user_id(user_id: str) -> str:
    """Return `user_id` if it is valid, else raise `WorkspaceError` (INVALID_ARGUMENT).

    Everything that is created for a user passes through here first.
    """
    if is_user_id(user_id):
        return user_id
    raise WorkspaceError(
        Code.INVALID_ARGUMENT,
        f"bad user id: {shortened(user_id, _SHOWN_CHARS)!r}",
        details=f"a user id has 1 to {USER_ID_MAX_CHARS} of the characters a-z, 0-9, _ and -, "
        "and begins with a letter or a digit",
        resolution="runner --user alice …",
    )

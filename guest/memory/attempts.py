"""Changes that others' changes get in the way of are tried again, though not for ever."""

from typing import Final

from wire.errors import Code

from guest.errors import StorageError

ATTEMPTS: Final = 100
"""More than others can get in the way."""


def unexplained(what: str) -> StorageError:
    """The database keeps refusing a change that nothing forbids; `what` is a sentence."""
    return StorageError(
        Code.INTERNAL,
        what,
        details="the database refuses it, and nothing that is there says why",
        resolution="report this, with the log, as a bug",
    )

"""Rows that cannot be what was written: damage that the engine did not notice."""

from collections.abc import Iterator
from contextlib import contextmanager

from wire.errors import Code

from guest.errors import StorageError


@contextmanager
def noticed(what: str) -> Iterator[None]:
    """Reading `what` out of rows; whatever it trips over is damage of the database.

    Raises `StorageError` DATA_LOSS, without the content: it may be private.
    """
    try:
        yield
    except (ValueError, TypeError, AssertionError, OverflowError) as error:
        raise StorageError(
            Code.DATA_LOSS,
            f"the memory database is damaged: {what} cannot be read",
            details=f"a row holds what was never written ({type(error).__name__})",
            resolution="bring back a backup with `runner memory restore`",
        ) from error

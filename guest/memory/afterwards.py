"""What fails when a change has been made already."""

from collections.abc import Iterator
from contextlib import contextmanager

from guest.errors import StorageError


@contextmanager
def afterwards(done: str) -> Iterator[None]:
    """What fails in the block fails after a change: its error begins with `done`, a
    sentence, so that nobody takes the change for not made."""
    try:
        yield
    except StorageError as error:
        raise StorageError(
            error.code, done, details=error.brief, resolution=error.resolution
        ) from error

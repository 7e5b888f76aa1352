"""Packages that only some commands need."""

from collections.abc import Iterator
from contextlib import contextmanager

from wire.errors import Code

from runner.errors import ConfigError


@contextmanager
def packages(extra: str, what: str) -> Iterator[None]:
    """For the imports of a command: `what` it is for, and the `extra` that brings what they need.

    Raises `ConfigError` with the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        from wire.installation import adding

        raise ConfigError(
            Code.FAILED_PRECONDITION,
            f"{what} needs packages that are not installed",
            details=f"there is no module {error.name}",
            resolution=adding(extra),
        ) from None

"""The end of the runner, as a guest on its standard input notices it."""

import asyncio
import os
from collections.abc import Callable

from wire.errors import Code, WireError


def when_ended(descriptor: int, then: Callable[[], None], *, resolution: str) -> None:
    """Call `then` once a pipe or socket has ended. What comes from it before is thrown away.

    Raises `WireError` (INVALID_ARGUMENT) with the `resolution` for a file, which never ends.
    """
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            then()

    try:
        loop.add_reader(descriptor, readable)
    except PermissionError:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "standard input is a file, which never ends",
            details="--exit-with-parent waits for the end of a pipe or socket",
            resolution=resolution,
        ) from None

"""How long a guest lives: to the end of its runner, whose pipe it holds or who calls it."""

import argparse
import asyncio
import logging
import math
import os
from collections.abc import Callable
from typing import Final

from wire.errors import Code, WireError
from wire.identity import Party

log = logging.getLogger(__name__)

_LAST_LOOK_S: Final = 1.0
"""A guest that stood still itself, as on a machine that was suspended, first hears what has come
in the meantime."""


class Lease:
    """Every call of the runner renews it: see `on_call` of `wire.transport.Server`.

    Args:
        seconds: How long it lasts without a call; None: without end.
        then: Called once when it is over.
    """

    def __init__(self, seconds: float | None, then: Callable[[], None]) -> None:
        self._seconds = seconds
        self._then = then
        self._renewed = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Count from now on."""
        if self._seconds is not None:
            self._renewed = asyncio.get_running_loop().time()
            self._wait()

    def renew(self, caller: Party) -> None:
        """Begin anew, if the runner makes this call."""
        if caller is Party.RUNNER:
            self._renewed = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Count no more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def _left(self) -> float:
        assert self._seconds is not None
        return self._renewed + self._seconds - asyncio.get_running_loop().time()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._left, self._look)

    def _look(self) -> None:
        if self._left > 0:
            self._wait()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_LAST_LOOK_S, self._last_look)

    def _last_look(self) -> None:
        if self._left > 0:
            self._wait()
        else:
            log.info("the runner is gone: no call of it for %g s", self._seconds)
            self._then()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two ways in which a guest learns that its runner is gone."""
    until = parser.add_mutually_exclusive_group()
    until.add_argument(
        "--exit-with-parent", action="store_true", help="stop when standard input ends"
    )
    add_lease(until)


def add_lease(parser: argparse._ActionsContainer) -> None:
    """The argument `lease`, None where it is not given."""
    parser.add_argument(
        "--lease",
        type=_seconds,
        metavar="SECONDS",
        help="stop when the runner has not called for so long",
    )


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (0 < seconds < math.inf):
        raise ValueError(text)
    return seconds


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

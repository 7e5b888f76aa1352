"""Signals that end what a command does."""

import asyncio
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


@contextmanager
def at_first_signal(
    end: Callable[[], object], numbers: Iterable[signal.Signals]
) -> Iterator[list[int]]:
    """Call `end` at the first of these signals; yields all that were received. Later ones are
    ignored, because an end takes only seconds."""
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def note(number: int) -> None:
        if not received:
            end()
        received.append(number)

    for number in numbers:
        loop.add_signal_handler(number, note, number)
    try:
        yield received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)

"""The time that something may take, which stands still while a person is asked."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class Clock:
    """Ends its block with `TimeoutError` after `seconds`, in which it does not count the time that
    it is stopped. `expired` tells its `TimeoutError` from others."""

    def __init__(self, seconds: float) -> None:
        self._limit = asyncio.timeout(seconds)
        self._stops = 0
        self._left = 0.0

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._limit.__aexit__(*error)  # type: ignore[arg-type]  # passed on as it came

    @property
    def expired(self) -> bool:
        return self._limit.expired()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock for the block; blocks may overlap."""
        self.stop()
        try:
            yield
        finally:
            self.go_on()

    def stop(self) -> None:
        """Let it stand still, until `go_on` was called as often."""
        self._stops += 1
        deadline = self._limit.when()
        if deadline is not None and not self.expired:
            self._left = deadline - asyncio.get_running_loop().time()
            self._limit.reschedule(None)

    def go_on(self) -> None:
        self._stops -= 1
        if not self._stops and not self.expired:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._left)


class Pause:
    """Whether a person is asked on behalf of a turn, apart from its calls. Clocks of the turn, and
    of what runs for it, stand still meanwhile."""

    def __init__(self) -> None:
        self._questions = 0
        self._asked = asyncio.Event()
        self._clocks: set[Clock] = set()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """A person is asked while the block runs; blocks may overlap."""
        self._questions += 1
        if self._questions == 1:
            self._asked.set()
            for clock in self._clocks:
                clock.stop()
        try:
            yield
        finally:
            self._questions -= 1
            if not self._questions:
                self._asked.clear()
                for clock in self._clocks:
                    clock.go_on()

    @contextmanager
    def stopping(self, clock: Clock) -> Iterator[None]:
        """Stop `clock` while a person is asked, as long as the block runs."""
        self._clocks.add(clock)
        if self._questions:
            clock.stop()
        try:
            yield
        finally:
            self._clocks.remove(clock)
            if self._questions:
                clock.go_on()

    async def asked(self) -> None:
        """Wait until a person is asked; return at once while one is."""
        await self._asked.wait()

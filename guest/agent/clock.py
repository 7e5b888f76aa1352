"""The time that a turn may take."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self


class TurnClock:
    """Ends its block with `TimeoutError` after `seconds`, in which it does not count the time that
    the turn waits for a person. `expired` tells its `TimeoutError` from others."""

    def __init__(self, seconds: float) -> None:
        self._limit = asyncio.timeout(seconds)
        self._waiting = 0
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
        loop = asyncio.get_running_loop()
        deadline = self._limit.when()
        if deadline is not None:
            self._left = deadline - loop.time()
            self._limit.reschedule(None)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._limit.reschedule(loop.time() + self._left)

"""How fast a guest may tell the host of what happens in it."""

import asyncio
import time


class Pace:
    """Lets `burst` events pass at once, and `per_second` more each second."""

    def __init__(self, burst: int, per_second: int) -> None:
        self._burst = burst
        self._per_second = per_second
        self._credit = float(burst)
        self._credited = time.monotonic()

    async def slow_down(self) -> None:
        """Wait until the next event may pass."""
        now = time.monotonic()
        earned = (now - self._credited) * self._per_second
        self._credit = min(self._burst, self._credit + earned) - 1
        self._credited = now
        if self._credit < 0:
            await asyncio.sleep(-self._credit / self._per_second)

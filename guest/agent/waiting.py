"""Waits for the first token of an answer: for a server that loads its model, and for one that reads
a long request slowly."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from typing import Final

from pydantic_ai import ModelRetry, RetryModelRequest
from pydantic_ai.models import ModelRequestContext
from wire.errors import Code

from guest.agent.failures import CONFIG
from guest.agent.models.errors import is_loading, is_malformed_call
from guest.agent.requests import RequestHooks
from guest.errors import GuestError
from guest.tools.clock import Clock, Pause

TIMES: Final = 2
"""How many times as long as a turn the first token of an answer may take."""
SLOW_S: Final = 10.0
"""After how long a person is told that the model has not begun."""
AGAIN_S: Final = 1.0
"""How long a server that loads is left alone at first; each time as much longer."""
_ATTEMPTS_MAX: Final = 40
_MALFORMED: Final = (
    "Your last call could not be read: it was no valid JSON. Make the call again, with arguments "
    "that are one complete JSON object, or answer in words."
)

Tell = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def first_token(
    clock: Clock, pause: Pause, turn_s: float, tell: Callable[[], Awaitable[None]]
) -> AsyncIterator[Callable[[], None]]:
    """The turn's clock stands still until what this gives is called; the wait has a limit of its
    own. `tell` is called once if it takes long.

    Raises `GuestError` TIMEOUT if nothing has come within the limit.
    """
    limit_s = TIMES * turn_s
    waiting = Clock(limit_s)
    slow = asyncio.ensure_future(_later(tell))
    try:
        async with waiting:
            with pause.stopping(waiting), ExitStack() as until_begun:
                until_begun.enter_context(clock.stopped())
                until_begun.callback(slow.cancel)
                until_begun.callback(waiting.stop)
                yield until_begun.close
    except TimeoutError as error:
        if not waiting.expired:
            raise
        raise GuestError(
            Code.TIMEOUT,
            f"the model has not begun to answer within {limit_s:g} seconds",
            resolution=f"see whether its server works; or raise turn_timeout_s {CONFIG}",
        ) from error


async def _later(tell: Callable[[], Awaitable[None]]) -> None:
    await asyncio.sleep(SLOW_S)
    await tell()


class AwaitServer(RequestHooks):
    """Asks a server again that still loads its model, up to the limit for the first token, and once
    one that has failed. Has a model mend a call that its server could not read."""

    def __init__(self, label: str, tell: Tell) -> None:
        self._label = label
        self._tell = tell
        self._told = False

    async def mend(self, request: ModelRequestContext, error: Exception) -> None:
        if is_malformed_call(error):
            raise ModelRetry(_MALFORMED) from error
        if is_loading(error) and request.attempt < _ATTEMPTS_MAX:
            if not self._told:
                self._told = True
                await self._tell(f"the server of {self._label} is still loading the model: waiting")
        elif getattr(error, "status_code", 0) != 500 or request.attempt > 1:
            raise error
        await asyncio.sleep(AGAIN_S * request.attempt)
        raise RetryModelRequest from error

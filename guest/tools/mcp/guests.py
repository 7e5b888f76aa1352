"""The guests of servers that have one of their own: the agent asks the runner for one when a server
is needed, and gives it back when nobody has called the server for a while."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from wire.errors import in_a_line
from wire.identity import Party
from wire.limits import TOOL_GUESTS_MAX

from guest.config import link_of
from guest.errors import GuestError
from guest.tools.shell.client import ShellClient
from guest.tools.shell.program import ProgramLostError
from guest.watch import CallReporter

IDLE_S: Final = 600.0
TURN: Final = "it waits for its turn"
RESTING: Final = "it is started when it is called"
"""In the place of the reason why a server is away that nobody has called for so long."""


class Use:
    """How a server uses the guest that is its own."""

    def __init__(self) -> None:
        self.calls, self.last = 0, 0.0
        self.leave: Callable[[], None] | None = None
        """Has the server leave the guest; None while it cannot be called."""

    @property
    def idle(self) -> bool:
        return self.leave is not None and not self.calls

    def rest(self) -> None:
        if self.leave is not None:
            self.leave()

    @contextmanager
    def call(self) -> Iterator[None]:
        """The body is a use of it."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1
            self.last = asyncio.get_running_loop().time()


class ToolGuests:
    """The guests that this agent uses now. Where there are too many, the server that has been idle
    longest makes room; after `idle_s` without a call each rests. `witness` leads to the runner."""

    def __init__(self, witness: CallReporter, idle_s: float = IDLE_S) -> None:
        self._witness = witness
        self._idle_s = idle_s
        self._users: dict[str, Use] = {}
        self.learn: Callable[[str], None] = lambda _: None  # each token, which nobody is shown

    @asynccontextmanager
    async def guest(self, name: str, use: Use) -> AsyncIterator[ShellClient]:
        """The guest of the server `name`, for as long as the body runs.

        Raises `ProgramLostError` with the reason if there is none.
        """
        if len(self._users) >= TOOL_GUESTS_MAX:
            if idle := [each for each in self._users.values() if each.idle]:
                min(idle, key=lambda each: each.last).rest()
            raise ProgramLostError(f"{TOOL_GUESTS_MAX} others have a guest; {TURN}")
        self._users[name] = use
        try:
            link = await self._witness.tool_guest(name)
            self.learn(link.token)
            if (peer := link_of(Party.SHELL, link).peer) is None:
                raise ProgramLostError("the runner does not say where its guest is")
            shell = ShellClient(peer)
            resting = asyncio.create_task(self._rested(use))
            try:
                yield shell
            finally:
                resting.cancel()
                await shell.close()
        except GuestError as error:
            raise ProgramLostError(f"its guest does not run: {in_a_line(error)}") from None
        finally:
            self._witness.leave_tool_guest(name)
            del self._users[name]

    async def _rested(self, use: Use) -> None:
        """Let it rest once nobody has used it for so long."""
        while True:
            left = use.last + self._idle_s - asyncio.get_running_loop().time()
            if left <= 0 and use.idle:
                use.rest()
            await asyncio.sleep(left if left > 0 else self._idle_s)

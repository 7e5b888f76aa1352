"""The guests of servers that have one of their own: the agent asks the runner for one when a server
is needed, and gives it back when nobody has called the server for a while."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from wire.identity import Party
from wire.limits import TOOL_GUESTS_MAX

from guest.config import link_of
from guest.errors import GuestError
from guest.tools.shell.client import ShellClient
from guest.tools.shell.program import ProgramLostError
from guest.watch import CallReporter

IDLE_S: Final = 600.0
RESTING: Final = "it is started when it is called"
"""In the place of the reason why a server is away that nobody has called for so long."""


class Use:
    """How a server uses the guest that is its own."""

    def __init__(self) -> None:
        self.calls, self.last = 0, 0.0
        self.leave: Callable[[], None] | None = None
        """Has the server leave the guest; None while it cannot be called."""
        self.on_idle: Callable[[], None] = lambda: None

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
            self.on_idle()


class ToolGuests:
    """The guests that this agent uses now. Where there are too many, the server that has been idle
    longest makes room.

    Args:
        witness: The way to the runner.
        idle_s: After how many seconds without a call a server rests.
    """

    def __init__(self, witness: CallReporter, idle_s: float = IDLE_S) -> None:
        self._witness = witness
        self._idle_s = idle_s
        self._users: dict[str, Use] = {}
        self._changed = asyncio.Event()
        self.learn: Callable[[str], None] = lambda _: None
        """Is told each token, which nobody must be shown."""

    @asynccontextmanager
    async def guest(self, name: str, use: Use) -> AsyncIterator[ShellClient]:
        """The guest of the server `name`, for as long as the body runs.

        Raises `ProgramLostError` with the reason if there is none.
        """
        await self._room()
        self._users[name], use.on_idle = use, self._changed.set
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
            said = "; ".join(filter(None, (error.brief, error.details, error.resolution)))
            raise ProgramLostError(f"its guest does not run: {said}") from None
        finally:
            self._witness.leave_tool_guest(name)
            del self._users[name]
            self._changed.set()

    async def _room(self) -> None:
        """Wait until there is room for one more."""
        while len(self._users) >= TOOL_GUESTS_MAX:
            if idle := [each for each in self._users.values() if each.idle]:
                min(idle, key=lambda each: each.last).rest()
            self._changed.clear()
            await self._changed.wait()

    async def _rested(self, use: Use) -> None:
        """Let it rest once nobody has used it for so long."""
        while True:
            left = use.last + self._idle_s - asyncio.get_running_loop().time()
            if left <= 0 and use.idle:
                use.rest()
            await asyncio.sleep(left if left > 0 else self._idle_s)

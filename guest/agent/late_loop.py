"""The turn loop, made after the guest is ready, because what it imports takes long."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from guest.agent.turn import AskClient, Emit, Outcome, TurnRequest
from guest.tools.base import Approve

if TYPE_CHECKING:
    from guest.agent.turn_loop import TurnLoop


class LateLoop:
    """Runs turns as `guest.agent.turn_loop.TurnLoop`, which `make` imports and returns.

    `make` is called once, in a thread. Turns wait for it; the event loop does not. What it fails
    with, every turn fails with.
    """

    def __init__(self, make: "Callable[[], TurnLoop]") -> None:
        self._make = make
        self._making: asyncio.Future[TurnLoop] | None = None

    async def loaded(self) -> "TurnLoop":
        """The loop; the first call begins to make it."""
        if self._making is None:
            self._making = asyncio.ensure_future(asyncio.to_thread(self._make))
        return await asyncio.shield(self._making)

    async def run(
        self,
        request: TurnRequest,
        emit: Emit,
        approve: Approve | None = None,
        ask_client: AskClient | None = None,
    ) -> Outcome:
        """As `TurnLoop.run`."""
        return await (await self.loaded()).run(request, emit, approve, ask_client)

    async def answer_untraced(self, request: TurnRequest, emit: Emit) -> Outcome:
        """As `TurnLoop.answer_untraced`."""
        return await (await self.loaded()).answer_untraced(request, emit)

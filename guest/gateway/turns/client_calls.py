"""Calls of a client's tools that wait for the client."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

from wire.v1 import gateway_pb2 as pb

from guest.agent.turn import Answer, Emit
from guest.memory.models import at


class ClientCalls:
    """The calls of all turns that wait; each for `wait_s` seconds at most."""

    def __init__(self, wait_s: float) -> None:
        self._open: dict[tuple[str, str], asyncio.Future[Answer]] = {}
        self.wait_s: Final = wait_s

    async def ask(self, turn_id: str, call: pb.ClientCall, emit: Emit) -> Answer | None:
        """Tell the client of a call, and wait for its answer; None if there is none in time."""
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        place = (turn_id, call.call_id)
        self._open[place] = waiting
        call.expires_at = at(datetime.now(UTC) + timedelta(seconds=self.wait_s))
        try:
            await emit(call)
            async with asyncio.timeout(self.wait_s):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._open[place]

    def answer(self, turn_id: str, call_id: str, answer: Answer) -> bool:
        """Answer a call; false if nobody waits for that any more."""
        waiting = self._open.get((turn_id, call_id))
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

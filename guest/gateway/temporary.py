"""Conversations of which nothing is kept: they are in this process's memory alone."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from wire.errors import WireError
from wire.v1 import gateway_pb2 as pb

from guest.gateway import validation
from guest.gateway.sessions import Sessions
from guest.gateway.turns.records import TurnRecords
from guest.memory.memory import Memory
from guest.memory.models import TEMPORARY, at
from guest.tools.pipeline import ToolPipeline

OPEN_MAX: Final = 8
IDLE: Final = timedelta(hours=1)
_LOOK_S: Final = 60.0


@dataclass(frozen=True)
class Temporary:
    """What temporary conversations need: `conversations` are in this process's memory alone, and
    `pipeline` has only tools that read."""

    conversations: Memory
    pipeline: ToolPipeline


class TemporarySessions(Sessions):
    """A user's temporary conversations. The one that was idle longest ends where `OPEN_MAX` are
    open and another one begins; each ends after `IDLE` without a turn. `end` ends one."""

    def __init__(
        self,
        memory: Memory,
        records: TurnRecords,
        is_live: Callable[[str], bool],
        end: Callable[[str], Awaitable[object]],
    ) -> None:
        super().__init__(memory.conversations, memory.receipts, memory.sessions, records, is_live)
        self._end = end
        self._look: asyncio.Task[None] | None = None

    async def create(self, request: pb.CreateSessionRequest) -> pb.Session:
        validation.temporary(request)
        if self._look is None:
            self._look = asyncio.create_task(self._end_idle(), name="temporary-conversations")
        for surplus in (await self._conversations.list(2 * OPEN_MAX))[OPEN_MAX - 1 :]:
            await self._end(surplus.session_id)
        return await super().create(
            pb.CreateSessionRequest(
                session_id=f"{TEMPORARY}{uuid.uuid4()}",
                title=request.title,
                channel=request.channel,
            )
        )

    async def close(self) -> None:
        """Stop looking for idle ones. Idempotent."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def _end_idle(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.end_idle(datetime.now(UTC))

    async def end_idle(self, now: datetime) -> None:
        """End those without a turn for `IDLE`, except where one runs."""
        for each in await self._conversations.list(2 * OPEN_MAX):
            if each.updated_at < at(now - IDLE):
                with suppress(WireError):
                    await self._end(each.session_id)

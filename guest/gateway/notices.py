"""The outbox of a user behind the gateway, and the notices that begin here."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final, cast

from wire.text import shortened
from wire.v1 import gateway_pb2 as pb

from guest.errors import BudgetError, StorageError
from guest.gateway import convert
from guest.gateway.turns.approvals import Approval
from guest.memory.models import is_temporary
from guest.memory.storage.base import INTEGER_MAX
from guest.memory.storage.changes import Background
from guest.memory.usage import CapReached, ModelRequest
from guest.notices.outbox import Kind, Notice, Outbox

log = logging.getLogger(__name__)

MOMENT_S: Final = 10.0
"""A call that waits so long for a person is told, unless somebody follows its turn."""
_PAGE_DEFAULT: Final = 50
_ASKED_CHARS: Final = 500


class Notices:
    """A person's notices. `is_followed` says whether anybody follows a turn, by its id."""

    def __init__(self, outbox: Outbox, is_followed: Callable[[str], bool]) -> None:
        self.outbox: Final = outbox
        self._is_followed = is_followed
        self._background = Background()
        self.close: Final = self._background.stop

    async def list(self, request: pb.ListNoticesRequest) -> pb.ListNoticesReply:
        limit = request.limit or _PAGE_DEFAULT
        before = request.before or INTEGER_MAX
        found = await self.outbox.newest(limit + 1, before, unread=request.unread_only)
        told = await self.outbox.told(request.surface) if request.surface else 0
        found = [notice for notice in found if notice.number > told]
        page = found[:limit]
        return pb.ListNoticesReply(
            notices=map(_message, page),
            unread=await self.outbox.unread(),
            before=page[-1].number if len(found) > limit else 0,
        )

    async def follow(self, request: pb.FollowNoticesRequest) -> AsyncIterator[pb.StoredNotice]:
        told = await self.outbox.told(request.surface) if request.surface else 0
        after = max(told, request.after)
        async for notice in self.outbox.follow(after, unread=not request.include_read):
            yield _message(notice)

    async def mark(self, request: pb.MarkNoticesRequest) -> pb.MarkNoticesReply:
        if request.surface and request.told:
            await self.outbox.tell(request.surface, request.told)
        unread = await self.outbox.read(request.read, up_to=request.read_up_to)
        return pb.MarkNoticesReply(unread=unread)

    async def add(self, request: pb.AddNoticeRequest) -> pb.AddNoticeReply:
        kind = cast("Kind", request.kind)
        notice = await self.outbox.add(kind, request.text, key=request.key)
        return pb.AddNoticeReply(number=notice.number)

    def waits(self, approval: Approval) -> None:
        """Tell of a call that waits for longer than a moment with nobody there; once it is decided,
        that is read."""
        self._background.begin(self._tell_of(approval))

    async def budget_reached(
        self, reached: CapReached, request: ModelRequest, refused: BudgetError
    ) -> None:
        """Tell of a budget that does not cover a request: once for its time and its limit."""
        cap, day = reached.cap, request.day
        when = {"session": request.session_id, "month": day[:7]}.get(cap.scope, day)
        session_id = "" if is_temporary(request.session_id) else request.session_id
        try:
            await self.outbox.add(
                "budget",
                f"{refused.brief}. To go on: {refused.resolution}",
                key=f"budget:{cap.scope}:{cap.unit}:{cap.most}:{when}",
                session_id=session_id if cap.scope == "session" else "",
            )
        except StorageError as error:
            log.warning("that a budget is reached is not told: %s", error.brief)

    async def _tell_of(self, approval: Approval) -> None:
        asked = approval.request
        await asyncio.wait([approval.decided], timeout=MOMENT_S)
        if approval.decided.done() or (asked.turn_id and self._is_followed(asked.turn_id)):
            return
        until = datetime.fromisoformat(asked.expires_at).astimezone()
        passing = is_temporary(asked.session_id)
        what = "" if passing else f": {shortened(' '.join(asked.text.split()), _ASKED_CHARS)}"
        try:
            notice = await self.outbox.add(
                "approval",
                f"{asked.tool} waits for your word until {until:%H:%M}{what}",
                key=asked.approval_id,
                session_id="" if passing else asked.session_id,
                turn_id="" if passing else asked.turn_id,
            )
            await asyncio.wait([approval.decided])
            await self.outbox.read([notice.number])
        except StorageError as error:
            log.warning("that a call waits for a person is not told: %s", error.brief)


def _message(notice: Notice) -> pb.StoredNotice:
    return convert.message(pb.StoredNotice, notice)

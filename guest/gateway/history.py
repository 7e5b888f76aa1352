"""What has happened to a user's notes, taking it back, and what deserves a second look."""

from wire.v1 import gateway_pb2

from guest.gateway import bounds, convert
from guest.gateway.paging import fitting
from guest.gateway.person import channel_of
from guest.memory.store import Memory

_CHANGES_DEFAULT = 50
_REVIEW_DEFAULT = 50
_STALE_DAYS_DEFAULT = 180
_TOO_LONG = (
    "only the first {most} of each are shown: all of these notes are too long for one answer"
)


class History:
    """One user's changes behind the gateway."""

    def __init__(self, user_id: str, memory: Memory) -> None:
        self._user_id = user_id
        self._memory = memory

    async def changes(
        self, request: gateway_pb2.ListChangesRequest
    ) -> gateway_pb2.ListChangesReply:
        note_id = bounds.identifier("note_id", request.note_id, optional=True)
        cursor, actor = bounds.cursor(request.cursor), bounds.actor(request.actor)
        session_id = bounds.identifier("session_id", request.session_id, optional=True)

        async def page(limit: int) -> gateway_pb2.ListChangesReply:
            changes, following = await self._memory.history.changes(
                self._user_id,
                note_id=note_id,
                limit=limit,
                cursor=cursor,
                actor=actor,
                material_only=request.material_only,
                session_id=session_id,
            )
            return gateway_pb2.ListChangesReply(
                changes=map(convert.change, changes), next_cursor=following
            )

        limit = bounds.limit(request.limit, default=_CHANGES_DEFAULT)
        with convert.checked():
            if note_id:
                await self._memory.get(self._user_id, note_id)
            return await fitting(limit, page)

    async def undo(self, request: gateway_pb2.UndoChangeRequest) -> gateway_pb2.UndoChangeReply:
        note_id = bounds.identifier("note_id", request.note_id)
        expected = bounds.version("expected_version", request.expected_version)
        channel = channel_of(request.channel)
        with convert.checked():
            undone = await self._memory.history.undo(
                self._user_id,
                note_id,
                expected_version=expected,
                may_forget=request.may_forget,
                channel=channel,
            )
        return gateway_pb2.UndoChangeReply(
            done=undone.done, note=convert.note(undone.note) if undone.note else None
        )

    async def review(
        self, request: gateway_pb2.ReviewMemoryRequest
    ) -> gateway_pb2.ReviewMemoryReply:
        stale_days = bounds.limit(
            request.stale_days,
            default=_STALE_DAYS_DEFAULT,
            maximum=bounds.STALE_DAYS_MAX,
            field="stale_days",
        )
        limit = bounds.limit(request.limit, default=_REVIEW_DEFAULT)
        with convert.checked():
            reviewed = await self._memory.review(self._user_id, stale_days=stale_days, limit=limit)
        found = max(len(reviewed.near), len(reviewed.stale))

        async def first(most: int) -> gateway_pb2.ReviewMemoryReply:
            cut = (_TOO_LONG.format(most=most),) if most < found else ()
            return gateway_pb2.ReviewMemoryReply(
                near=map(convert.near, reviewed.near[:most]),
                stale=map(convert.note, reviewed.stale[:most]),
                warnings=(*reviewed.warnings, *cut),
            )

        return await fitting(found, first)

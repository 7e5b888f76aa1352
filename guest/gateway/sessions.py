"""One user's conversations behind the gateway, and those of which nothing is kept: they are in
this process's memory alone."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from wire.errors import Code, WireError
from wire.tools import VirtualRoot
from wire.v1 import gateway_pb2 as pb

from guest.agent.events import by_turn, request_in
from guest.agent.receipts.ledger import to_message
from guest.errors import GuestError, StorageError
from guest.gateway import convert, validation
from guest.gateway.turns.records import TurnRecords
from guest.gateway.validation import largest_page
from guest.memory.conversations.sessions import SessionAdmin, SessionState
from guest.memory.conversations.store import Conversations
from guest.memory.memory import Memory
from guest.memory.models import TEMPORARY, Event, Session, at
from guest.memory.notes.receipts import Receipts
from guest.memory.storage.base import INTEGER_MAX
from guest.projects.changes import Changes
from guest.tools.base import ToolContext
from guest.tools.pipeline import ToolPipeline

_LIST_DEFAULT = 50
_HISTORY_DEFAULT = 100
_LOOKED_AT = 200
_PROJECT = "project"
"""The name of the session's state that has its project."""


@dataclass(repr=False, eq=False)
class Sessions:
    """Operations on the user's sessions. `is_live` tells of a turn whether it runs, or has ended
    in this launch."""

    conversations: Conversations
    receipts: Receipts
    admin: SessionAdmin
    records: TurnRecords
    is_live: Callable[[str], bool]
    state: SessionState
    projects: Mapping[str, VirtualRoot]
    changes: Changes | None = None
    _chosen: dict[str, str] = field(default_factory=dict)

    async def create(self, request: pb.CreateSessionRequest) -> pb.Session:
        if (project := request.project) and project not in self.projects:
            raise GuestError(
                Code.INVALID_ARGUMENT,
                f"bad project: {project!r} is not open",
                details=f"open are: {', '.join(sorted(self.projects)) or 'none'}",
                resolution="name one of these, or open it: runner chat --with DIR",
            )
        created = await self.conversations.create(
            session_id=request.session_id,
            title=request.title,
            channel=request.channel,
            parent_id=await self._parent(request),
        )
        session_id = created.session_id
        if project and await self.project_of(session_id) != project:
            await self.state.update(session_id, _PROJECT, lambda _: json.dumps(project))
            self._chosen[session_id] = project
        return await self._with_project(created)

    async def project_of(self, session_id: str) -> str:
        """The project in which a session works, if it is open; empty for none."""
        if not (session_id and self.projects):
            return ""
        if session_id not in self._chosen:
            with suppress(StorageError):
                found = await self.state.read(session_id, _PROJECT)
                self._chosen[session_id] = json.loads(found[0]) if found else ""
        name = self._chosen.get(session_id, "")
        return name if name in self.projects else ""

    async def within(self, context: ToolContext) -> ToolContext:
        """`context`, with the project of its session."""
        if not (name := await self.project_of(context.session_id)):
            return context
        its = self.projects[name]
        return replace(context, project=name, project_tag=its.tag, keeps_notes=its.keeps_notes)

    async def _with_project(self, session: Session) -> pb.Session:
        shown = convert.session(session)
        shown.project = await self.project_of(session.session_id)
        return shown

    async def list(self, request: pb.ListSessionsRequest) -> pb.ListSessionsReply:
        sessions = await self.conversations.list(
            request.limit or _LIST_DEFAULT,
            include_archived=request.include_archived,
            include_delegated=request.include_delegated,
        )
        return pb.ListSessionsReply(sessions=map(convert.session, sessions))

    async def history(self, request: pb.GetSessionRequest) -> pb.SessionHistory:
        session_id = request.session_id
        paging = 0 < request.before <= INTEGER_MAX
        last = request.before - 1 if paging else INTEGER_MAX

        async def page(limit: int) -> pb.SessionHistory:
            found = await self.conversations.history(session_id, limit + 1, last)
            events = found[-limit:]
            turn_ids = sorted({event.turn_id for event in events})
            receipts = await self.receipts.of_turns(session_id, turn_ids)
            changed = await self.changes.receipts(session_id, turn_ids) if self.changes else {}
            interrupted = await self._interrupted(
                session_id, [event for event in events if event.turn_id not in going_on]
            )
            return pb.SessionHistory(
                session=await self._with_project(session),
                events=[convert.event(event, interrupted) for event in events],
                receipts=[to_message(receipt, turn_id) for turn_id, receipt in receipts],
                before=events[0].sequence if len(found) > limit else 0,
                files=[pb.TurnFiles(turn_id=each, files=files) for each, files in changed.items()],
            )

        session = await self.conversations.get(session_id)
        following = await self.conversations.history(session_id, 1, last + 1) if paging else []
        going_on = {event.turn_id for event in following}
        return await largest_page(request.limit or _HISTORY_DEFAULT, page)

    async def _interrupted(self, session_id: str, events: Sequence[Event]) -> set[int]:
        """The last event of each turn in whose middle the agent stopped."""
        candidates = [each for each in events if not self.is_live(each.turn_id)]
        records = await self.records.in_session(session_id, candidates)
        return {each.events[-1].sequence for each in records if each.interrupted}

    async def rename(self, request: pb.RenameSessionRequest) -> pb.Session:
        return convert.session(await self.admin.rename(request.session_id, request.title))

    async def archive(self, request: pb.ArchiveSessionRequest) -> pb.Session:
        archived = await self.admin.archive(request.session_id, archived=request.archived)
        return convert.session(archived)

    async def forget(self, request: pb.ForgetSessionRequest) -> pb.ForgetSessionReply:
        with convert.checked():
            await self.admin.forget(request.session_id)
        self._chosen.pop(request.session_id, None)
        return pb.ForgetSessionReply()

    async def turn_context(self, request: pb.GetTurnContextRequest) -> pb.TurnContext:
        """What the request for an answer was made of. NOT_FOUND where that is not recorded."""
        session_id, turn_id = request.session_id, request.turn_id
        if turn_id:
            await self.conversations.get(session_id)
            events = await self.conversations.of_turn(session_id, turn_id)
        else:
            events = await self.conversations.history(session_id, _LOOKED_AT)
        for turn in reversed(by_turn(events)):
            if (request_for := request_in(turn)) is not None:
                return convert.turn_context(turn, request_for)
        raise GuestError(
            Code.NOT_FOUND,
            "it is not recorded what the request for this answer was made of",
            details="no answer is there yet, or an earlier version of the agent gave it",
            resolution="ask something",
        )

    async def _parent(self, request: pb.CreateSessionRequest) -> str:
        """The session that delegated work to the new one; empty for none."""
        if not request.parent_session_id:
            return ""
        if request.parent_session_id == request.session_id:
            raise GuestError(
                Code.INVALID_ARGUMENT, "bad parent_session_id: a session cannot be its own parent"
            )
        return await self.require(request.parent_session_id)

    async def require(self, session_id: str) -> str:
        """`session_id`, which must be one of this user's; NOT_FOUND otherwise."""
        with convert.checked():
            await self.conversations.get(validation.identifier("session_id", session_id))
        return session_id


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
        projects: Mapping[str, VirtualRoot],
    ) -> None:
        super().__init__(
            *(memory.conversations, memory.receipts, memory.sessions, records, is_live),
            *(memory.state_of, projects),
        )
        self._end = end
        self._look: asyncio.Task[None] | None = None

    async def create(self, request: pb.CreateSessionRequest) -> pb.Session:
        validation.temporary(request)
        if self._look is None:
            self._look = asyncio.create_task(self._end_idle(), name="temporary-conversations")
        for surplus in (await self.conversations.list(2 * OPEN_MAX))[OPEN_MAX - 1 :]:
            await self._end(surplus.session_id)
        return await super().create(
            pb.CreateSessionRequest(
                session_id=f"{TEMPORARY}{uuid.uuid4()}",
                title=request.title,
                channel=request.channel,
                project=request.project,
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
        for each in await self.conversations.list(2 * OPEN_MAX):
            if each.updated_at < at(now - IDLE):
                with suppress(WireError):
                    await self._end(each.session_id)

"""Conversations that continue while their server is away.

Events then wait here, in memory and in order, and are stored once the server is back: each exactly
once, even if an earlier attempt succeeded and only its answer was lost. Events still waiting when
the guest ends are lost.
"""

import asyncio
import logging
import uuid
from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from wire.errors import Code

from guest.errors import StorageError
from guest.memory.conversations.store import Conversations, Events, NewEvent, said
from guest.memory.indexing.indexer import Indexer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.models import Event, Session, SessionNotFound, User, now
from guest.memory.storage.availability import is_away
from guest.memory.storage.base import INTEGER_MAX, Database

log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
_SESSIONS_MAX: Final = 32
_REMEMBERED_EVENTS: Final = 512


@dataclass
class _Known:
    """What a turn needs of a session to continue without the server."""

    session: Session
    events: "deque[Event]" = field(default_factory=lambda: deque(maxlen=_REMEMBERED_EVENTS))


class Outbox(Conversations):
    """`Conversations` on a server that may be away.

    Recently used sessions continue meanwhile, with their remembered events, and new ones can be
    created. Everything else fails with `StorageError`.
    """

    def __init__(
        self, database: Database, vectors: VectorStore, indexer: Indexer, user: User
    ) -> None:
        super().__init__(database, vectors, indexer, user)
        self._waiting: deque[Session | NewEvent] = deque()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._delivering = asyncio.Lock()
        self._delivery: asyncio.Task[None] | None = None
        self._told: set[str] = set()

    def unstored(self, session_id: str) -> str:
        """See `Conversations.unstored`; returned once until everything is stored again."""
        if session_id in self._told or session_id not in self._sessions_waiting():
            return ""
        self._told.add(session_id)
        return (
            "The memory server cannot be reached: this conversation is not being stored right "
            "now. It will be when the server is back, unless the agent stops before."
        )

    def pending(self, session_id: str) -> bool:
        return session_id in self._sessions_waiting()

    async def create(
        self, session_id: str = "", title: str = "", channel: str = "", parent_id: str = ""
    ) -> Session:
        session_id = session_id or f"session-{uuid.uuid4()}"
        try:
            session = await super().create(session_id, title, channel, parent_id)
        except StorageError as error:
            if not is_away(error):
                raise
            known = self._known.get(session_id)
            if known is not None:
                return known.session
            moment = now()
            session = Session(
                session_id, title, channel, moment, moment, turns=0, parent_id=parent_id
            )
            self._wait(session)
        return self._remember(session).session

    async def get(self, session_id: str) -> Session:
        known = self._known.get(session_id)
        if known is not None and session_id in self._sessions_waiting():
            return known.session
        try:
            return self._remember(await super().get(session_id)).session
        except StorageError as error:
            if known is None or not is_away(error):
                raise
            return known.session
        except SessionNotFound:
            self._known.pop(session_id, None)
            raise

    async def history(self, session_id: str, limit: int, last: int = INTEGER_MAX) -> Events:
        if session_id in self._sessions_waiting():
            await self._deliver()
        known = self._known.get(session_id)
        if session_id not in self._sessions_waiting():
            try:
                events = await super().history(session_id, limit, last)
            except StorageError as error:
                if known is None or not is_away(error):
                    raise
            else:
                if last == INTEGER_MAX:
                    self._remember_events(session_id, events)
                return events
        if known is None:
            raise SessionNotFound(session_id)
        if last < INTEGER_MAX:
            return [event for event in known.events if 0 < event.sequence <= last][-limit:]
        return list(known.events)[-limit:]

    async def append(
        self, session_id: str, *, turn_id: str, role: str, text: str, payload: str, title: str = ""
    ) -> int:
        """See `Conversations.append`; 0 for an event that waits for the server."""
        event = said(session_id, turn_id, role, text, payload, title)
        sequence = 0
        if session_id in self._sessions_waiting():
            await self._deliver()
        if session_id in self._sessions_waiting():
            self._wait(event)
        else:
            try:
                sequence = await self._store(event)
            except StorageError as error:
                if session_id not in self._known or not is_away(error):
                    raise
                self._wait(event)
        if (known := self._known.get(session_id)) is not None:
            known.events.append(event.stored_as(sequence))
        return sequence

    def returned(self) -> None:
        """The server is back: begin to store waiting events."""
        if self._waiting:
            self._delivery = asyncio.create_task(self._deliver(), name="memory-outbox")

    async def close(self) -> None:
        """Drop the events that still wait, and log how many. Idempotent."""
        if self._delivery is not None:
            self._delivery.cancel()
            await asyncio.gather(self._delivery, return_exceptions=True)
        events = sum(isinstance(entry, NewEvent) for entry in self._waiting)
        if self._waiting:
            log.error(
                "%d events of conversations are lost: the memory server was away until the end",
                events,
                extra={"count": events},
            )
        self._waiting.clear()

    async def _deliver(self) -> None:
        """Store waiting events in order, until none is left or the server is away."""
        async with self._delivering:
            stored = 0
            while self._waiting:
                entry = self._waiting[0]
                try:
                    if isinstance(entry, NewEvent):
                        await self._store(entry, again=True)
                    else:
                        session = (entry.title, entry.channel, entry.parent_id)
                        await super().create(entry.session_id, *session)
                    stored += 1
                except StorageError as error:
                    if is_away(error):
                        return
                    log.error("an event of a conversation cannot be stored: %s", error)
                except SessionNotFound:
                    log.warning("an event is dropped: its session was forgotten meanwhile")
                self._waiting.popleft()
            if stored:
                log.info("%d entries of conversations were stored late", stored)
            self._told.clear()

    def _wait(self, entry: Session | NewEvent) -> None:
        if len(self._waiting) >= WAITING_MAX:
            raise StorageError(
                Code.RESOURCE_EXHAUSTED,
                "the memory server is away, and no more of the conversation can be kept until it "
                "is back",
                details=f"{WAITING_MAX} events are waiting already",
                resolution="start the memory server, or wait until it can be reached",
            )
        self._waiting.append(entry)

    def _sessions_waiting(self) -> Collection[str]:
        return {entry.session_id for entry in self._waiting}

    def _remember(self, session: Session) -> _Known:
        known = self._known.setdefault(session.session_id, _Known(session))
        known.session = session
        self._known.move_to_end(session.session_id)
        while len(self._known) > _SESSIONS_MAX + len(self._sessions_waiting()):
            self._known.popitem(last=False)
        return known

    def _remember_events(self, session_id: str, events: Events) -> None:
        """Remember the newest events, and keep those remembered before them."""
        known = self._known.get(session_id)
        if known is not None and events:
            older = [event for event in known.events if 0 < event.sequence < events[0].sequence]
            known.events = deque([*older, *events], maxlen=_REMEMBERED_EVENTS)

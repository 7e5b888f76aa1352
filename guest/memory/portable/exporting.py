"""A user's memory as lines, page by page.

What is written meanwhile: a note, session or event that is new is left out, one that
goes before its page was read is left out too, and one that changes is there as it was
when its page was read. A note is never half old and half new.
"""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from wire.errors import Code
from wire.limits import EXPORT_LINE_MAX_BYTES, EXPORT_PART_BYTES

from guest.errors import StorageError
from guest.memory.database.base import Database
from guest.memory.instant import now
from guest.memory.portable.lines import (
    Counts,
    End,
    Entity,
    EventLine,
    Header,
    HistoryLine,
    NoteLine,
    SessionLine,
    written,
)
from guest.memory.portable.reading import Extent, Reader

_COUNTED: Final = {NoteLine: "notes", SessionLine: "sessions", EventLine: "events"}


@dataclass(frozen=True)
class Part:
    """Some whole lines; how many notes, sessions and events were written so far, and how
    many there were at the beginning."""

    lines: bytes
    entries: int
    entries_total: int


async def export(database: Database, user_id: str) -> AsyncIterator[Part]:
    """Everything of `user_id`, in parts of up to `EXPORT_PART_BYTES` or one longer line.

    The lines between the first and the last are the same whenever the memory is the
    same. Raises `StorageError`.
    """
    reader = Reader(database, user_id)
    extent = await reader.extent()
    header = Header(user_id=user_id, exported_at=now(), counts=extent.counts)
    total = extent.counts.notes + extent.counts.sessions + extent.counts.events
    part, entries, lines = bytearray(written(header)), 0, 0
    digest = hashlib.sha256()
    counts = dict.fromkeys(Counts.model_fields, 0)
    async for entity in entities(reader, extent):
        line = _bounded(entity)
        if len(part) + len(line) > EXPORT_PART_BYTES:
            yield Part(bytes(part), entries, total)
            part.clear()
        part += line
        lines += 1
        digest.update(line)
        if not isinstance(entity, HistoryLine):
            entries += 1
            counts[_COUNTED[type(entity)]] += 1
        if isinstance(entity, NoteLine | HistoryLine):
            counts["note_versions"] += len(entity.history)
    end = End(lines=lines, counts=Counts(**counts), sha256=digest.hexdigest())
    yield Part(bytes(part) + written(end), entries, total)


async def entities(reader: Reader, extent: Extent) -> AsyncIterator[Entity]:
    """Notes in the order in which they were saved, then each session with its events."""
    place: int | None = 0
    while place is not None:
        notes, following = await reader.notes(place, extent.last_note)
        for note in notes:
            yield note
            async for history in _earlier(reader, note):
                yield history
        place = following or None
    place = 0
    while place is not None:
        sessions, following = await reader.sessions(place, extent.last_session)
        for session in sessions:
            yield session
            async for event in _events(reader, session.session_id, extent.last_event):
                yield event
        place = following or None


async def _earlier(reader: Reader, note: NoteLine) -> AsyncIterator[HistoryLine]:
    history = note.history
    while history and history[0].version > 1:
        history = await reader.earlier(note.note_id, history[0].version)
        if history:
            yield HistoryLine(note_id=note.note_id, history=history)


async def _events(reader: Reader, session_id: str, last: int) -> AsyncIterator[EventLine]:
    place: int | None = 0
    while place is not None:
        events, following = await reader.events(session_id, place, last)
        for event in events:
            yield event
        place = following or None


def _bounded(entity: Entity) -> bytes:
    line = written(entity)
    if len(line) > EXPORT_LINE_MAX_BYTES:
        place = entity.note_id if isinstance(entity, NoteLine | HistoryLine) else entity.session_id
        number = f", event {entity.sequence}" if isinstance(entity, EventLine) else ""
        raise StorageError(
            Code.RESOURCE_EXHAUSTED,
            f"{place}{number} is too long to be exported",
            details=f"its line would have {len(line)} bytes; {EXPORT_LINE_MAX_BYTES} are possible",
            resolution="runner memory backup copies the whole store instead",
        )
    return line

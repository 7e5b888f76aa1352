"""A user's rows page by page, for an export."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from guest.memory import namespaces
from guest.memory.database.base import Database, Row, Statement
from guest.memory.portable.lines import Counts, EventLine, NoteLine, SessionLine, Version
from guest.memory.portable.rows import (
    EVENT,
    NOTE,
    SAID,
    SESSION,
    VERSION,
    event,
    note,
    version,
    with_state,
)

INLINE_VERSIONS: Final = 8
"""How many earlier versions stand in a note's own line: the longest line stays below
a mebibyte, whatever the note says."""
_NOTES_PER_PAGE: Final = 64
_SESSIONS_PER_PAGE: Final = 256
_EVENTS_PER_PAGE: Final = 64

_PAGE: Final = """
    WHERE seq IN (SELECT seq FROM notes WHERE namespace = ? AND seq > ? AND seq <= ?
                  ORDER BY seq LIMIT ?) ORDER BY seq
"""
_VERSIONS_OF_PAGE: Final = f"""
SELECT kept.note_id, written_at, replaced_at, {", ".join("kept." + c for c in SAID.split(", "))}
    FROM (SELECT namespace, note_id, version FROM notes {_PAGE}) AS newest
    JOIN note_versions AS kept
        ON kept.namespace = newest.namespace AND kept.note_id = newest.note_id
            AND kept.version >= newest.version - {INLINE_VERSIONS}
    ORDER BY kept.note_id, kept.version
"""  # noqa: S608
_EARLIER: Final = f"""
{VERSION} WHERE namespace = ? AND note_id = ? AND version < ? ORDER BY version DESC LIMIT ?
"""
_SESSIONS_PAGE: Final = f"{SESSION} AND rowid > ? AND rowid <= ? ORDER BY rowid LIMIT ?"
_EVENTS_PAGE: Final = f"""
{EVENT} WHERE session_id = ? AND sequence > ? AND event_id <= ? ORDER BY sequence LIMIT ?
"""
_COUNT: Final = """
SELECT (SELECT COUNT(*) FROM notes WHERE namespace = ?1),
       (SELECT COUNT(*) FROM note_versions WHERE namespace = ?1),
       (SELECT COUNT(*) FROM sessions WHERE user_id = ?2),
       (SELECT COUNT(*) FROM conversation_events JOIN sessions USING (session_id)
            WHERE user_id = ?2),
       (SELECT COALESCE(MAX(seq), 0) FROM notes),
       (SELECT COALESCE(MAX(rowid), 0) FROM sessions),
       (SELECT COALESCE(MAX(event_id), 0) FROM conversation_events)
"""


@dataclass(frozen=True)
class Extent:
    """How much there is at one moment, and up to where each table went then."""

    counts: Counts
    last_note: int
    last_session: int
    last_event: int


class Reader:
    """One user's rows. A note is always read together with its versions, in one transaction."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id
        self._namespace = namespaces.notes_of(user_id)

    async def extent(self) -> Extent:
        """What is there now."""
        result = await self._database.execute(_COUNT, (self._namespace, self._user_id))
        row = cast("tuple[int, ...]", result.rows[0])
        counts = Counts(notes=row[0], note_versions=row[1], sessions=row[2], events=row[3])
        return Extent(counts, *row[4:])

    async def notes(self, after: int, last: int) -> tuple[list[NoteLine], int]:
        """Some notes after the one numbered `after`, oldest first, and where to go on; 0 at
        the end."""
        page = (self._namespace, after, last, _NOTES_PER_PAGE)
        found, versions = await self._database.batch(
            (Statement(NOTE + _PAGE, page), Statement(_VERSIONS_OF_PAGE, page))
        )
        histories = _histories(versions.rows)
        notes = [note(row, histories.get(cast(str, row[0]), ())) for row in found.rows]
        full = len(found.rows) == _NOTES_PER_PAGE
        return notes, cast(int, found.rows[-1][1]) if full else 0

    async def earlier(self, note_id: str, before: int) -> list[Version]:
        """The last versions before version `before`, oldest first."""
        arguments = (self._namespace, note_id, before, INLINE_VERSIONS)
        result = await self._database.execute(_EARLIER, arguments)
        return [version(row) for row in reversed(result.rows)]

    async def sessions(self, after: int, last: int) -> tuple[list[SessionLine], int]:
        """Some sessions after the one numbered `after`, and where to go on; 0 at the end."""
        result = await self._database.execute(
            _SESSIONS_PAGE, (self._user_id, after, last, _SESSIONS_PER_PAGE)
        )
        full = len(result.rows) == _SESSIONS_PER_PAGE
        return await with_state(self._database, result.rows), cast(
            int, result.rows[-1][8]
        ) if full else 0

    async def events(self, session_id: str, after: int, last: int) -> tuple[list[EventLine], int]:
        """Some events after sequence number `after`, and where to go on; 0 at the end.

        `last` is the id of the last event of all sessions to be shown.
        """
        result = await self._database.execute(
            _EVENTS_PAGE, (session_id, after, last, _EVENTS_PER_PAGE)
        )
        events = [event(row) for row in result.rows]
        return events, events[-1].sequence if len(events) == _EVENTS_PER_PAGE else 0


def _histories(rows: Sequence[Row]) -> Mapping[str, list[Version]]:
    histories: dict[str, list[Version]] = {}
    for row in rows:
        histories.setdefault(cast(str, row[0]), []).append(version(row))
    return histories

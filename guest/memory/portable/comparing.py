"""Whether two databases hold the same of a user, row by row."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, cast

from guest.memory import namespaces
from guest.memory.database.base import Database
from guest.memory.portable.exporting import entities
from guest.memory.portable.lines import Entity, EventLine, HistoryLine, NoteLine, SessionLine
from guest.memory.portable.planning import GROUP_LINES, groups
from guest.memory.portable.reading import Reader
from guest.memory.portable.stored import Stored

_IDS_PER_PAGE: Final = 500

_NOTES: Final = """
SELECT seq, note_id FROM notes WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_SESSIONS: Final = """
SELECT rowid, session_id FROM sessions WHERE user_id = ? AND rowid > ? ORDER BY rowid LIMIT ?
"""
_KNOWN_NOTES: Final = """
SELECT note_id FROM notes WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""
_KNOWN_SESSIONS: Final = """
SELECT session_id FROM sessions
    WHERE user_id = ? AND session_id IN (SELECT value FROM json_each(?))
"""


async def surplus(source: Database, target: Database, user_id: str) -> dict[str, int]:
    """How many notes and sessions of the user `target` has and `source` has not."""
    namespace = namespaces.notes_of(user_id)
    return {
        "notes": await _unknown(source, target, _NOTES, _KNOWN_NOTES, namespace),
        "sessions": await _unknown(source, target, _SESSIONS, _KNOWN_SESSIONS, user_id),
    }


async def first_difference(
    source: Database, target: Database, user_id: str, progress: Callable[[int, int], None]
) -> str:
    """What is first found to differ, in words; empty where both hold the same."""
    reader = Reader(source, user_id)
    extent = await reader.extent()
    there = (await Reader(target, user_id).extent()).counts
    if there != extent.counts:
        return f"there are to be {_told(extent.counts)}, and there are {_told(there)}"
    total = extent.counts.notes + extent.counts.sessions + extent.counts.events
    done, stored = 0, Stored(target, user_id)
    async for lines in _some(entities(reader, extent)):
        for group in groups(list(enumerate(lines))):
            if different := await _different([line for _, line in group], stored):
                return f"{different} is not the same in both"
        done += sum(not isinstance(line, HistoryLine) for line in lines)
        progress(done, total)
    return ""


async def _different(lines: Sequence[Entity], stored: Stored) -> str:
    about_notes = [line for line in lines if isinstance(line, NoteLine | HistoryLine)]
    if about_notes:
        here = await stored.notes(about_notes)
        for line in about_notes:
            if isinstance(line, NoteLine) and _bare(here.notes.get(line.note_id)) != _bare(line):
                return f"note {line.note_id}"
            for version in line.history:
                if here.versions.get((line.note_id, version.version)) != version:
                    return f"version {version.version} of note {line.note_id}"
        return ""
    said = [line for line in lines if isinstance(line, EventLine)]
    begun = [line for line in lines if isinstance(line, SessionLine)]
    sessions = await stored.sessions([line.session_id for line in begun])
    events = await stored.events([(line.session_id, line.sequence) for line in said])
    for session in begun:
        if sessions.get(session.session_id) != session:
            return f"session {session.session_id}"
    for event in said:
        if events.get((event.session_id, event.sequence)) != event:
            return f"event {event.sequence} of session {event.session_id}"
    return ""


def _bare(line: NoteLine | None) -> NoteLine | None:
    """Without its history, and without what recalling alone changes."""
    alike = {"history": [], "access_count": 0, "accessed_at": None}
    return None if line is None else line.model_copy(update=alike)


async def _some(lines: AsyncIterator[Entity]) -> AsyncIterator[list[Entity]]:
    gathered: list[Entity] = []
    async for line in lines:
        gathered.append(line)
        if len(gathered) == GROUP_LINES:
            yield gathered
            gathered = []
    yield gathered


async def _unknown(source: Database, target: Database, page: str, known: str, owner: str) -> int:
    unknown, last = 0, 0
    while True:
        rows = (await target.execute(page, (owner, last, _IDS_PER_PAGE))).rows
        ids = [row[1] for row in rows]
        unknown += len(ids) - len((await source.execute(known, (owner, json.dumps(ids)))).rows)
        if len(rows) < _IDS_PER_PAGE:
            return unknown
        last = cast(int, rows[-1][0])


def _told(counts: object) -> str:
    return ", ".join(f"{count} {name}" for name, count in vars(counts).items())

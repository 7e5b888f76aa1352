"""What is stored already of what some lines are about."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from guest.memory import namespaces, notes
from guest.memory.database.base import Database, Result, Statement
from guest.memory.portable.lines import EventLine, HistoryLine, NoteLine, SessionLine, Version
from guest.memory.portable.rows import (
    EVENT,
    NOTE,
    SESSION,
    VERSION,
    event,
    note,
    version,
    with_state,
)
from guest.memory.quota import USED, Used, used_of

_NOTES_BY_ID: Final = f"""
{NOTE} WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""  # noqa: S608
_VERSIONS_BY_NUMBER: Final = f"""
{VERSION} WHERE namespace = ?
    AND (note_id, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""  # noqa: S608
_SESSIONS_BY_ID: Final = f"{SESSION} AND session_id IN (SELECT value FROM json_each(?))"  # noqa: S608
_TAKEN: Final = """
SELECT session_id FROM sessions
    WHERE session_id IN (SELECT value FROM json_each(?)) AND user_id <> ?
"""
_EVENTS_BY_NUMBER: Final = f"""
{EVENT} WHERE (session_id, sequence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))
"""  # noqa: S608
_BY_TEXT: Final = """
SELECT content_hash, scope_session, note_id FROM notes
    WHERE namespace = ? AND superseded_by IS NULL AND key IS NULL
        AND content_hash IN (SELECT value FROM json_each(?))
"""
_BY_KEY: Final = """
SELECT key, note_id, updated_at FROM notes
    WHERE namespace = ? AND key IN (SELECT value FROM json_each(?))
"""
_REPLACED: Final = """
WITH RECURSIVE chain (note_id) AS (
    SELECT value FROM json_each(?2)
    UNION
    SELECT superseded_by FROM chain CROSS JOIN notes USING (note_id)
        WHERE namespace = ?1 AND superseded_by <> '')
SELECT note_id, superseded_by FROM chain CROSS JOIN notes USING (note_id)
    WHERE namespace = ?1 AND superseded_by <> ''
"""
_SCOPES: Final = """
SELECT note_id, scope_session FROM notes
    WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""
_REPLACING: Final = """
SELECT superseded_by, iif(MIN(scope_session) = MAX(scope_session), MIN(scope_session), '')
    FROM notes
    WHERE namespace = ? AND superseded_by IN (SELECT value FROM json_each(?))
    GROUP BY superseded_by
"""


@dataclass(frozen=True)
class Owner:
    """The note that has a key here."""

    note_id: str
    updated_at: str


@dataclass(frozen=True)
class StoredNotes:
    """What bears on some notes: themselves, without history; those of their versions that
    the lines hold too; whose text, in which scope, or key theirs would be; which note has
    replaced which, as far as that leads on from the lines; which of those that replace the
    lines' notes are of one session, and of which session the notes are, if of one, that the
    lines' replace; and how much there is."""

    notes: Mapping[str, NoteLine]
    versions: Mapping[tuple[str, int], Version]
    by_text: Mapping[tuple[str, str], str]
    by_key: Mapping[str, Owner]
    replaced: Mapping[str, str]
    scopes: Mapping[str, str]
    replacing: Mapping[str, str]
    used: Used


class Stored:
    """Looks for one user."""

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id
        self._namespace = namespaces.notes_of(user_id)

    async def notes(self, lines: Iterable[NoteLine | HistoryLine]) -> StoredNotes:
        """What `lines` are about."""
        ids: list[str] = []
        numbers: list[tuple[str, int]] = []
        texts: list[str] = []
        keys: list[str] = []
        replacements: list[str] = []
        scoped: list[str] = []
        for line in lines:
            ids.append(line.note_id)
            numbers += [(line.note_id, each.version) for each in line.history]
            if isinstance(line, NoteLine):
                numbers.append((line.note_id, line.current.version))
                texts.append(notes.hash_of(line.current.content))
                if line.key is not None:
                    keys.append(line.key)
                if line.superseded_by:
                    replacements.append(line.superseded_by)
                if line.scope_session:
                    scoped.append(line.note_id)
        sought: Sequence[tuple[str, Sequence[object]]] = (
            (_NOTES_BY_ID, ids),
            (_VERSIONS_BY_NUMBER, numbers),
            (_BY_TEXT, texts),
            (_BY_KEY, keys),
            (_REPLACED, replacements),
            (_SCOPES, replacements),
            (_REPLACING, [*scoped, *replacements]),
        )
        found = await self._database.batch(
            [
                *(Statement(sql, (self._namespace, notes.to_json(each))) for sql, each in sought),
                Statement(USED, (self._namespace,)),
            ]
        )
        return StoredNotes(
            {cast(str, row[0]): note(row, ()) for row in found[0].rows},
            {(cast(str, row[0]), cast(int, row[3])): version(row) for row in found[1].rows},
            {(text, scope): note_id for text, scope, note_id in _strings(found[2])},
            {key: Owner(note_id, updated) for key, note_id, updated in _strings(found[3])},
            dict(_strings(found[4])),
            dict(_strings(found[5])),
            dict(_strings(found[6])),
            used_of(found[7]),
        )

    async def sessions(self, session_ids: Iterable[str]) -> dict[str, SessionLine]:
        """Those of the sessions that the user has."""
        result = await self._database.execute(
            _SESSIONS_BY_ID, (self._user_id, json.dumps(list(session_ids)))
        )
        lines = await with_state(self._database, result.rows)
        return {line.session_id: line for line in lines}

    async def taken(self, session_ids: Iterable[str]) -> set[str]:
        """Those of the ids that are sessions of other users of the same store."""
        result = await self._database.execute(
            _TAKEN, (json.dumps(list(session_ids)), self._user_id)
        )
        return {cast(str, row[0]) for row in result.rows}

    async def events(self, numbers: Sequence[tuple[str, int]]) -> dict[tuple[str, int], EventLine]:
        """Those of the events, given by session and sequence number, that there are. The
        sessions are the user's."""
        result = await self._database.execute(_EVENTS_BY_NUMBER, (json.dumps(numbers),))
        events = [event(row) for row in result.rows]
        return {(each.session_id, each.sequence): each for each in events}


def _strings(result: Result) -> Sequence[Any]:
    return cast("Sequence[Any]", result.rows)

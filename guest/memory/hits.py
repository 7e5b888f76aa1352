"""From ranked passages to what a search shows: their notes, or who said them when."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from guest.memory.database.base import Database
from guest.memory.database.damage import noticed
from guest.memory.sessions.purging import HIDDEN
from guest.memory.types import HIT_TEXT_MAX_CHARS, Hit, MatchedBy
from guest.memory.vectors import Ids

_NOTES: Final = """
SELECT chunks.chunk_id, notes.note_id,
       CASE WHEN length(notes.content) > ? THEN chunks.body ELSE notes.content END,
       notes.tags, notes.created_at, notes.updated_at, notes.version
    FROM json_each(?) AS wanted
    CROSS JOIN chunks ON chunks.chunk_id = wanted.value
    CROSS JOIN notes ON notes.namespace = chunks.namespace AND notes.note_id = chunks.note_id
    WHERE chunks.namespace = ? AND notes.superseded_by IS NULL
"""
_CONVERSATION: Final = f"""
SELECT chunks.chunk_id, chunks.context, chunks.body, conversation_events.created_at
    FROM json_each(?) AS wanted
    CROSS JOIN chunks ON chunks.chunk_id = wanted.value
    CROSS JOIN conversation_events USING (session_id, sequence)
    WHERE chunks.namespace = ? AND NOT {HIDDEN}
"""  # noqa: S608
_TAGGED: Final = """
SELECT json_group_array(chunks.chunk_id)
    FROM notes JOIN chunks USING (namespace, note_id)
    WHERE notes.namespace = ? AND notes.tags <> '[]' AND NOT EXISTS (
        SELECT 1 FROM json_each(?) AS wanted
        WHERE wanted.value NOT IN (SELECT value FROM json_each(notes.tags)))
"""


@dataclass(frozen=True)
class Found:
    """One passage as it would be shown. `said` tells duplicates apart; `entry` is
    the note, or the passage itself where it belongs to none."""

    entry: str
    said: str
    note_id: str
    text: str
    tags: tuple[str, ...]
    created_at: str
    updated_at: str
    version: int

    def hit(self, score: float, matched_by: MatchedBy) -> Hit:
        return Hit(
            note_id=self.note_id,
            text=self.text,
            score=round(score, 4),
            source="user_memory" if self.note_id else "conversation",
            matched_by=matched_by,
            tags=self.tags,
            created_at=self.created_at,
            updated_at=self.updated_at,
            version=self.version,
        )


async def notes(database: Database, namespace: str, chunk_ids: Sequence[int]) -> dict[int, Found]:
    """The notes of passages; those superseded or gone are left out."""
    result = await database.execute(
        _NOTES, (HIT_TEXT_MAX_CHARS, json.dumps(list(chunk_ids)), namespace)
    )
    found = {}
    with noticed("a note"):
        for row in result.rows:
            chunk_id, note_id, text, tags, created, updated, version = cast("tuple[Any, ...]", row)
            labels = tuple(json.loads(tags))
            found[chunk_id] = Found(
                note_id, _said(text), note_id, text, labels, created, updated, version
            )
    return found


async def conversation(
    database: Database, namespace: str, chunk_ids: Sequence[int]
) -> dict[int, Found]:
    """Passages of conversations; those gone are left out."""
    result = await database.execute(_CONVERSATION, (json.dumps(list(chunk_ids)), namespace))
    found = {}
    for row in result.rows:
        chunk_id, context, body, created = cast("tuple[Any, ...]", row)
        text = f"{context}: {body}"
        found[chunk_id] = Found(
            f"passage {chunk_id}", _said(body), "", text, (), created, created, 0
        )
    return found


async def tagged(database: Database, namespace: str, tags: Sequence[str]) -> Ids:
    """The passages of all notes that carry every one of `tags`."""
    result = await database.execute(
        _TAGGED, (namespace, json.dumps(list(tags), ensure_ascii=False))
    )
    with noticed("the tags of a note"):
        return np.array(json.loads(cast(str, result.rows[0][0])), np.int64)


def _said(text: str) -> str:
    return " ".join(text.casefold().split())

"""Turns ranked passages into results: their notes, or the speaker and time in a conversation."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
from wire.tools import MEMORY_TOOLS

from guest.memory import models
from guest.memory.indexing.vectors import Ids
from guest.memory.models import (
    HIDDEN,
    HIT_TEXT_MAX_CHARS,
    TAGS,
    Filter,
    Hit,
    Only,
    projects_in,
    tags_of,
)
from guest.memory.search.neighbours import HAVE_NEIGHBOURS
from guest.memory.search.ranking import Ranked
from guest.memory.search.standing import Standing, of_note, of_turn
from guest.memory.storage.base import Database, Row

_NOTES: Final = f"""
SELECT chunks.chunk_id, notes.note_id,
       CASE WHEN length(notes.content) > ?1 THEN chunks.body ELSE notes.content END,
       notes.tags, notes.created_at, notes.updated_at, notes.version,
       COALESCE(notes.key, ''), notes.type, notes.confidence, notes.origin_actor,
       notes.origin_link, notes.origin_material, notes.superseded_by IS NOT NULL,
       length(notes.content) > ?1,
       iif({HAVE_NEIGHBOURS.format("notes")}, notes.origin_session, '')
    FROM json_each(?2) AS wanted
    CROSS JOIN chunks ON chunks.chunk_id = wanted.value
    CROSS JOIN notes ON notes.namespace = chunks.namespace AND notes.note_id = chunks.note_id
    WHERE chunks.namespace = ?3 AND notes.scope_session IN ('', ?4)
        AND (notes.superseded_by IS NULL OR ?5)
"""  # noqa: S608
_TOOL: Final = "'$[0].parts[0].tool_name'"
_OUTCOME: Final = "'$[0].parts[0].outcome'"
_MATERIAL: Final = "'$[0].parts[0].metadata.material'"
_BLANKS: Final = "char(9, 10, 13, 32)"
_CONVERSATION: Final = f"""
SELECT chunks.chunk_id, chunks.context, chunks.body, event.created_at, event.session_id,
       event.sequence, CASE
           WHEN event.role <> 'tool' THEN 0
           WHEN json_valid(event.payload) AND json_extract(event.payload, {_TOOL}) <> ''
               THEN COALESCE(json_array_length(event.payload, {_MATERIAL}), 0) > 0
           ELSE 1 END, instr(event.payload, '{models.MARKED}') > 0 OR EXISTS (
               SELECT 1 FROM notes
                   WHERE notes.namespace = ?8 AND notes.origin_session = event.session_id
                       AND notes.origin_turn = event.turn_id
                       AND {HAVE_NEIGHBOURS.format("notes")} AND {models.STAYS_HERE})
    FROM json_each(?1) AS wanted
    CROSS JOIN chunks ON chunks.chunk_id = wanted.value
    CROSS JOIN conversation_events AS event USING (session_id, sequence)
    WHERE chunks.namespace = ?2 AND NOT {HIDDEN}
        AND NOT (event.session_id = ?3 AND event.turn_id = ?4)
        AND NOT (event.role = 'user' AND instr(?7, trim(chunks.body, {_BLANKS})) > 0
                 AND min(length(trim(?7, {_BLANKS})), 200) <= (
                     SELECT SUM(length(passage.body)) FROM chunks AS passage
                         WHERE passage.session_id = event.session_id
                             AND passage.sequence = event.sequence))
        AND (event.session_id = ?3 OR NOT ?5) AND CASE
        WHEN event.role = 'tool' AND json_valid(event.payload)
            THEN COALESCE(json_extract(event.payload, {_TOOL}), '')
                NOT IN (SELECT value FROM json_each(?6))
                AND COALESCE(json_extract(event.payload, {_OUTCOME}), '') <> 'failed'
        ELSE 1 END
"""  # noqa: S608
_REPORTING: Final = json.dumps(sorted(MEMORY_TOOLS))
_ALLOWED: Final = f"""
SELECT json_group_array(chunks.chunk_id)
    FROM notes JOIN chunks USING (namespace, note_id)
    WHERE notes.namespace = ?1 AND notes.scope_session IN ('', ?2)
        AND (notes.superseded_by IS NULL OR ?3) AND notes.confidence >= ?4
        AND (?5 = '[]' OR notes.type IN (SELECT value FROM json_each(?5)))
        AND (?6 = '[]' OR notes.tags <> '[]' AND NOT EXISTS (
            SELECT 1 FROM json_each(?6) AS wanted
            WHERE wanted.value NOT IN (SELECT value FROM {TAGS})))
"""  # noqa: S608


_SAID: Final = """
SELECT json_group_array(chunks.chunk_id)
    FROM conversation_events AS event CROSS JOIN chunks USING (session_id, sequence)
    WHERE chunks.namespace = ?1 AND event.created_at >= ?2
        AND (?3 = '' OR event.created_at < ?3)
"""


class Candidate(NamedTuple):
    """A passage that may be shown. `entry` identifies the note, or the passage itself in a
    conversation. `hit` makes the result from its score and its passage: only a few are shown.
    `projects` are the tags of those that the note is kept for."""

    entry: str
    note_id: str
    key: str
    body: str
    updated_at: str
    standing: Standing
    hit: Callable[[float, Ranked], Hit]
    projects: frozenset[str] = frozenset()

    @property
    def said(self) -> str:
        """The same for duplicates."""
        return " ".join(self.body.casefold().split())


def narrows(tags: Sequence[str], only: Only) -> bool:
    """Whether a filter is for notes alone. Conversations have no tags, type or confidence, so
    they are then not searched."""
    chosen = only.chosen.at_any_time != Filter()
    return bool(tags or only.types) or only.min_confidence > 0 or chosen


async def notes(
    database: Database, namespace: str, chunk_ids: Sequence[int], only: Only
) -> dict[int, Candidate]:
    """The notes of passages, without deleted notes and those that `only` hides because they are
    superseded or scoped to another session."""
    result = await database.execute(
        _NOTES,
        (HIT_TEXT_MAX_CHARS, json.dumps(chunk_ids), namespace, only.session_id, only.superseded),
    )
    found = {}
    for row in result.rows:
        chunk_id, note_id, text, tags, _, updated, _, key, *_ = cast("tuple[Any, ...]", row)
        standing = of_note(text, cast(str, row[-1]))
        hit = partial(_note_hit, row)
        projects = projects_in(tags_of(tags))
        found[chunk_id] = Candidate(note_id, note_id, key, text, updated, standing, hit, projects)
    return found


_HIT: Final = (
    *("note_id", "text", "tags", "created_at", "updated_at", "version", "key", "type"),
    *("confidence", "actor", "link", "material", "superseded", "shortened"),
)
"""What `_NOTES` gives of a hit, after the passage's id."""


def _note_hit(row: Row, score: float, passage: Ranked) -> Hit:
    found: dict[str, Any] = dict(zip(_HIT, row[1:], strict=False))
    for name in ("material", "superseded", "shortened"):
        found[name] = bool(found[name])
    tags = tags_of(found.pop("tags"))
    return _hit(score, passage, source="user_memory", tags=tags, **found)


def _hit(score: float, passage: Ranked, **found: Any) -> Hit:
    meaning, words = round(passage.meaning, 4), round(passage.words, 4)
    if models.stays_here(found["tags"]):
        models.READ.get([]).append(found["note_id"])
    return Hit(
        score=round(score, 4), matched_by=passage.matched_by, meaning=meaning, words=words, **found
    )


async def conversation(
    database: Database, namespace: str, chunk_ids: Sequence[int], only: Only
) -> dict[int, Candidate]:
    """Passages of conversations, without deleted ones and those that `only` leaves out.

    Material is what a tool brought of its sources, as was stored with its call; a refused path is
    the runtime's own words. Where nothing says which tool it was, its output is material.

    What came of a note tagged `local`, and turns in which one was saved, have that tag, too.

    What a memory tool reported is left out, and so is a call that failed: neither is evidence of
    anything, the notes are found by themselves, and a session that only saw such a report has not
    read anybody's words.
    """
    result = await database.execute(
        _CONVERSATION,
        (
            json.dumps(chunk_ids),
            namespace,
            only.session_id,
            only.asked_in,
            only.this_conversation,
            _REPORTING,
            only.asked,
            models.User.of(namespace).notes,
        ),
    )
    found = {}
    for row in result.rows:
        chunk_id, _, body, created, session_id, *_ = cast("tuple[Any, ...]", row)
        standing = of_turn(body, f"conversation {session_id}")
        hit = partial(_conversation_hit, row)
        found[chunk_id] = Candidate(f"passage {chunk_id}", "", "", body, created, standing, hit)
    return found


def _conversation_hit(row: Row, score: float, passage: Ranked) -> Hit:
    _, context, body, created, session_id, sequence, material, stays = cast(Any, row)
    return _hit(
        score,
        passage,
        note_id="",
        text=f"{context}: {body}",
        source="conversation",
        tags=(models.LOCAL,) if stays else (),
        created_at=created,
        updated_at=created,
        version=0,
        material=bool(material),
        session_id=session_id,
        sequence=sequence,
    )


async def allowed(database: Database, namespace: str, tags: Sequence[str], only: Only) -> Ids:
    """The passages of all notes that `only` allows and that have every one of `tags`."""
    conditions, arguments = only.chosen.conditions()
    result = await database.execute(
        f"{_ALLOWED}{conditions}",
        (
            namespace,
            only.session_id,
            only.superseded,
            only.min_confidence,
            json.dumps(list(only.types)),
            json.dumps(list(tags), ensure_ascii=False),
            *arguments,
        ),
    )
    return np.array(json.loads(cast(str, result.rows[0][0])), np.int64)


async def said(database: Database, namespace: str, chosen: Filter) -> Ids:
    """The passages of conversations from the time that `chosen` names."""
    result = await database.execute(_SAID, (namespace, chosen.since, chosen.before))
    return np.array(json.loads(cast(str, result.rows[0][0])), np.int64)

"""A store after a fault: whether it is whole, and what it holds."""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, Final

from guest.errors import StorageError
from guest.memory.indexing.chunking import passages_of
from guest.memory.storage.base import Database, Statement
from tests.faults.ledger import Found
from tests.support.memory.model import NoteModel

_FTS_CHECK: Final = "integrity-check"
_QUERIES: Final = {
    "integrity": "PRAGMA integrity_check",
    "foreign keys": "PRAGMA foreign_key_check",
    "guards": "SELECT * FROM guards",
    "notes": """
        SELECT note_id, content, version, type, COALESCE(key, ''), scope_session, superseded_by,
               restores
        FROM notes
    """,
    "versions": """
        SELECT note_id, version, content, restores, superseded_by FROM note_versions
        ORDER BY note_id, version
    """,
    "usage": """
        SELECT namespace, notes, bytes FROM usage WHERE notes <> 0 OR bytes <> 0 EXCEPT
        SELECT namespace, SUM(note), SUM(length(CAST(content AS BLOB))) FROM (
            SELECT namespace, 1 AS note, content FROM notes
            UNION ALL SELECT namespace, 0, content FROM note_versions) GROUP BY namespace
    """,
    "passages": "SELECT note_id, body FROM chunks WHERE note_id IS NOT NULL ORDER BY position",
    "note ids": "SELECT chunk_id FROM chunks WHERE note_id IS NOT NULL",
    "note index": "SELECT id FROM chunks_fts_docsize",
    "event ids": "SELECT chunk_id FROM chunks WHERE session_id IS NOT NULL",
    "event index": "SELECT id FROM conversation_fts_docsize",
    "vectors": "SELECT chunk_id, model_id, length(vector) FROM chunks_vec",
    "sessions": "SELECT session_id, turns FROM sessions",
    "events": """
        SELECT session_id, sequence, turn_id, text,
               EXISTS (SELECT 1 FROM chunks WHERE chunks.session_id = event.session_id
                       AND chunks.sequence = event.sequence)
        FROM conversation_events AS event ORDER BY session_id, sequence
    """,
}
Rows = dict[str, list[tuple[Any, ...]]]


async def inspect(database: Database) -> Found:
    """Everything in a store, and all that is not as it should be."""
    damage = []
    for index in ("chunks_fts", "conversation_fts"):
        try:
            await database.execute(
                f"INSERT INTO {index} ({index}, rank) VALUES (?, 1)", (_FTS_CHECK,)
            )
        except StorageError as error:
            damage.append(f"{index}: {error}")
    results = await database.batch([Statement(sql) for sql in _QUERIES.values()])
    rows: Rows = {name: list(result.rows) for name, result in zip(_QUERIES, results, strict=True)}
    if rows["integrity"] != [("ok",)] or rows["foreign keys"]:
        damage.append(f"{rows['integrity']} {rows['foreign keys']}"[:500])
    before: dict[str, tuple[str, ...]] = defaultdict(tuple)
    restored: dict[str, dict[int, int]] = defaultdict(dict)
    ended: dict[str, dict[int, str]] = defaultdict(dict)
    for note_id, number, text, restores, by in rows["versions"]:
        before[note_id] += (text,)
        if by is not None:
            ended[note_id][number] = by
        if restores:
            restored[note_id][number] = restores
    notes = {
        note_id: replace(
            NoteModel(text, version, before[note_id], *state),
            restored=restored[note_id],
            ended=ended[note_id],
        )
        for note_id, text, version, *state in rows["notes"]
    }
    sessions: dict[str, tuple[str, ...]] = {session_id: () for session_id, _ in rows["sessions"]}
    for session_id, _, _, text, _ in rows["events"]:
        sessions[session_id] += (text,)
    texts = Counter(note.text for note in notes.values())
    texts.update(text for said in sessions.values() for text in said)
    return Found(
        notes,
        sessions,
        half_made=(*_half_notes(notes, rows), *_half_events(rows), *_half_indexed(rows)),
        doubles=(
            *(f"twice: {text:.100}" for text, count in texts.items() if count > 1),
            *(f"twice in {i}: {line:.100}" for i, note in notes.items() for line in _twice(note)),
        ),
        damage=tuple(damage),
    )


def _twice(note: NoteModel) -> list[str]:
    lines = Counter(note.text.split("\n")) if note.key else {}
    return [line for line, count in lines.items() if count > 1]


def _half_notes(notes: dict[str, NoteModel], rows: Rows) -> list[str]:
    versions, passages = defaultdict(list), defaultdict(list)
    for note_id, number, *_ in rows["versions"]:
        versions[note_id].append(number)
    for note_id, body in rows["passages"]:
        passages[note_id].append(body)
    wrong = [f"usage says {said}" for said in rows["usage"]]
    for note_id, note in notes.items():
        if note.superseded_by and note.superseded_by not in notes:
            wrong.append(f"{note_id} was replaced by {note.superseded_by}, which is not there")
        if versions[note_id] != list(range(1, note.version)):
            wrong.append(f"{note_id} of version {note.version} has {versions[note_id]} before it")
        if passages[note_id] != passages_of(note.text):
            wrong.append(f"{note_id} has other passages than its text: {passages[note_id]}"[:500])
    return wrong


def _half_events(rows: Rows) -> list[str]:
    sequences, turns, wrong = defaultdict(list), defaultdict(set), []
    for session_id, sequence, turn_id, _, indexed in rows["events"]:
        sequences[session_id].append(sequence)
        turns[session_id].add(turn_id)
        if not indexed:
            wrong.append(f"event {sequence} of {session_id} is not indexed")
    for session_id, count in rows["sessions"]:
        if sequences[session_id] != list(range(1, len(sequences[session_id]) + 1)):
            wrong.append(f"{session_id} has the events {sequences[session_id]}")
        if count != len(turns[session_id]):
            wrong.append(f"{session_id} counts {count} turns of {len(turns[session_id])}")
    return wrong


def _half_indexed(rows: Rows) -> list[str]:
    wrong = []
    for kind in ("note", "event"):
        if set(rows[f"{kind} ids"]) != set(rows[f"{kind} index"]):
            wrong.append(f"the full text of {kind}s is not that of their passages")
    passages = {row[0] for name in ("note ids", "event ids") for row in rows[name]}
    lengths = {(model_id, length) for _, model_id, length in rows["vectors"]}
    if not passages >= {row[0] for row in rows["vectors"]}:
        wrong.append("there are vectors of no passage")
    if len({model_id for model_id, _ in lengths}) != len(lengths):
        wrong.append(f"vectors of one model have different lengths: {lengths}")
    if rows["guards"]:
        wrong.append("a guard was left")
    return wrong

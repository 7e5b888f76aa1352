"""Stored receipts: written in the batch of the change, read by session and turn.

They hold no text, so that forgetting a note leaves no copy here.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

from guest.memory.models import MemoryAction, Origin, Receipt, User, now
from guest.memory.storage.base import Database, Statement, apply

_INSERT: Final = """
INSERT INTO receipts (namespace, session_id, turn_id, action, outcome, note_id, asked_by,
                      created_at, version)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, CASE
        WHEN ?9 IS NOT NULL THEN ?9 WHEN ?4 IN ('deleted', 'superseded') THEN 0
        ELSE (SELECT version FROM notes WHERE namespace = ?1 AND note_id = ?6) END)
"""
"""Without a version, it is the one that the note has."""
_OF_TURNS: Final = """
SELECT turn_id, action, outcome, note_id, version,
       IFNULL((SELECT CASE WHEN EXISTS (
                           SELECT 1 FROM chunks LEFT JOIN chunks_vec USING (chunk_id)
                               WHERE chunks.namespace = notes.namespace
                                   AND chunks.note_id = notes.note_id
                                   AND chunks_vec.chunk_id IS NULL)
                      THEN 'keyword' ELSE 'semantic' END
               FROM notes WHERE notes.namespace = receipts.namespace
                   AND notes.note_id = receipts.note_id), ''),
       asked_by, created_at
    FROM receipts WHERE namespace = ? AND session_id = ?
        AND turn_id IN (SELECT value FROM json_each(?))
    ORDER BY seq
"""


def of_change(
    namespace: str, origin: Origin | None, action: MemoryAction, note_id: str
) -> tuple[Statement, ...]:
    """Statements that store a change's receipt in its own batch, after the note's row; none
    outside a turn."""
    if origin is None or not origin.turn_id:
        return ()
    asked_by = "runtime" if origin.actor == "automatic" else "model"
    place = (namespace, origin.session_id, origin.turn_id)
    change = (action, "done", note_id, asked_by, now(), None)
    return (Statement(_INSERT, (*place, *change)),)


class Receipts:
    def __init__(self, database: Database, user: User) -> None:
        self._database = database
        self._namespace = user.notes

    async def of_turns(self, session_id: str, turn_ids: Sequence[str]) -> list[tuple[str, Receipt]]:
        """Receipts of these turns of a session, oldest first, each with its turn's id."""
        which = (self._namespace, session_id, json.dumps(list(turn_ids)))
        result = await self._database.execute(_OF_TURNS, which)
        return [_read(row) for row in cast("tuple[tuple[Any, ...], ...]", result.rows)]

    async def settle(self, session_id: str, turn_id: str, told: Sequence[Receipt]) -> list[Receipt]:
        """Complete the receipts of a turn that ends, and store those that no change has stored.

        Args:
            told: The turn's receipts, from the tools' answers.

        Returns:
            `told`, with unknown changes marked as made where the store has them.
        """
        stored = [each for _, each in await self.of_turns(session_id, [turn_id])]
        settled: list[Receipt] = []
        missing: list[Receipt] = []
        for receipt in sorted(told, key=lambda each: each.outcome == "unknown"):
            twin = next((each for each in stored if _is_same(each, receipt)), None)
            if twin is None:
                missing.append(receipt)
                settled.append(receipt)
                continue
            stored.remove(twin)
            reason = "" if receipt.outcome == "unknown" else receipt.reason
            searchable = receipt.searchable or twin.searchable
            at = receipt.created_at
            settled.append(replace(twin, reason=reason, searchable=searchable, created_at=at))
        if missing:
            place = (self._namespace, session_id, turn_id)
            rows = (
                (
                    *(each.action, each.outcome, each.note_id, each.asked_by, each.created_at),
                    each.version,
                )
                for each in missing
            )
            await apply(self._database, *(Statement(_INSERT, (*place, *row)) for row in rows))
        return sorted(settled, key=lambda each: each.created_at)


def _read(row: tuple[Any, ...]) -> tuple[str, Receipt]:
    turn_id, action, outcome, note_id, version, searchable, asked_by, at = row
    known = (action, outcome, note_id, version, searchable)
    done = outcome == "done"
    return turn_id, Receipt(*known, durable=done, asked_by=asked_by, created_at=at)


def _is_same(stored: Receipt, told: Receipt) -> bool:
    """Whether both describe one change. If the server's answer was lost, `told` may lack the
    note's id, its version and the outcome."""
    same_note = stored.note_id.removeprefix("note-").startswith(told.note_id.removeprefix("note-"))
    # A save without an id may have written to an existing key.
    keyed = not told.note_id and (told.action, stored.action) == ("saved", "updated")
    return (
        stored.outcome == ("done" if told.outcome == "unknown" else told.outcome)
        and stored.asked_by == told.asked_by
        and (stored.action == told.action or keyed)
        and same_note
        and told.version in (0, stored.version)
    )

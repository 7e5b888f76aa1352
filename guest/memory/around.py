"""What was said around a turn: words by which it is found, though they are not its own.

"Yes, the blue one" answers a question that it does not repeat. The first passage
of an event carries the two turns before it, the last one the two after; what
tools gave is nobody's neighbour.
"""

from typing import Final

from guest.memory.database.base import Statement

_TURNS: Final = 2
_CHARS: Final = 400
"""How much of a neighbour counts: most turns whole, of a long one its beginning."""

_REFRESH: Final = f"""
WITH
    own (session_id, sequence) AS (
        SELECT ?1, COALESCE(?2, MAX(sequence)) FROM conversation_events WHERE session_id = ?1),
    turns AS NOT MATERIALIZED (
        SELECT session_id, sequence, text FROM conversation_events WHERE role <> 'tool'),
    reach (first, last) AS (
        SELECT
            (SELECT MIN(sequence) FROM (
                SELECT sequence FROM turns WHERE session_id = own.session_id
                    AND sequence <= own.sequence ORDER BY sequence DESC LIMIT {_TURNS + 1})),
            (SELECT MAX(sequence) FROM (
                SELECT sequence FROM turns WHERE session_id = own.session_id
                    AND sequence >= own.sequence ORDER BY sequence LIMIT {_TURNS + 1}))
        FROM own),
    fresh (chunk_id, around) AS (
        SELECT chunk_id, COALESCE((
            SELECT group_concat(substr(text, 1, {_CHARS}), char(10)) FROM (
                SELECT text FROM (
                    SELECT sequence, text FROM (
                        SELECT sequence, text FROM turns
                            WHERE turns.session_id = passage.session_id
                                AND turns.sequence < passage.sequence AND passage.position = 0
                            ORDER BY sequence DESC LIMIT {_TURNS})
                    UNION ALL
                    SELECT sequence, text FROM (
                        SELECT sequence, text FROM turns
                            WHERE turns.session_id = passage.session_id
                                AND turns.sequence > passage.sequence AND passage.is_last
                            ORDER BY sequence LIMIT {_TURNS}))
                ORDER BY sequence)), '')
        FROM (
            SELECT chunk_id, session_id, sequence, position,
                   chunk_id = MAX(chunk_id) OVER (PARTITION BY sequence) AS is_last
                FROM chunks, reach
                WHERE session_id = ?1 AND sequence BETWEEN reach.first AND reach.last) AS passage)
UPDATE chunks SET around = fresh.around FROM fresh
    WHERE fresh.chunk_id = chunks.chunk_id AND fresh.around <> chunks.around
"""  # noqa: S608


def refresh(session_id: str, sequence: int | None = None) -> Statement:
    """Bring the surroundings of an event and of its neighbours up to date, in the
    batch that has stored it; without `sequence` it is the session's last."""
    return Statement(_REFRESH, (session_id, sequence))

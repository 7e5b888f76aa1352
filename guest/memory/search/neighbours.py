"""What was saved or said just before and just after, in the same session.

A short note or turn often names its subject only beside it, so what is beside a passage counts a
little for it, too. It is looked up for each search and never stored: nothing of a text is left in
others when it is forgotten, changed or superseded.
"""

import json
from typing import Final, cast

from guest.memory.indexing.vectors import Ids
from guest.memory.search.keyword import Index, numbers
from guest.memory.storage.base import Database

_REACH: Final = 2
"""How many before, and after, are neighbours."""

HAVE_NEIGHBOURS: Final = """
{0}.origin_session <> '' AND {0}.scope_session = '' AND {0}.superseded_by IS NULL
    AND {0}.key IS NULL
"""
"""Notes that have neighbours and are some: current, for all sessions, and no working memory."""

_NOTE_BESIDE: Final = f"""
SELECT seq FROM (
    SELECT seq FROM notes AS beside
        WHERE beside.namespace = ?1 AND beside.origin_session = own.origin_session
            AND beside.seq {{}} own.seq AND {HAVE_NEIGHBOURS.format("beside")}
        ORDER BY seq {{}} LIMIT {_REACH})
"""  # noqa: S608
_TURN_BESIDE: Final = f"""
SELECT event_id FROM (
    SELECT event_id FROM conversation_events AS beside
        WHERE beside.session_id = own.session_id
            AND beside.sequence {{}} own.sequence AND beside.role <> 'tool'
        ORDER BY sequence {{}} LIMIT {_REACH})
"""  # noqa: S608
_NEIGHBOURS: Final = """
SELECT json_group_array(own_id), json_group_array(other_id) FROM (
    SELECT matching.chunk_id AS own_id, (
        SELECT iif(other.{place} < own.{place}, MAX(chunk_id), MIN(chunk_id)) FROM chunks
            WHERE {passages}) AS other_id
        FROM json_each(?2) AS best
        CROSS JOIN chunks AS matching ON matching.chunk_id = best.value
        CROSS JOIN {table} AS own ON {owner}
        CROSS JOIN {table} AS other ON other.{key} IN ({before} UNION ALL {after})
        WHERE matching.namespace = ?1 AND {condition})
    {joined}
"""
"""The passages of a text have ascending ids: the last one of what is before is next to it, and the
first one of what is after. One without passages has no neighbours. A turn that says the same as
the query is the question itself, and has none either."""

_QUERIES: Final[dict[Index, str]] = {
    "chunks_fts": _NEIGHBOURS.format(
        table="notes",
        place="seq",
        key="seq",
        owner="own.namespace = ?1 AND own.note_id = matching.note_id",
        passages="chunks.namespace = ?1 AND chunks.note_id = other.note_id",
        condition=HAVE_NEIGHBOURS.format("own"),
        joined="WHERE other_id IS NOT NULL",
        before=_NOTE_BESIDE.format("<", "DESC"),
        after=_NOTE_BESIDE.format(">", "ASC"),
    ),
    "conversation_fts": _NEIGHBOURS.format(
        table="conversation_events",
        place="sequence",
        key="event_id",
        owner="own.session_id = matching.session_id AND own.sequence = matching.sequence",
        passages="chunks.session_id = other.session_id AND chunks.sequence = other.sequence",
        condition="own.role <> 'tool' AND trim(matching.body) <> trim(?3)",
        joined="CROSS JOIN chunks ON chunk_id = other_id AND trim(body) <> trim(?3)",
        before=_TURN_BESIDE.format("<", "DESC"),
        after=_TURN_BESIDE.format(">", "ASC"),
    ),
}


async def pairs(
    database: Database, index: Index, namespace: str, chunk_ids: Ids, query: str
) -> tuple[Ids, Ids]:
    """Pairs of passages of which the first is one of `chunk_ids` or the second, and that are
    neighbours."""
    ids = json.dumps(chunk_ids.tolist())
    args = (namespace, ids) if index == "chunks_fts" else (namespace, ids, query)
    rows = (await database.execute(_QUERIES[index], args)).rows
    first, second = (numbers(each) for each in cast("tuple[str, str]", rows[0]))
    return first, second

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


def _statement(table: str, place: str, passage_of: str, together: str, counts: str) -> str:
    """The passages of a text have ascending ids: the last one of what is before is next to it, and
    the first one of what is after. One without passages has no neighbours."""

    def beside(nearest: str, sign: str, order: str) -> str:
        passage = passage_of.format("chunks", "beside")
        return f"""
        SELECT * FROM (
            SELECT (SELECT {nearest}(chunk_id) FROM chunks WHERE {passage})
                FROM {table} AS beside
                WHERE {together} AND {counts.format("beside")} AND beside.{place} {sign} own.{place}
                ORDER BY beside.{place} {order} LIMIT {_REACH})
        """  # noqa: S608

    return f"""
    SELECT json_group_array(matching.chunk_id), json_group_array(other.value)
        FROM json_each(?2) AS best
        CROSS JOIN chunks AS matching ON matching.chunk_id = best.value AND matching.namespace = ?1
        CROSS JOIN {table} AS own ON {passage_of.format("matching", "own")}
        CROSS JOIN json_each((SELECT json_group_array(id) FROM (
            SELECT NULL AS id UNION ALL {beside("MAX", "<", "DESC")}
            UNION ALL {beside("MIN", ">", "ASC")}))) AS other
        WHERE {counts.format("own")} AND other.value IS NOT NULL
    """  # noqa: S608


_QUERIES: Final[dict[Index, str]] = {
    "chunks_fts": _statement(
        "notes",
        "seq",
        "{0}.namespace = ?1 AND {1}.namespace = ?1 AND {0}.note_id = {1}.note_id",
        "beside.namespace = ?1 AND beside.origin_session = own.origin_session",
        HAVE_NEIGHBOURS,
    ),
    "conversation_fts": _statement(
        "conversation_events",
        "sequence",
        "{0}.session_id = {1}.session_id AND {0}.sequence = {1}.sequence "
        "AND trim({0}.body) <> trim(?3)",
        "beside.session_id = own.session_id",
        "{0}.role <> 'tool'",
    ),
}
"""A turn that says the same as the query is the question itself, and has no neighbours either."""


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

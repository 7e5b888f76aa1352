"""The neighbours of notes: what was saved just before and just after, in the same session.

A short note often names its subject only in the notes beside it, so the words of a note count a
little for its neighbours, too. They are looked up for each search and never stored: nothing of a
note is left in others when it is forgotten, changed or superseded.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

import numpy as np

from guest.memory.search.keyword import KeywordMatches
from guest.memory.storage.base import Database

_SPREADING: Final = 64
"""How many of the best matches count for their neighbours."""

_REACH: Final = 2
_SHARE: Final = 0.4
_MOST: Final = 0.6
"""A match adds this share of its bm25 to as many notes before it, and after it. All together add at
most so much of the best of them, so that a note without any of the words stays behind it."""

HAVE_NEIGHBOURS: Final = """
{0}.origin_session <> '' AND {0}.scope_session = '' AND {0}.superseded_by IS NULL
    AND {0}.key IS NULL
"""
"""Notes that have neighbours and are some: current, for all sessions, and no working memory."""

_BESIDE: Final = f"""
SELECT seq FROM (
    SELECT seq FROM notes AS beside
        WHERE beside.namespace = ?1 AND beside.origin_session = own.origin_session
            AND beside.seq {{0}} own.seq AND {HAVE_NEIGHBOURS.format("beside")}
        ORDER BY seq {{1}} LIMIT {_REACH})
"""  # noqa: S608
_PASSAGE: Final = """
SELECT {0}(chunk_id) FROM chunks
    WHERE chunks.namespace = ?1 AND chunks.note_id = other.note_id
"""
_NEIGHBOURS: Final = f"""
SELECT json_group_array(matching.chunk_id), json_group_array(own.seq), json_group_array(
        iif(other.seq < own.seq, ({_PASSAGE.format("MAX")}), ({_PASSAGE.format("MIN")})))
    FROM json_each(?2) AS best
    CROSS JOIN chunks AS matching ON matching.chunk_id = best.value
    CROSS JOIN notes AS own ON own.namespace = ?1 AND own.note_id = matching.note_id
    CROSS JOIN notes AS other ON other.seq IN (
        {_BESIDE.format("<", "DESC")} UNION ALL {_BESIDE.format(">", "ASC")})
    WHERE {HAVE_NEIGHBOURS.format("own")}
"""  # noqa: S608
"""The passages of a note have ascending ids. A note without passages gives NULL."""


async def spread(database: Database, namespace: str, matches: KeywordMatches) -> KeywordMatches:
    """`matches` where the best of them count for the notes beside them, too: for the last passage
    of those before, and for the first of those after. Several passages of one note count once."""
    ids, scores = matches.ids, matches.scores
    if len(ids) > _SPREADING:
        best = np.argpartition(-scores, _SPREADING)[:_SPREADING]
        ids, scores = ids[best], scores[best]
    result = await database.execute(_NEIGHBOURS, (namespace, json.dumps(ids.tolist())))
    triples = zip(*map(json.loads, cast("tuple[str, ...]", result.rows[0])), strict=True)
    own = dict(zip(ids.tolist(), scores.tolist(), strict=True))
    beside: dict[int, dict[int, float]] = defaultdict(dict)
    for chunk_id, note, neighbour in triples:
        if neighbour is not None:
            each = beside[neighbour]
            each[note] = max(own[chunk_id], each.get(note, 0.0))
    added = {
        neighbour: min(_SHARE * sum(each.values()), _MOST * max(each.values()))
        for neighbour, each in beside.items()
    }
    return _with(matches, added) if added else matches


def _with(matches: KeywordMatches, added: Mapping[int, float]) -> KeywordMatches:
    neighbours = np.fromiter(added, np.int64, len(added))
    more = np.fromiter(added.values(), np.float32, len(added))
    order = np.argsort(matches.ids)
    places = order[np.searchsorted(matches.ids, neighbours, sorter=order) % len(order)]
    known = matches.ids[places] == neighbours
    scores = matches.scores.copy()
    scores[places[known]] += more[known]
    return replace(
        matches,
        ids=np.concatenate((matches.ids, neighbours[~known])),
        scores=np.concatenate((scores, more[~known])),
    )

"""Full-text search: the passages that contain words of the query, scored by bm25.

Words are joined with OR: a passage need not contain them all. bm25 ranks passages with more and
rarer words first.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, cast

import numpy as np

from guest.memory.indexing.vectors import Ids, Scores
from guest.memory.storage.base import Database
from guest.memory.storage.errors import noticed

_TERMS_MAX: Final = 64
MATCHES_MAX: Final = 4000
"""How many matches are scored; limits the time of a search for common words."""

STOP_WORDS: Final = frozenset(
    """
    a about above after again all am an and any are as at be because been before being below
    between both but by can could did do does doing don down during each few for from further
    had has have having he her here hers herself him himself his how i if in into is it its
    itself just ll me more most my myself no nor not now of off on once only or other our ours
    ourselves out over own re s same shall she should so some such t than that the their theirs
    them themselves then there these they this those through to too under until up us ve very
    was we were what when where which while who whom why will with would you your yours
    yourself yourselves
    """.split()  # noqa: SIM905 - readable as prose
)

_ORDINAL: Final = re.compile(r"\b([0-9]{1,2})(?:st|nd|rd|th)\b")

Index = Literal["chunks_fts", "conversation_fts"]

_SEARCH: Final = """
SELECT COUNT(*), json_group_array(id), json_group_array(score) FROM (
    SELECT found.rowid AS id, CAST(-found.rank * {unit} AS INTEGER) AS score
    FROM {index} AS found
    CROSS JOIN chunks INDEXED BY chunks_by_namespace
        ON chunks.chunk_id = found.rowid AND chunks.namespace = ?2
    WHERE found.{index} MATCH {expression}{condition}
    ORDER BY found.rowid DESC LIMIT {limit})
"""
"""Namespaces are compared in an index: the planner would read the whole row of every match."""

_SCORE_UNIT: Final = 1e12
"""bm25 is returned as whole numbers, which are faster to write and read. A word that most
passages contain scores as little as a millionth, so the unit is smaller."""

_AMONG: Final = " AND +found.rowid IN (SELECT value FROM json_each(?3))"
_ANY_OF_THEM: Final = "(SELECT group_concat(value, ' OR ') FROM json_each(?1))"
_RAREST: Final = """(
    WITH
        terms (term, matches) AS MATERIALIZED (
            SELECT value, (SELECT COUNT(*) FROM
                (SELECT 1 FROM {index} WHERE {index} MATCH value LIMIT {limit} + 1))
            FROM json_each(?1)),
        ranked (term, matches_so_far, place) AS (
            SELECT term, SUM(matches) OVER (ORDER BY matches, term),
                   ROW_NUMBER() OVER (ORDER BY matches, term)
            FROM terms)
    SELECT group_concat(term, ' OR ') FROM ranked
        WHERE place = 1 OR matches_so_far <= {limit})
"""
"""Drops the most common words once rarer ones give enough matches. If a single word matches too
many passages, the newest are used."""


@dataclass(frozen=True)
class _Statements:
    """Three queries: for words that match up to `MATCHES_MAX` passages; for those that match
    more; and for matches among given passages, where common words count as well."""

    any_of_them: str
    rarest: str
    among: str


@cache
def statements(index: Index, limit: int) -> _Statements:
    def search(expression: str, condition: str = "") -> str:
        expression = expression.format(index=index, limit=limit)
        return _SEARCH.format(
            index=index, limit=limit, expression=expression, condition=condition, unit=_SCORE_UNIT
        )

    return _Statements(search(_ANY_OF_THEM), search(_RAREST), search(_ANY_OF_THEM, _AMONG))


@dataclass(frozen=True)
class KeywordMatches:
    """Passages that contain words of the query, and their bm25; higher is better."""

    ids: Ids
    scores: Scores


NO_MATCHES: Final = KeywordMatches(np.zeros(0, np.int64), np.zeros(0, np.float32))


def query_terms(query: str) -> list[str]:
    """The words of `query` to look for, quoted for FTS5.

    Stop words are dropped unless nothing else remains; "9th" is also looked up as "9". Any text is
    a valid query, since quoted words cannot be operators.
    """
    query = unicodedata.normalize("NFC", query)
    query = "".join(map(_word_character, query)).lower()
    words = dict.fromkeys(_ORDINAL.sub(r"\g<0> \g<1>", query).split())
    telling = [word for word in words if word not in STOP_WORDS] or list(words)
    return [f'"{word}"' for word in telling[:_TERMS_MAX]]


def _word_character(character: str) -> str:
    """Keep letters, digits and their marks; everything else separates words."""
    keep = character.isalnum() or unicodedata.category(character).startswith("M")
    return character if keep else " "


async def match(
    database: Database, index: Index, namespace: str, terms: Sequence[str], only: Ids | None = None
) -> KeywordMatches:
    """The passages of a namespace that match any of `terms`; limited to those in `only`, if
    given."""
    if not terms:
        return NO_MATCHES
    queries, args = statements(index, MATCHES_MAX), (json.dumps(terms), namespace)
    if only is not None:
        result = await database.execute(queries.among, (*args, json.dumps(only.tolist())))
    else:
        result = await database.execute(queries.any_of_them, args)
        if result.rows[0][0] == MATCHES_MAX:
            result = await database.execute(queries.rarest, args)
    _, ids, scores = cast("tuple[int, str, str]", result.rows[0])
    with noticed("the full-text index"):
        return KeywordMatches(_numbers(ids), (_numbers(scores) / _SCORE_UNIT).astype(np.float32))


def _numbers(array: str) -> Ids:
    """Parse a JSON array of whole numbers, several times faster than through a list."""
    return np.fromstring(array[1:-1], np.int64, sep=",")

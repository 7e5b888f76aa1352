"""Full-text search: the passages that contain words of the query, scored by bm25.

Words are joined with OR: a passage need not contain them all. bm25 ranks passages with more and
rarer words first.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal, cast

import numpy as np

from guest.memory.indexing.vectors import Ids, Scores
from guest.memory.indexing.words import fold, parts_of, search_terms
from guest.memory.storage.base import Database, Value

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

_NAMED: Final = re.compile(r"[0-9]|\w[@_.]\w|[a-z][A-Z]")
_AROUND: Final = "\"'`.,;:!?()[]{}<>«»“”„‘’…"
_REFERENCE_MIN_CHARS: Final = 4
_REFERENCES_MAX: Final = 4
_HOLDERS_MAX: Final = 3
"""A reference that more passages hold does not tell which of them is meant."""

Index = Literal["chunks_fts", "conversation_fts"]

_FOUND: Final = """
SELECT found.rowid AS id, CAST(-found.rank * {unit} AS INTEGER) AS score
    FROM {index} AS found
    CROSS JOIN chunks INDEXED BY chunks_by_namespace
        ON chunks.chunk_id = found.rowid AND chunks.namespace = ?2
    WHERE found.{index} MATCH {expression}{condition}
    ORDER BY found.rowid DESC LIMIT {limit}
"""
"""Namespaces are compared in an index: the planner would read the whole row of every match."""

_SCORE_UNIT: Final = 1e12
"""bm25 is returned as whole numbers, which are faster to write and read. A word that most
passages contain scores as little as a millionth, so the unit is smaller."""

_SEARCH: Final = """
SELECT json_group_array(id), json_group_array(score) FROM ({found})
"""
_AMONG: Final = " AND +found.rowid IN (SELECT value FROM json_each(?3))"
_OLDER: Final = " AND found.rowid < ?3"
_ANY_OF_THEM: Final = "(SELECT group_concat(value, ' OR ') FROM json_each(?1))"

_OLDER_ONES: Final = """
WITH
    counted (term, matches) AS MATERIALIZED (
        SELECT value, (SELECT COUNT(*) FROM
            (SELECT 1 FROM {index} WHERE {index} MATCH value LIMIT {limit} + 1))
        FROM json_each(?1)),
    words (term, rare) AS MATERIALIZED (
        SELECT term, SUM(matches) OVER (ORDER BY matches, term) <= {limit}
        FROM counted WHERE matches > 0),
    joined (rare, common, commons) AS (
        SELECT '(' || group_concat(term, ' OR ') FILTER (WHERE rare) || ')',
               '(' || group_concat(term, ' OR ') FILTER (WHERE NOT rare) || ')',
               group_concat(term, ' AND ') FILTER (WHERE NOT rare)
        FROM words),
    expressions (only_rare, rare_and_common, commons) AS MATERIALIZED (
        SELECT COALESCE(rare || COALESCE(' NOT ' || common, ''), '""'),
               COALESCE(rare || ' AND ' || common, '""'),
               COALESCE(commons, '""')
        FROM joined)
SELECT json_group_array(id), json_group_array(score) FROM (
    SELECT * FROM ({only_rare}) UNION ALL
    SELECT * FROM ({rare_and_common}) UNION ALL
    SELECT * FROM ({commons}))
"""
"""Passages that may be among the best although there are many newer ones: those with a rare word,
and those with all the common words. Words are rare, from the rarest on, as long as all their
matches can be scored.

A passage is scored by the words of the expression that finds it, so those with a rare word are
looked for without and with a common one. A phrase without words finds nothing."""


@dataclass(frozen=True)
class _Statements:
    """Three queries: for the newest matches, up to `MATCHES_MAX`; for the best of those before
    them; and for matches among given passages."""

    newest: str
    older: str
    among: str


@cache
def statements(index: Index, limit: int) -> _Statements:
    def found(expression: str, condition: str = "") -> str:
        return _FOUND.format(
            index=index, limit=limit, expression=expression, condition=condition, unit=_SCORE_UNIT
        )

    def search(condition: str = "") -> str:
        return _SEARCH.format(found=found(_ANY_OF_THEM, condition))

    return _Statements(
        newest=search(),
        older=_OLDER_ONES.format(
            index=index,
            limit=limit,
            only_rare=found("(SELECT only_rare FROM expressions)", _OLDER),
            rare_and_common=found("(SELECT rare_and_common FROM expressions)", _OLDER),
            commons=found("(SELECT commons FROM expressions)", _OLDER),
        ),
        among=search(_AMONG),
    )


@dataclass(frozen=True)
class KeywordMatches:
    """Passages that contain words of the query, and their bm25; higher is better."""

    ids: Ids
    scores: Scores


NO_MATCHES: Final = KeywordMatches(np.zeros(0, np.int64), np.zeros(0, np.float32))


def query_terms(query: str) -> list[str]:
    """The words of `query` to look for, as quoted terms for FTS5.

    Stop words are dropped unless nothing else remains; "9th" is also looked up as "9". Any text is
    a valid query, since quoted words cannot be operators.
    """
    words = dict.fromkeys(_ORDINAL.sub(r"\g<0> \g<1>", fold(query)).split() + parts_of(query))
    telling = [word for word in words if word not in STOP_WORDS] or words
    terms = dict.fromkeys(term for word in telling for term in search_terms(word))
    return list(terms)[:_TERMS_MAX]


def references(query: str) -> list[list[str]]:
    """What `query` names exactly: ids, numbers, addresses, names in code. Each as phrases for FTS5,
    in all forms of it.

    They have a digit, a sign between two characters, or a capital letter after a small one.
    """
    found = []
    for word in (each.strip(_AROUND) for each in query.split()):
        if _NAMED.search(word) and not _ORDINAL.fullmatch(word):
            forms = (" ".join(fold(word).split()), *filter(str.isdigit, parts_of(word)))
            found.append([f'"{form}"' for form in forms if len(form) >= _REFERENCE_MIN_CHARS])
    return [phrases for phrases in found if phrases][:_REFERENCES_MAX]


async def holders(
    database: Database, index: Index, namespace: str, query: str, only: Ids | None = None
) -> set[int]:
    """The passages that are the only ones to hold a reference of `query`, or nearly so."""
    found: set[int] = set()
    for phrases in references(query):
        ids = (await match(database, index, namespace, phrases, only)).ids.tolist()
        found.update(ids if len(ids) <= _HOLDERS_MAX else ())
    return found


async def match(
    database: Database, index: Index, namespace: str, terms: Sequence[str], only: Ids | None = None
) -> KeywordMatches:
    """The passages of a namespace that match any of `terms`; limited to those in `only`, if
    given.

    If there are more than `MATCHES_MAX`, the best of those that are new, have rare words or have
    all the words.
    """
    if not terms:
        return NO_MATCHES
    queries, args = statements(index, MATCHES_MAX), (json.dumps(terms), namespace)
    if only is not None:
        return await _matches(database, queries.among, (*args, json.dumps(only.tolist())))
    newest = await _matches(database, queries.newest, args)
    if len(newest.ids) < MATCHES_MAX:
        return newest
    before = (*args, int(newest.ids.min()))
    return _best(newest, await _matches(database, queries.older, before))


async def _matches(database: Database, sql: str, args: Sequence[Value]) -> KeywordMatches:
    result = await database.execute(sql, args)
    ids, scores = cast("tuple[str, str]", result.rows[0])
    return KeywordMatches(_numbers(ids), (_numbers(scores) / _SCORE_UNIT).astype(np.float32))


def _best(newest: KeywordMatches, older: KeywordMatches) -> KeywordMatches:
    """The best of both. An older passage that was found twice has all its words counted in the
    higher score."""
    ids = np.concatenate((newest.ids, older.ids))
    scores = np.concatenate((newest.scores, older.scores))
    order = np.lexsort((-scores, -ids))
    order = order[np.diff(ids[order], prepend=0) != 0]
    best = order[np.argsort(-scores[order], kind="stable")[:MATCHES_MAX]]
    return KeywordMatches(ids[best], scores[best])


def _numbers(array: str) -> Ids:
    """Parse a JSON array of whole numbers, several times faster than through a list."""
    return np.fromstring(array[1:-1], np.int64, sep=",")

"""Full-text search: which passages hold which words of the query.

A passage need not hold them all. What counts is that it holds a word, not how often: passages are
short.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

import numpy as np

from guest.memory.indexing.vectors import Ids, Scores
from guest.memory.indexing.words import fold, parts_of, search_terms
from guest.memory.storage.base import Database

_TERMS_MAX: Final = 64
MATCHES_MAX: Final = 4000
"""How many matches of a word are read, and how many of all are ranked; limits the time of a search
for common words."""

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
SELECT json_group_array(id) FROM (
    SELECT found.rowid AS id FROM {index} AS found
        CROSS JOIN chunks INDEXED BY chunks_by_namespace
            ON chunks.chunk_id = found.rowid AND chunks.namespace = ?1
        WHERE found.{index} MATCH {columns} || word.value{condition}
        ORDER BY found.rowid DESC LIMIT {limit})
"""
"""Namespaces are compared in an index: the planner would read the whole row of every match."""

_OF_EACH: Final = "SELECT ({found}) FROM json_each(?2) AS word"
_AMONG: Final = " AND +found.rowid IN (SELECT value FROM json_each(?3))"
_COLUMNS: Final = {"chunks_fts": "''", "conversation_fts": "'{context body} : '"}


def statement(index: Index, limit: int, condition: str = "") -> str:
    """The newest passages of a namespace for each of several expressions, up to `limit`."""
    found = _FOUND.format(index=index, columns=_COLUMNS[index], condition=condition, limit=limit)
    return _OF_EACH.format(found=found)


@dataclass(frozen=True)
class KeywordMatches:
    """Passages that hold words of the query, by ascending id.

    `held` has a row for each word, with 1 for a passage that holds it, else 0. `rarity` is what
    each word counts: the more, the fewer of these passages hold it.
    """

    ids: Ids
    held: Scores
    rarity: Scores

    def held_by(self, ids: Ids) -> Scores:
        """The words that any passages hold, a passage a column."""
        held = np.zeros((len(self.held), len(ids)), np.float32)
        matching = np.isin(ids, self.ids, assume_unique=True)
        held[:, matching] = self.held[:, np.searchsorted(self.ids, ids[matching])]
        return held


NO_MATCHES: Final = KeywordMatches(
    np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
)


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

    async def found(expressions: Sequence[str], among: Ids | None = None) -> list[Ids]:
        sql = statement(index, MATCHES_MAX, "" if among is None else _AMONG)
        args = [namespace, json.dumps(expressions)]
        args += [] if among is None else [json.dumps(among.tolist())]
        rows = (await database.execute(sql, args)).rows
        return [numbers(cast(str, row[0])) for row in rows]

    of_each = await found(terms, only)
    counts = np.array([len(ids) for ids in of_each], np.float32)
    common = [i for i, ids in enumerate(of_each) if len(ids) >= MATCHES_MAX]
    ids = np.unique(np.concatenate(of_each))
    if common and only is None:
        with_all = " AND ".join(terms[i] for i in common)
        ids = np.union1d(ids, (await found([f"({with_all})"]))[0])
        for i in common:  # older passages with it are not in its list
            newest, oldest = of_each[i].max(), of_each[i].min()
            counts[i] *= newest / (newest - oldest + 1)
            older = await found([terms[i]], ids[ids < oldest])
            of_each[i] = np.concatenate((of_each[i], older[0]))
    held = np.zeros((len(terms), len(ids)), np.float32)
    for row, each in zip(held, of_each, strict=True):
        row[np.searchsorted(ids, each)] = 1
    rarity = np.log1p(max(len(ids), counts.max()) / (counts + 0.5)) * (counts > 0)
    rarity = rarity.astype(np.float32)
    if len(ids) > MATCHES_MAX:
        best = np.sort(np.lexsort((-ids, -(rarity @ held)))[:MATCHES_MAX])
        ids, held = ids[best], held[:, best]
    return KeywordMatches(ids, held, rarity)


def numbers(array: str) -> Ids:
    """Parse a JSON array of whole numbers, several times faster than through a list."""
    return np.fromstring(array[1:-1], np.int64, sep=",")

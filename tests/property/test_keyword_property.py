"""Which passages a query finds by its words, where more match than are scored."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.memory.search import keyword
from guest.memory.search.keyword import KeywordMatches
from tests.support.examples import examples
from tests.support.memory.store import ORIGIN, opened
from tests.support.scratch import SCRATCH

LIMIT = 6
COMMON, LESS, RARE, UNKNOWN = ("tea", "milk"), ("cup", "pot"), ("ulm", "zoo"), ("xylem", "quartz")
PASSAGE = st.builds(
    lambda *chosen: tuple(dict.fromkeys(word for words in chosen for word in words)),
    st.lists(st.sampled_from(COMMON), min_size=1, max_size=2),
    st.lists(st.sampled_from(LESS), max_size=2),
    st.one_of(st.just(()), st.just(()), st.just(()), st.tuples(st.sampled_from(RARE))),
)
QUERY = st.lists(
    st.sampled_from(COMMON + LESS + RARE + UNKNOWN), min_size=1, max_size=6, unique=True
)


@examples(40)
@given(st.lists(PASSAGE, min_size=1, max_size=30), st.lists(QUERY, min_size=1, max_size=6))
def test_a_passage_with_all_the_words_is_found_among_any_number_of_matches(
    passages: list[tuple[str, ...]], queries: list[list[str]]
) -> None:
    asyncio.run(_compare(passages, queries))


async def _compare(passages: list[tuple[str, ...]], queries: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        async with opened(Path(scratch) / "memory.db") as memory:
            for number, words in enumerate(passages):
                await memory.save(f"{' '.join(words)} n{number}", (), ORIGIN)

            async def matches(query: list[str], limit: int) -> KeywordMatches:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(keyword, "MATCHES_MAX", limit)
                    terms = keyword.query_terms(" ".join(query))
                    return await keyword.match(
                        memory.store.database, "chunks_fts", "memory:alice", terms
                    )

            for query in queries:
                _check(passages, query, await matches(query, LIMIT), await matches(query, 1000))


def _check(
    passages: list[tuple[str, ...]], query: list[str], few: KeywordMatches, every: KeywordMatches
) -> None:
    known = {word for word in query if any(word in words for words in passages)}
    held = {number + 1: known.intersection(words) for number, words in enumerate(passages)}
    assert set(every.ids.tolist()) == {number for number, words in held.items() if words}
    assert len(few.ids) == min(LIMIT, len(every.ids))
    for matches in (few, every):
        assert matches.ids.tolist() == sorted(set(matches.ids.tolist()))
        for number, holds in zip(matches.ids.tolist(), matches.held.T.tolist(), strict=True):
            assert {word for word, there in zip(query, holds, strict=True) if there} == held[number]
    complete = {number for number, words in held.items() if known and words == known}
    missing = complete - set(few.ids.tolist())
    assert len(complete) > LIMIT or not missing

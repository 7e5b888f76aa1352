"""Any text is found by each of its own words, in whatever writing system and encoding."""

import asyncio
import tempfile
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from guest.memory.indexing.words import fold, index_text
from guest.memory.memory import Memory
from guest.memory.search import keyword
from tests.support.examples import examples
from tests.support.memory.store import ORIGIN, opened
from tests.support.scratch import SCRATCH

LETTERS = st.characters(categories=["L", "N"]).filter(lambda letter: bool(fold(letter).strip()))
"""But for the few that are nothing but a point or a stroke, which do not matter in a word."""

MARKS = st.characters(categories=["Mn", "Mc"])
WORDS = st.builds(
    "".join, st.lists(st.one_of(LETTERS, LETTERS, st.builds("".join, st.tuples(LETTERS, MARKS))))
).filter(bool)
Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[Form, ...] = ("NFC", "NFD", "NFKC", "NFKD")
CASES: tuple[Callable[[str], str], ...] = (str, str.upper, str.lower, str.title)


def is_stable(word: str, case: Callable[[str], str]) -> bool:
    """Whether a word in another case is the same word."""
    return _caseless(case(word)) == _caseless(word)


def _caseless(text: str) -> str:
    folded = unicodedata.normalize("NFD", text).casefold()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", folded).casefold())


@examples(30)
@given(st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=5), st.data())
def test_a_text_is_found_by_each_of_its_words(texts: list[list[str]], data: st.DataObject) -> None:
    stored = [
        unicodedata.normalize(data.draw(st.sampled_from(FORMS)), " ".join(words)) for words in texts
    ]

    async def run() -> None:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            async with opened(Path(scratch) / "memory.db") as memory:
                for number, text in enumerate(stored):
                    note = (await memory.save(f"{text} q{number}", (), ORIGIN)).note
                    assert note.text == f"{text} q{number}"
                for number, words in enumerate(texts):
                    for word in words:
                        case = data.draw(st.sampled_from(CASES))
                        form = data.draw(st.sampled_from(FORMS))
                        asked = unicodedata.normalize(
                            form, case(word) if is_stable(word, case) else word
                        )
                        terms = keyword.query_terms(f"{asked} q{number}")
                        found = await keyword.match(
                            memory.store.database, "chunks_fts", "memory:alice", terms
                        )
                        assert number + 1 in found.ids.tolist()
                        assert await _known(memory, terms) == terms, asked

    asyncio.run(run())


async def _known(memory: Memory, terms: list[str]) -> list[str]:
    """Those of `terms` that occur in any note."""
    found = [
        await keyword.match(memory.store.database, "chunks_fts", "memory:alice", [term])
        for term in terms
    ]
    return [term for term, matches in zip(terms, found, strict=True) if len(matches.ids)]


@examples(300)
@given(st.text())
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    for form in FORMS:
        assert fold(unicodedata.normalize(form, fold(text))) == fold(text)


def test_what_is_indexed_as_it_is_has_the_words_that_are_looked_for() -> None:
    """The tokenizer folds those characters as a query does."""
    plain = [c for c in map(chr, range(0x3000)) if index_text(f"a{c}") == "" and c > "\0"]
    assert len(plain) > 200

    async def run() -> None:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            async with opened(Path(scratch) / "memory.db") as memory:
                await memory.save(
                    " . ".join(f"ab{c}{i}yz" for i, c in enumerate(plain)), (), ORIGIN
                )
                for i, character in enumerate(plain):
                    terms = keyword.query_terms(f"ab{character}{i}yz")
                    assert await _known(memory, terms) == terms, character

    asyncio.run(run())

"""What a store finds by keyword, asked without a copy: the same in a file and on a server."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from guest.memory.models import RemoteConfig
from guest.memory.search import keyword
from guest.memory.search.keyword import KeywordMatches
from tests.support.memory.store import ORIGIN, opened
from tests.support.servers import sqld

LIMIT = 8
TEXTS = (
    *(f"something else {i}" for i in range(80)),
    "tea with cardamom",
    "tea and milk in the garden",
    *(f"tea number {i}" for i in range(30)),
    *(f"milk number {i}" for i in range(30)),
    "我的猫很可爱",
    "우리 고양이를",
)


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.sqld)])
async def filled(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memory]:
    """A memory with `TEXTS` as notes; the passage of each has its place in them, from 1, as id."""
    async with AsyncExitStack() as stack:
        settings: dict[str, Any] = {}
        if request.param == "server":
            server = stack.enter_context(sqld.running())
            settings["remote"] = RemoteConfig(server.url(), one_user=True)
        memory = await stack.enter_async_context(opened(tmp_path / "memory.db", **settings))
        for text in TEXTS:
            await memory.save(text, (), ORIGIN)
        yield memory


async def matches(memory: Memory, query: str) -> KeywordMatches:
    terms = keyword.query_terms(query)
    return await keyword.match(memory.store.database, "chunks_fts", "memory:alice", terms)


def found_in(matches: KeywordMatches) -> set[str]:
    return {TEXTS[number - 1] for number in matches.ids.tolist()}


async def test_which_words_a_passage_holds_does_not_depend_on_how_many_are_given(
    filled: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ("tea cardamom", "tea milk", "tea milk xylophone", "milk garden tea", "number")
    for query in queries:
        every = await matches(filled, query)
        held = dict(zip(every.ids.tolist(), every.held.T.tolist(), strict=True))
        with monkeypatch.context() as patch:
            patch.setattr(keyword, "MATCHES_MAX", LIMIT)
            few = await matches(filled, query)
        assert len(few.ids) == LIMIT < len(every.ids)
        assert few.held.T.tolist() == [held[i] for i in few.ids.tolist()]


async def test_what_holds_all_the_words_is_among_the_few(
    filled: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "MATCHES_MAX", LIMIT)
    assert "tea and milk in the garden" in found_in(await matches(filled, "tea milk"))
    assert "tea with cardamom" in found_in(await matches(filled, "milk tea cardamom"))


@pytest.mark.parametrize(("query", "text"), [("可爱", TEXTS[-2]), ("猫", TEXTS[-2])])
async def test_a_word_within_a_sentence(filled: Memory, query: str, text: str) -> None:
    assert found_in(await matches(filled, query)) == {text}
    assert found_in(await matches(filled, "고양이")) == {TEXTS[-1]}

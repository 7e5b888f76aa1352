"""A search with a reranker: its order, its scores, and what is said where it cannot be used."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from wire.errors import Code

from guest.embedding.backends import Embedded, Scores
from guest.errors import EmbedderError
from guest.memory.models import MemoryTimeouts
from guest.memory.search.engine import READ_AGAIN
from tests.support.memory.store import ALONE, FakeEmbedder, opened


class Rereading(FakeEmbedder):
    """Also has a reranker, which likes texts with the word in `wanted`."""

    def __init__(self, state: str = "ready") -> None:
        super().__init__()
        self.reranker = state
        self.wanted = "noon"
        self.failure: Exception | None = None
        self.answer: Scores | None = None
        self.read: list[tuple[str, Sequence[str]]] = []

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        made = await super().embed(texts, timeout=timeout)
        return Embedded(made.model_id, made.vectors, self.reranker)

    async def rerank(self, query: str, texts: Sequence[str], *, timeout: float) -> Scores:
        self.read.append((query, texts))
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer
        return np.array([0.9 if self.wanted in text else 0.2 for text in texts], np.float32)


@pytest.mark.parametrize("top_k", [1, 3])
async def test_the_order_and_the_scores_are_its_own(path: Path, top_k: int) -> None:
    embedder = Rereading()
    async with opened(path, embedder) as memory:
        for text in ("the ferry leaves", "the ferry leaves at noon", "the ferry is white"):
            await memory.save(text, [], origin=ALONE)
        found = await memory.search("ferry leaves", top_k=top_k)
    assert found.results[0].text == "the ferry leaves at noon"
    assert [hit.score for hit in found.results] == [0.9, 0.2, 0.2][:top_k]
    assert found.all_warnings == ()
    [(query, texts)] = embedder.read
    assert (query, len(texts)) == ("ferry leaves", 3)


async def test_it_reads_more_than_is_wanted_and_never_all(path: Path) -> None:
    embedder = Rereading()
    async with opened(path, embedder) as memory:
        for number in range(READ_AGAIN + 20):
            await memory.save(f"ferry number {number}", [], origin=ALONE)
        await memory.search("ferry", top_k=2)
        await memory.search("ferry", top_k=READ_AGAIN + 10)
    assert [len(texts) for _, texts in embedder.read] == [READ_AGAIN, READ_AGAIN + 11]


async def test_without_one_nothing_is_read_again(path: Path) -> None:
    embedder = Rereading("")
    async with opened(path, embedder) as memory:
        await memory.save("the ferry leaves", [], origin=ALONE)
        await memory.save("the ferry leaves at noon", [], origin=ALONE)
        assert (await memory.search("ferry leaves")).all_warnings == ()
    assert embedder.read == []


@pytest.mark.parametrize("state", ["loading", "reranker not found: x; fix: hf download x"])
async def test_one_that_is_not_there_is_told_of(path: Path, state: str) -> None:
    async with opened(path, Rereading(state)) as memory:
        await memory.save("the ferry leaves", [], origin=ALONE)
        found = await memory.search("ferry")
    assert [hit.text for hit in found.results] == ["the ferry leaves"]
    [warning] = found.all_warnings
    assert warning.startswith(f"the reranker is not used ({state})")
    assert bool(found.warnings) == (state != "loading")


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (EmbedderError(Code.INTERNAL, "it failed"), "it failed"),
        (ValueError("a bug"), "the embedder failed"),
        (None, "the reranker gave a malformed answer"),
    ],
)
async def test_a_failure_leaves_the_order_of_the_search(
    path: Path, failure: Exception | None, why: str
) -> None:
    embedder = Rereading()
    embedder.failure = failure
    embedder.answer = None if failure else np.array([0.1, 7.0], np.float32)
    async with opened(path, embedder) as memory:
        for text in ("the ferry leaves at noon", "the ferry leaves"):
            await memory.save(text, [], origin=ALONE)
        found = await memory.search("the ferry leaves")
    assert [hit.text for hit in found.results] == ["the ferry leaves", "the ferry leaves at noon"]
    [warning] = found.all_warnings
    assert warning.startswith(f"the reranker is not used ({why})")


async def test_one_that_hangs_costs_no_more_than_its_time(path: Path) -> None:
    class Hanging(Rereading):
        async def rerank(self, query: str, texts: Sequence[str], *, timeout: float) -> Scores:
            await asyncio.sleep(3600)
            raise AssertionError

    async with opened(path, Hanging(), patience=MemoryTimeouts(rerank_s=0.1)) as memory:
        for text in ("the ferry leaves at noon", "the ferry leaves"):
            await memory.save(text, [], origin=ALONE)
        async with asyncio.timeout(60):
            found = await memory.search("ferry")
    assert len(found.results) == 2
    assert "did not answer in time" in found.all_warnings[0]


async def test_it_has_what_the_search_has_left_of_its_time(path: Path) -> None:
    """A turn does not wait for longer, and would then show nothing of what was found."""
    given: list[float] = []

    class Timed(Rereading):
        async def rerank(self, query: str, texts: Sequence[str], *, timeout: float) -> Scores:
            given.append(timeout)
            return await super().rerank(query, texts, timeout=timeout)

    embedder = Timed()
    async with opened(path, embedder, patience=MemoryTimeouts(rerank_s=30.0)) as memory:
        for text in ("the ferry leaves at noon", "the ferry leaves"):
            await memory.save(text, [], origin=ALONE)
        embedder.delay_s = 0.2
        await memory.search("ferry")
    assert given[0] <= 29.8
    assert MemoryTimeouts().rerank_s + 0.2 < MemoryTimeouts().turn_s

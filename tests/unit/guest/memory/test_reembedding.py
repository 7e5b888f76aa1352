"""Vectors of different models, or of one model made anew, never meet in a ranking."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from guest.embedding.backends import Embedded
from guest.errors import EmbedderError
from guest.memory.indexing import vector_store
from guest.memory.memory import Memory
from guest.memory.models import User
from tests.support.memory.store import ORIGIN, FakeEmbedder, away, embedded, opened, rows, until

ALICE, BOB = "alice", "bob"
WORDS = ("tea", "rain", "trains", "violins", "harbors", "meadows", "zebras", "quartz")


class Gated(FakeEmbedder):
    """Answers queries at once, and one batch of passages for each `allow`."""

    def __init__(self, model_id: str, dimensions: int) -> None:
        super().__init__(model_id, dimensions)
        self.gate: asyncio.Semaphore | None = None

    async def embed(self, texts: object, *, timeout: float) -> Embedded:
        if self.gate is not None and any("note" in text for text in texts):  # type: ignore[attr-defined]
            await self.gate.acquire()
        return await super().embed(texts, timeout=timeout)  # type: ignore[arg-type]


async def fill(memory: Memory, number: int) -> None:
    for i in range(number):
        await memory.save(f"note {i} about {WORDS[i % len(WORDS)]}", [], ORIGIN)
    await embedded(memory, number)


async def of_models(memory: Memory) -> dict[str, int]:
    return dict((await memory.statistics()).vectors)


async def compared(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> tuple[str, set[str]]:
    """The model that a search asked with, and those whose vectors it compared."""
    seen: list[tuple[str, list[int]]] = []
    vectors = memory.store.vectors
    snapshot = vectors.snapshot

    async def watched(namespace: str, model_id: str, dimensions: int) -> object:
        shown, missing = await snapshot(namespace, model_id, dimensions)
        live = np.linalg.norm(shown.matrix, axis=1) > 0
        ids = [int(each) for each in shown.ids[live]]
        found = await memory.store.database.execute(
            "SELECT chunk_id, model_id, length(vector) FROM chunks_vec"
        )
        stored = {row[0]: (row[1], row[2]) for row in found.rows}
        assert {stored[each] for each in ids} <= {(model_id, dimensions * 4)}
        seen.append((model_id, ids))
        return shown, missing

    with monkeypatch.context() as patched:
        patched.setattr(vectors, "snapshot", watched)
        await memory.search("violins", include_conversation=True)
    (asked,) = {model_id for model_id, _ in seen}
    return asked, {asked} if any(ids for _, ids in seen) else set()


@pytest.mark.parametrize("dimensions", [96, 64])
async def test_a_model_that_changes_in_mid_run_meets_no_vector_of_the_other(
    path: Path, monkeypatch: pytest.MonkeyPatch, dimensions: int
) -> None:
    embedder = Gated("one", 64)
    async with opened(path, embedder) as memory:
        await fill(memory, 200)
        assert await compared(memory, monkeypatch) == ("one", {"one"})
        embedder.model_id, embedder.dimensions = "two", dimensions
        embedder.gate = asyncio.Semaphore(0)
        assert await compared(memory, monkeypatch) == ("two", set())
        found = await memory.search("violins")
        assert found.results, "search stays up by keyword"
        assert "200 passages have no vector yet" in found.passing
        embedder.gate.release()
        await until(lambda: len(embedder.texts) > 260)
        while len(await of_models(memory)) < 2:
            await asyncio.sleep(0.005)
        assert await compared(memory, monkeypatch) == ("two", {"two"})
        statistics = await memory.statistics()
        assert 0 < statistics.passages_embedded < statistics.passages == 200
        embedder.model_id, embedder.dimensions = "one", 64  # and back, half-way
        assert await compared(memory, monkeypatch) == ("one", {"one"})
        for _ in range(10):
            embedder.gate.release()
        async with asyncio.timeout(60):
            while await of_models(memory) != {"one": 200}:
                await asyncio.sleep(0.005)
    assert rows(path, "SELECT DISTINCT model_id, length(vector) FROM chunks_vec") == [("one", 256)]


async def test_all_vectors_of_a_user_are_made_anew_under_the_same_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = Gated("one", 64)
    async with opened(path, embedder) as memory:
        await fill(memory, 100)
        await fill(Memory(memory.store, BOB), 3)
        await memory.conversations.create("s")
        await memory.conversations.append(
            "s", turn_id="t", role="user", text="no notes", payload="[]"
        )
        await embedded(memory, 101)
        old = rows_of(await vectors(memory))
        embedder.aliases = {"tea": "brewage"}  # another model, and it does not say so
        embedder.gate = asyncio.Semaphore(0)
        assert await memory.reembed() == 101
        assert (await memory.statistics()).passages_embedded == 0
        found = await memory.search("tea")
        assert found.results[0].matched_by == "keyword"
        assert "100 passages have no vector yet" in found.passing
        assert await of_models(Memory(memory.store, BOB)) == {"one": 3}, "others keep theirs"
    embedder.gate = None
    async with opened(path, embedder) as memory:  # what is undone survives a restart
        await embedded(memory, 101)
        assert await of_models(memory) == {"one": 101}
        new = rows_of(await vectors(memory))
        changed = [each for each in new if old[each] != new[each]]
        assert len(changed) == 13  # those about tea
        assert (await memory.search("brewage")).results


async def test_nothing_is_set_aside_while_nobody_can_make_new_ones(path: Path) -> None:
    embedder = FakeEmbedder()
    async with opened(path, embedder) as memory:
        await fill(memory, 3)
        embedder.error = away()
        with pytest.raises(EmbedderError, match="cannot be reached"):
            await memory.reembed()
        assert (await memory.statistics()).passages_embedded == 3
    async with opened(path) as memory:
        with pytest.raises(EmbedderError, match="no embedder is configured"):
            await memory.reembed()
        assert await of_models(memory) == {"fake-1": 3}


async def test_more_vectors_than_one_statement_takes_are_set_aside_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_store, "SLICE_ROWS", 3)
    embedder = Gated("one", 64)
    async with opened(path, embedder) as memory:
        await fill(memory, 9)
        embedder.gate = asyncio.Semaphore(0)
        await memory.reembed()
        assert await of_models(memory) == {"": 9}


async def test_a_start_loads_the_vectors_of_the_asked_model_page_by_page(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_store, "LOAD_ROWS", 7)
    async with opened(path, FakeEmbedder()) as memory:
        await fill(memory, 40)
        for note in (await memory.list(10))[0]:
            await memory.delete(note.note_id)
        database = memory.store.database
        await database.execute("UPDATE chunks_vec SET digest = 99")  # as earlier versions stored
        await database.execute("UPDATE chunks_vec SET model_id = 'b' WHERE chunk_id % 5 = 0")
        await database.execute("UPDATE chunks_vec SET vector = x'' WHERE chunk_id % 5 = 1")
        expected = await database.execute(
            "SELECT chunk_id, vector FROM chunks_vec WHERE model_id = 'fake-1' AND vector <> x''"
        )
    async with opened(path) as memory:
        shown, missing = await memory.store.vectors.snapshot(User(ALICE).notes, "fake-1", 64)
        found = zip(shown.ids.tolist(), (row.tobytes() for row in shown.matrix), strict=True)
        assert tuple(found) == expected.rows
        assert missing == 30 - (len(shown.ids) - len(shown.dead)) > 0


async def vectors(memory: Memory) -> tuple[tuple[object, ...], ...]:
    sql = "SELECT chunk_id, vector FROM chunks_vec WHERE namespace LIKE '%:alice'"
    return (await memory.store.database.execute(sql)).rows


def rows_of(found: tuple[tuple[object, ...], ...]) -> dict[object, object]:
    return dict(found)  # type: ignore[arg-type]


async def test_how_long_the_vectors_will_take_is_known_while_they_are_made(path: Path) -> None:
    embedder = Gated("one", 64)
    async with opened(path, embedder) as memory:
        await fill(memory, 100)
        assert (await memory.statistics()).embedding_seconds_left == 0
        embedder.gate = asyncio.Semaphore(1)
        await memory.reembed()
        async with asyncio.timeout(60):
            while not (await memory.statistics()).embedding_seconds_left:
                await asyncio.sleep(0.005)
        embedder.gate.release()
        await embedded(memory, 100)
        assert (await memory.statistics()).embedding_seconds_left == 0

"""Vectors that come late."""

import asyncio
import logging
from pathlib import Path

import numpy as np
import pytest
from wire.errors import Code

from guest.embedding.backends import Embedded
from guest.errors import EmbedderError, StorageError
from guest.memory.indexing.embedder import Vectorizer
from guest.memory.indexing.indexer import BATCH_MAX, Indexer
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.memory import Memory
from guest.memory.storage.base import Database
from tests.support.memory.store import ORIGIN, FakeEmbedder, away, embedded, opened, rows, until

ALICE = "alice"


async def fill(path: Path, number: int) -> None:
    """Notes without vectors."""
    async with opened(path) as memory:
        for i in range(number):
            await memory.save(f"note number {i}", [], ORIGIN)


async def test_what_an_earlier_run_left_is_embedded_in_batches(path: Path) -> None:
    await fill(path, 2 * BATCH_MAX + 5)
    embedder = FakeEmbedder()
    async with opened(path, embedder) as memory:
        await embedded(memory, 2 * BATCH_MAX + 5)
        assert embedder.calls == 4  # one to learn the model, three batches
        (hit,) = (await memory.search("number 7", top_k=1)).results
        assert hit.text == "note number 7"
        assert hit.matched_by == "both"


async def test_an_empty_store_asks_the_embedder_nothing(path: Path) -> None:
    embedder = FakeEmbedder()
    async with opened(path, embedder):
        await asyncio.sleep(0.05)
    assert embedder.calls == 0


async def test_nothing_is_embedded_twice(path: Path) -> None:
    embedder = FakeEmbedder()
    await fill(path, 3)
    async with opened(path, embedder) as memory:
        await embedded(memory, 3)
    again = FakeEmbedder()
    async with opened(path, again) as memory:
        await until(lambda: again.calls == 1)
        await asyncio.sleep(0.05)
        assert len(again.texts) == 1  # only the question which model it is


async def test_another_model_replaces_all_vectors_and_old_ones_rank_nothing(path: Path) -> None:
    async with opened(path, FakeEmbedder("old")) as memory:
        for i in range(100):
            await memory.save(f"note number {i}", [], ORIGIN)
    new = FakeEmbedder("new", dimensions=32)
    new.aliases = {"jotting": "note"}
    async with opened(path, new) as memory:
        await until(lambda: len(new.texts) > 1)
        await embedded(memory, 100)
        found = await memory.search("jotting number 7", top_k=1)
        assert found.results[0].text == "note number 7"
        assert found.warnings == ()
        assert (await memory.statistics()).embedding_model == "new"
    assert rows(
        path, "SELECT model_id, length(vector), COUNT(*) FROM chunks_vec GROUP BY 1, 2"
    ) == [("new", 128, 100)]


async def test_it_waits_patiently_and_notices_when_the_embedder_is_back(path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.error = away()
    async with opened(path, embedder) as memory:
        saved = await memory.save("likes tea", [], ORIGIN)
        assert saved.searchable == "keyword"
        await asyncio.sleep(0.3)
        assert embedder.calls < 20, "it hammers on an embedder that is away"
        embedder.error = None
        assert (await memory.search("tea")).results  # someone else's answer wakes it
        await embedded(memory, 1)


async def test_a_passage_that_cannot_be_embedded_does_not_hold_up_others(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(path, 50)
    embedder = FakeEmbedder()
    embedder.refuses = lambda text: text == "note number 13"
    with caplog.at_level(logging.WARNING):
        async with opened(path, embedder) as memory:
            await embedded(memory, 49)
            assert (await memory.search("13")).results[0].text == "note number 13"
    assert "cannot be embedded" in caplog.text
    assert len(embedder.texts) < 3 * 50


async def test_an_embedder_that_refuses_everything_skips_nothing(path: Path) -> None:
    await fill(path, 3)
    embedder = FakeEmbedder()
    embedder.error = EmbedderError(Code.INTERNAL, "broken")
    async with opened(path) as memory:
        indexer = small_indexer(memory, embedder)
        indexer.start()
        await asyncio.sleep(0.2)
        embedder.error = None
        await embedded(memory, 3)
        await indexer.stop()


async def test_malformed_vectors_are_not_stored(path: Path) -> None:
    class Odd(FakeEmbedder):
        async def embed(self, texts: object, *, timeout: float) -> Embedded:
            self.calls += 1
            return Embedded("odd", np.full((1, 4), np.nan, np.float32))

    odd = Odd()
    async with opened(path, odd) as memory:
        assert (await memory.save("likes tea", [], ORIGIN)).searchable == "keyword"
        found = await memory.search("tea")
        assert "malformed" in found.warnings[0]
        assert found.results
    assert rows(path, "SELECT * FROM chunks_vec") == []


async def test_it_survives_a_failing_database(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(path, 2)
    async with opened(path) as memory:
        failures = 3
        execute = memory.store.database.execute

        async def sometimes(*args: object) -> object:
            nonlocal failures
            if failures:
                failures -= 1
                raise StorageError(Code.UNAVAILABLE, "the disk failed")
            return await execute(*args)  # type: ignore[arg-type]

        indexer = small_indexer(memory, FakeEmbedder())
        monkeypatch.setattr(memory.store.database, "execute", sometimes)
        indexer.start()
        await until(lambda: failures == 0)
        await embedded(memory, 2)
        await indexer.stop()
    assert caplog.text.count("vectors are delayed: the disk failed") == 3


async def test_an_embedder_that_is_away_is_told_of_in_a_line(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await fill(path, 1)
    embedder = FakeEmbedder()
    embedder.error = EmbedderError(Code.UNAVAILABLE, "it loads", resolution="wait")
    async with opened(path) as memory:
        indexer = small_indexer(memory, embedder)
        indexer.start()
        await until(lambda: "vectors are delayed" in caplog.text)
        await indexer.stop()
    said = [each for each in caplog.records if "delayed" in each.message]
    assert {(each.levelno, each.message) for each in said} == {
        (logging.INFO, "vectors are delayed: it loads")
    }


async def test_a_note_deleted_meanwhile_gets_no_vector(path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.delay_s = 0.05
    async with opened(path, embedder, embed_wait_s=0.0) as memory:
        note = (await memory.save("gone soon", [], ORIGIN)).note
        await until(lambda: embedder.calls >= 2)
        await memory.delete(note.note_id)
        kept = (await memory.save("stays", [], ORIGIN)).note
        await embedded(memory, 1)
        embedder.delay_s = 0
        hits = (await memory.search("gone soon stays")).results
        assert [hit.note_id for hit in hits] == [kept.note_id]
    assert rows(path, "SELECT COUNT(*) FROM chunks_vec") == [(1,)]


async def test_stopping_twice_is_fine(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        await memory.store.indexer.stop()
        await memory.store.indexer.stop()


def small_indexer(memory: Memory, embedder: FakeEmbedder) -> Indexer:
    """An indexer with short delays, for a memory that has none."""
    database: Database = memory.store.database
    vectorizer = Vectorizer(embedder)
    return Indexer(database, VectorStore(database), vectorizer, retry_min_s=0.01, retry_max_s=0.08)

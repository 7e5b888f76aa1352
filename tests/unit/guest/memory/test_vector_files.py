"""The file of vectors beside a database: like the database, whatever happened to it."""

import asyncio
import hashlib
import os
import random
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.indexing import vector_file
from guest.memory.indexing.vector_file import Contents, VectorFile, VectorFiles
from guest.memory.indexing.vector_store import VectorStore
from guest.memory.indexing.vectors import Ids, ResidentVectors, Snapshot, digests
from guest.memory.memory import Memory
from guest.memory.models import User
from guest.memory.storage import copies
from tests.support.memory.store import ORIGIN, FakeEmbedder, file_bytes, opened, rows

CONTENTS = Contents("memory:alice", "fake-1", 8)
NAMESPACE = User("alice").notes


class Distinct(FakeEmbedder):
    """Every text has a vector that looks random: its bytes are nowhere else."""

    def vector(self, text: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        seed = int.from_bytes(hashlib.sha256(f"{self.model_id} {text}".encode()).digest())
        vector = np.random.default_rng(seed).normal(size=self.dimensions)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


@pytest.fixture
def embedder() -> Distinct:
    return Distinct()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


def the_file(path: Path) -> Path:
    return VectorFiles(path).path_of(NAMESPACE)


async def saved(memory: Memory, texts: list[str]) -> dict[str, str]:
    return {text: (await memory.save(text, [], ORIGIN)).note.note_id for text in texts}


async def texts_found(memory: Memory, texts: list[str]) -> list[str]:
    """For each text, what a search by its meaning finds first."""
    found = [await memory.search(text, top_k=1) for text in texts]
    return [outcome.results[0].text if outcome.results else "" for outcome in found]


def vectors_of(path: Path) -> dict[int, bytes]:
    return dict(rows(path, "SELECT chunk_id, vector FROM chunks_vec WHERE model_id > ''"))


def in_file(path: Path) -> dict[int, bytes]:
    """The rows in use of a file of 64 numbers a row."""
    row = np.dtype([("id", "<i8"), ("vector", "<f4", (64,))])
    content: Any = np.frombuffer(the_file(path).read_bytes()[4096:], row)
    assert not content["vector"][content["id"] == 0].any()
    return {int(each["id"]): each["vector"].tobytes() for each in content if each["id"]}


def test_random_changes_leave_what_a_dictionary_would_hold(tmp_path: Path) -> None:
    chance, numbers = random.Random(3), np.random.default_rng(3)
    model: dict[int, np.ndarray[Any, np.dtype[np.float32]]] = {}
    known = np.zeros(0, np.int64)
    for _ in range(6):
        file = VectorFile.open(tmp_path / "vectors", CONTENTS)
        expected = digests(np.array([model[i] for i in known.tolist()]).reshape(-1, 8))
        vectors = ResidentVectors.within(file, *file.found(known, expected))
        assert sorted(vectors.passages.tolist()) == known.tolist()
        for _ in range(300):
            ids = chance.sample(range(1, 3000), chance.randint(1, 4))
            if chance.random() < 0.7:
                some = numbers.normal(size=(len(ids), 8)).astype(np.float32)
                vectors.add(ids, some)
                model.update(zip(ids, some, strict=True))
            else:
                vectors.remove([*ids, *(gone := chance.sample(sorted(model), len(model) // 9))])
                for chunk_id in (*ids, *gone):
                    model.pop(chunk_id, None)
        known = np.array(sorted(model), np.int64)
        _same(vectors.snapshot(), known, model)


def _same(
    snapshot: Snapshot, known: Ids, model: dict[int, np.ndarray[Any, np.dtype[np.float32]]]
) -> None:
    query = np.eye(1, 8, dtype=np.float32)
    cosines = snapshot.cosines_of(np.arange(3001), query)
    expected = np.zeros(3001, np.float32)
    expected[known] = [model[i][0] for i in known.tolist()]
    assert np.allclose(cosines, expected, atol=1e-6)
    assert snapshot.live == len(known)


def test_a_snapshot_stays_when_the_file_grows(tmp_path: Path) -> None:
    file = VectorFile.open(tmp_path / "vectors", CONTENTS)
    nothing = np.zeros(0, np.int64)
    vectors = ResidentVectors.within(file, *file.found(nothing, nothing))
    vectors.add([1, 2], np.eye(2, 8, dtype=np.float32))
    snapshot = vectors.snapshot()
    vectors.add(list(range(3, 3000)), np.repeat(np.eye(1, 8, dtype=np.float32), 2997, axis=0))
    vectors.remove([1])
    assert snapshot.ids.tolist() == [1, 2]
    assert snapshot.rows_of(np.array([1, 2, 3])).tolist() == [0, 1, -1]
    assert snapshot.nearest(np.ones((1, 8), np.float32), 5, 0.0).ids.tolist() == [2]


def test_a_file_that_is_replaced_by_another_models_stays_readable(tmp_path: Path) -> None:
    """A mapped file that became shorter would end the process."""
    file = VectorFile.open(tmp_path / "vectors", CONTENTS)
    file.extend(100_000)
    file.write(99_999, [1], np.ones((1, 8), np.float32))
    read = file.vectors
    VectorFile.open(tmp_path / "vectors", replace(CONTENTS, model_id="fake-2"))
    assert not read.any()


def test_equal_vectors_have_equal_digests_and_a_changed_bit_another_one() -> None:
    numbers = np.random.default_rng(1)
    vectors = numbers.normal(size=(100, 7)).astype(np.float32)
    told = digests(vectors)
    assert (digests(vectors.copy()) == told).all()
    for bit in range(7 * 32):
        words = vectors.copy().view(np.uint32)
        words[:, bit // 32] ^= np.uint32(1 << bit % 32)
        assert (digests(words.view(np.float32)) != told).all()
    assert len(set(told.tolist())) == 100


async def test_the_next_start_reads_the_vectors_from_the_file(
    path: Path, embedder: Distinct
) -> None:
    """Those in the database are made worthless in between."""
    texts = [f"note {number}" for number in range(40)]
    async with opened(path, embedder) as memory:
        await saved(memory, texts[:30])
        assert await texts_found(memory, texts[:30]) == texts[:30]
        await saved(memory, texts[30:])
    assert in_file(path) == vectors_of(path)
    assert stat.S_IMODE(the_file(path).stat().st_mode) == 0o600
    async with opened(path, embedder) as memory:
        await memory.store.database.execute(
            "UPDATE chunks_vec SET vector = zeroblob(length(vector))"
        )
    async with opened(path, embedder) as memory:
        assert await texts_found(memory, texts) == texts


@pytest.mark.parametrize("searched", [False, True])
async def test_a_forgotten_notes_vector_is_in_no_file(
    path: Path, embedder: Distinct, searched: bool
) -> None:
    texts = ["the first", "the second", "the third"]
    async with opened(path, embedder) as memory:
        notes = await saved(memory, texts)
        await memory.search("the first")
    vector = embedder.vector("the second").tobytes()
    assert file_bytes(path).count(vector) > 1, "the test would see nothing"
    async with opened(path, embedder) as memory:
        if searched:
            await memory.search("the first")
        await memory.delete(notes["the second"])
        assert vector not in file_bytes(path)
        assert await texts_found(memory, ["the third", "the first"]) == ["the third", "the first"]
    assert in_file(path) == vectors_of(path)


async def test_what_a_killed_guest_left_is_erased_before_anything_is_served(
    path: Path, embedder: Distinct
) -> None:
    async with opened(path, embedder) as memory:
        notes = await saved(memory, ["the first", "the second"])
        await memory.search("the first")
    before = the_file(path).read_bytes()
    async with opened(path, embedder) as memory:
        await memory.delete(notes["the second"])
        await memory.store.database.execute("INSERT INTO erasures (requested_at) VALUES ('')")
    the_file(path).write_bytes(before)
    async with opened(path, embedder):
        assert embedder.vector("the second").tobytes() not in file_bytes(path)
        assert embedder.vector("the first").tobytes() in the_file(path).read_bytes()


def _flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 + 8 + 5] ^= 1
    path.write_bytes(content)


def _doubled(path: Path) -> None:
    content = bytearray(path.read_bytes())
    size = 8 + 64 * 4
    content[4096 + size : 4096 + 2 * size] = content[4096 : 4096 + size]
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "one bit": _flipped,
    "one row twice": _doubled,
    "cut off within a row": lambda path: os.truncate(path, path.stat().st_size - 100),
    "cut off after a row": lambda path: os.truncate(path, 4096 + 3 * (8 + 64 * 4)),
    "only the beginning": lambda path: os.truncate(path, 4096),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"x" * 77),
    "another beginning": lambda path: path.write_bytes(b"{" + path.read_bytes()[1:] + b"xy"),
    "not JSON": lambda path: path.write_bytes(b"x" * 4096 + path.read_bytes()[4096:]),
    "nothing but noise": lambda path: path.write_bytes(random.Random(1).randbytes(30_000)),
    "gone": os.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_file_is_made_anew(path: Path, embedder: Distinct, damage: str) -> None:
    texts = [f"note {number}" for number in range(20)]
    async with opened(path, embedder) as memory:
        await saved(memory, texts)
        await memory.search("note")
    DAMAGE[damage](the_file(path))
    async with opened(path, embedder) as memory:
        assert await texts_found(memory, texts) == texts
    assert in_file(path) == vectors_of(path)


class Delayed(VectorFiles):
    """Says what was in the files some time ago."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self.read, self.go = threading.Event(), threading.Event()

    def contents(self) -> dict[Path, Contents | None]:
        found = super().contents()
        self.read.set()
        assert self.go.wait(60)
        return found


async def test_a_file_that_is_made_anew_during_an_erasure_is_not_erased(
    path: Path, embedder: Distinct
) -> None:
    async with opened(path, embedder) as memory:
        await saved(memory, ["the boat is red"])
    async with opened(path) as memory:
        the_file(path).write_bytes(b"damaged")
        files = Delayed(path)
        store = VectorStore(memory.store.database, files)
        erasing = asyncio.create_task(store.erase())
        await asyncio.to_thread(files.read.wait, 60)
        snapshot, _ = await store.snapshot(NAMESPACE, embedder.model_id, 64)
        files.go.set()
        await erasing
        query = embedder.vector("the boat is red").reshape(1, -1)
        assert len(snapshot.nearest(query, 1, 0.9).ids) == 1
        assert the_file(path).exists()


@pytest.mark.parametrize("kind", ["link", "directory", "pipe"])
async def test_without_its_file_vectors_are_in_memory(
    path: Path, tmp_path: Path, embedder: Distinct, kind: str
) -> None:
    """A deletion neither waits for what lies in its place nor touches it."""
    other = tmp_path / "other"
    other.write_bytes(b"untouched")
    if kind == "link":
        the_file(path).symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(the_file(path))
    else:
        the_file(path).mkdir()
    async with opened(path, embedder) as memory:
        notes = await saved(memory, ["the first", "the second"])
        assert await texts_found(memory, ["the second"]) == ["the second"]
        await memory.delete(notes["the first"])
        assert embedder.vector("the first").tobytes() not in path.read_bytes()
    assert other.read_bytes() == b"untouched"


async def test_a_copy_under_another_name_is_erased(path: Path, embedder: Distinct) -> None:
    async with opened(path, embedder) as memory:
        notes = await saved(memory, ["the first", "the second"])
        await memory.search("the first")
        shutil.copy(the_file(path), f"{the_file(path)}-copy")
        await memory.delete(notes["the first"])
        assert embedder.vector("the first").tobytes() not in file_bytes(path)
    assert in_file(path) == vectors_of(path)


async def test_a_search_that_is_given_up_does_not_take_the_file_from_the_next_one(
    path: Path, embedder: Distinct, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is still making the file anew, because most of it is unused."""
    async with opened(path, embedder) as memory:
        await saved(memory, ["the first"])
        await memory.search("the first")
        ids = list(range(1_000, 6_000))
        gone = np.repeat(embedder.vector("gone")[None], len(ids), axis=0)
        memory.store.vectors.stored(NAMESPACE, embedder.model_id, ids, gone)
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    erase = copies.erase

    def erase_slowly(path: Path) -> None:
        first = not begun.is_set()
        begun.set()
        assert not first or go.wait(60)
        erase(path)
        if first:
            ended.set()

    monkeypatch.setattr(copies, "erase", erase_slowly)
    async with opened(path, embedder) as memory:
        given_up = asyncio.create_task(memory.search("the first"))
        await asyncio.to_thread(begun.wait, 60)
        given_up.cancel()
        next_one = asyncio.create_task(memory.search("the first"))
        await asyncio.wait({next_one}, timeout=0.2)
        go.set()
        await next_one
        await asyncio.to_thread(ended.wait, 60)
        assert [hit.matched_by for hit in (await memory.search("the first")).results] == ["both"]
        assert given_up.cancelled()
    assert in_file(path) == vectors_of(path)


async def test_a_full_disk_costs_no_note_and_no_search(
    path: Path, embedder: Distinct, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"note {number}" for number in range(300)]
    async with opened(path, embedder) as memory:
        notes = await saved(memory, texts[:250])
        await memory.search("note 1")

        def full(*_: object) -> None:
            raise StorageError(Code.RESOURCE_EXHAUSTED, "full", resolution="make room")

        monkeypatch.setattr(vector_file, "require_room", full)
        notes |= await saved(memory, texts[250:])
        assert await texts_found(memory, texts) == texts
        await memory.delete(notes["note 7"])
        assert embedder.vector("note 7").tobytes() not in file_bytes(path)


async def test_a_vector_that_cannot_be_erased_is_not_said_to_be(
    path: Path, embedder: Distinct, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, embedder) as memory:
        notes = await saved(memory, ["the first", "the second"])
        await memory.search("the first")

        def broken(*_: object) -> None:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            for name in ("sync", "clear"):
                patch.setattr(VectorFile, name, broken)
            patch.setattr(os, "fsync", broken)
            with pytest.raises(StorageError):
                await memory.delete(notes["the first"])
    async with opened(path, embedder):
        assert embedder.vector("the first").tobytes() not in file_bytes(path)


async def test_an_encrypted_memory_has_no_file_of_vectors(path: Path, embedder: Distinct) -> None:
    key = "correct horse battery staple"
    the_file(path).write_bytes(b"from the time before the key")
    async with opened(path, embedder, encryption_key=key) as memory:
        await saved(memory, ["the first"])
        assert await texts_found(memory, ["the first"]) == ["the first"]
        assert embedder.vector("the first").tobytes() not in file_bytes(path)
    assert not the_file(path).exists()


async def test_another_model_takes_the_place_of_the_first(path: Path, embedder: Distinct) -> None:
    async with opened(path, embedder) as memory:
        await saved(memory, ["the first", "the second"])
        await memory.search("the first")
    other = Distinct(model_id="fake-2")
    async with opened(path, other) as memory:
        await memory.reembed()
        while (await memory.statistics()).passages_embedded != 2:
            await memory.search("the second")
        assert await texts_found(memory, ["the first"]) == ["the first"]
        assert embedder.vector("the first").tobytes() not in the_file(path).read_bytes()
    assert in_file(path) == vectors_of(path)


async def test_a_half_empty_file_becomes_smaller(path: Path, embedder: Distinct) -> None:
    async with opened(path, embedder) as memory:
        await saved(memory, ["the last"])
        await memory.search("the last")
        ids = list(range(1_000, 4_000))
        rows = np.repeat(embedder.vector("gone")[None], len(ids), axis=0)
        memory.store.vectors.stored(NAMESPACE, embedder.model_id, ids, rows)
        size = the_file(path).stat().st_size
        memory.store.vectors.removed(NAMESPACE, ids)
        assert await texts_found(memory, ["the last"]) == ["the last"]
        assert the_file(path).stat().st_size < size / 2
    assert in_file(path) == vectors_of(path)

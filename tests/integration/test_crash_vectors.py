"""Killed while it saves and forgets: no file has the vector of a note said to be forgotten."""

import asyncio
import multiprocessing
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.crashing.killing import kill
from tests.support.memory.store import ORIGIN, HashingEmbedder, embedded, file_bytes, opened, rows

ROUNDS = 5


def text_of(number: int) -> str:
    return f"{number}th note of {number * 7919} and {number * 104729}"


def save_and_forget(path: str, first: int, told: Connection) -> None:
    """Save notes and forget every second one; say each that is forgotten."""

    async def working() -> None:
        async with opened(Path(path), HashingEmbedder()) as memory:
            await memory.search("note")
            for number in range(first, first + 100_000):
                note = (await memory.save(text_of(number), [], ORIGIN)).note
                if number % 2:
                    await memory.delete(note.note_id)
                    told.send(number)

    asyncio.run(working())


def test_sigkill_leaves_no_vector_of_a_forgotten_note(
    tmp_path: Path, chance: random.Random
) -> None:
    path = tmp_path / "memory.db"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    forgotten = -1
    for _ in range(ROUNDS):
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(
            target=save_and_forget, args=(str(path), forgotten + 1, writer), daemon=True
        )
        child.start()
        writer.close()
        assert reader.poll(60)
        time.sleep(chance.random() * 0.2)
        forgotten = kill(child, reader, forgotten)
        assert asyncio.run(_vector(forgotten)) not in file_bytes(path)
        asyncio.run(_served(path))
        living = {vector for (vector,) in rows(path, "SELECT vector FROM chunks_vec")}
        content = file_bytes(path)
        assert any(vector in content for vector in living), "the test would see nothing"
        for number in range(1, forgotten + 2):
            vector = asyncio.run(_vector(number))
            assert vector not in content or vector in living, number
    assert forgotten >= ROUNDS


async def _vector(number: int) -> bytes:
    embedded = await HashingEmbedder().embed([text_of(number)], timeout=10)
    return bytes(embedded.vectors[0].tobytes())


async def _served(path: Path) -> None:
    """Start again, search and stop."""
    async with opened(path, HashingEmbedder()) as memory:
        await embedded(memory, (await memory.statistics()).passages)
        assert (await memory.search("note")).results

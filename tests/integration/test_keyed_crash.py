"""Killed while it appends to working memory: what was acknowledged is there, once."""

import asyncio
import multiprocessing
import random
import time
from datetime import UTC, datetime
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path

from tests.support.crashing.killing import kill
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE = "alice"
ROUNDS = 4


def append_for_ever(path: str, told: Connection) -> None:
    """Append one numbered line after the other; say each that is acknowledged."""

    async def appending() -> None:
        async with opened(Path(path), FakeEmbedder()) as memory:
            before = await memory.keyed.read("log")
            for number in count(before.version if before else 0):
                await memory.keyed.write("log", f"line {number}", "append", ORIGIN)
                told.send(number)

    asyncio.run(appending())


def test_sigkill_loses_no_line_that_was_appended(tmp_path: Path, chance: random.Random) -> None:
    path = tmp_path / "memory.db"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    acknowledged = -1
    for _ in range(ROUNDS):
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(target=append_for_ever, args=(str(path), writer))
        child.start()
        writer.close()
        assert reader.poll(60)
        time.sleep(chance.random() * 0.05)
        acknowledged = kill(child, reader, acknowledged)
        lines, version, logged = asyncio.run(found(path))
        assert lines == [f"line {number}" for number in range(len(lines))]
        assert version == logged == len(lines)
        assert len(lines) in (acknowledged + 1, acknowledged + 2)
    assert acknowledged >= ROUNDS - 1


async def found(path: Path) -> tuple[list[str], int, int]:
    """The lines that a guest finds next, the note's version, and the writes it knows of."""
    async with opened(path) as memory:
        note = await memory.keyed.read("log")
        assert note is not None
        first = datetime.fromisoformat(note.created_at).date()
        days = dict.fromkeys((first, datetime.now(UTC).date()))
        logged = [entry for day in days for entry in await memory.keyed.activity(day)]
        return note.text.split("\n"), note.version, len(logged)

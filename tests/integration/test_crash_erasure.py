"""Killed at any moment while notes come and go: no byte is left of what is not there any more."""

import asyncio
import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from tests.security.test_forgetting_pages import unclean
from tests.support.crashing import note_changes
from tests.support.crashing.killing import Line, Lines, end, times
from tests.support.examples import scaled
from tests.support.memory.store import ORIGIN, file_bytes, opened

ROUNDS = 10
PREFIX = 4
"""A separator of the index may be the beginning of a word: so many characters of it count."""


def test_nothing_is_left_after_kills_and_restarts(tmp_path: Path, chance: random.Random) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([note_changes.__name__])
    path = tmp_path / "memory.db"
    ever: set[str] = set()
    notes: list[str] = []
    for number in range(scaled(ROUNDS)):
        endless = chance.random() < 0.8
        reader, writer = context.Pipe(duplex=False)
        said: list[Line] = []
        lines = Lines(reader, said.append)
        arguments = (str(path), number, writer, notes, endless)
        child = context.Process(target=_child, args=arguments)
        child.start()
        writer.close()
        if endless:
            assert lines.listen(60, times(chance.randrange(1, 60), "will"))
            lines.listen(chance.random() * 0.1)
            end(child)
        child.join()
        lines.close()
        for line in said:
            ever |= set(line.get("will", []))
        living, notes, content = asyncio.run(_inspect(path))
        assert unclean(path) == []
        left = {secret for secret in ever if secret[:PREFIX].encode() in content}
        assert [secret for secret in left if secret[:PREFIX] not in living] == []
    gone = [secret for secret in ever if secret not in living]
    assert len(gone) > 50, "the test would see nothing"


def _child(path: str, seed: int, writer: Any, notes: list[str], endless: bool) -> None:
    note_changes.run(path, seed, writer.fileno(), notes, endless=endless)


async def _inspect(path: Path) -> tuple[str, list[str], bytes]:
    """All texts and note ids that there are, and every byte of the files."""
    async with opened(path) as memory:
        assert await _column(memory, "PRAGMA integrity_check") == ["ok"]
        check = "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"
        await _column(memory, check)
        texts = await _column(
            memory, "SELECT content FROM notes UNION ALL SELECT content FROM note_versions"
        )
        return " ".join(texts), await _column(memory, "SELECT note_id FROM notes"), file_bytes(path)


async def _column(memory: Memory, sql: str) -> list[str]:
    return [str(row[0]) for row in (await memory.store.database.execute(sql)).rows]


@pytest.mark.long
async def test_nothing_is_left_in_a_large_memory(path: Path, chance: random.Random) -> None:
    """200,000 passages: what was deleted from among them is gone from every page."""
    secrets, notes = [], []
    async with opened(path, max_notes=1_000_000) as memory:
        for number in range(200_000):
            words = [f"{chance.choice('bcdfg')}{chance.randrange(30_000)}" for _ in range(20)]
            if number % 2000 == 0:
                secrets.append(note_changes.rare_word(chance))
                words.insert(chance.randrange(20), secrets[-1])
            note = (await memory.save(" ".join(words), [], ORIGIN)).note
            if number % 2000 == 0:
                notes.append(note.note_id)
        content = file_bytes(path)
        assert all(secret.encode() in content for secret in secrets), "it would see nothing"
        for note_id in notes:
            await memory.delete(note_id)
        content = file_bytes(path)
    assert [secret for secret in secrets if secret[:PREFIX].encode() in content] == []

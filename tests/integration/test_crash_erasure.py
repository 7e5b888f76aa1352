"""Killed at any moment while notes come and go: no byte is left of what is not there any more."""

import asyncio
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from tests.security.test_forgetting_pages import unclean
from tests.support.crashing import note_changes
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
        arguments = (str(path), number, writer, notes, endless)
        child = context.Process(target=_child, args=arguments)
        child.start()
        writer.close()
        assert reader.poll(60)
        if endless:
            time.sleep(chance.random() * 0.5)
            assert child.pid is not None
            assert child.exitcode is None, "the child ended by itself"
            os.kill(child.pid, signal.SIGKILL)
        for line in _lines(reader.fileno()):
            ever |= set(json.loads(line).get("will", []))
        child.join()
        reader.close()
        living, notes, content = asyncio.run(_inspect(path))
        assert unclean(path) == []
        left = {secret for secret in ever if secret[:PREFIX].encode() in content}
        assert [secret for secret in left if secret[:PREFIX] not in living] == []
    gone = [secret for secret in ever if secret not in living]
    assert len(gone) > 50, "the test would see nothing"


def _child(path: str, seed: int, writer: Any, notes: list[str], endless: bool) -> None:
    note_changes.run(path, seed, writer.fileno(), notes, endless=endless)


def _lines(descriptor: int) -> list[bytes]:
    """All whole lines that the child writes before it ends."""
    content = b""
    while part := os.read(descriptor, 65536):
        content += part
    return content.split(b"\n")[:-1]


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

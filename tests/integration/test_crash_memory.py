"""Memory killed at random moments: every acknowledged change is there, none is half."""

import asyncio
import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from guest.memory.chunking import chunk
from guest.memory.database.local import LocalDatabase
from guest.memory.migrations import migrate
from guest.memory.types import MemoryConfig
from tests.integration import crash_child

ROUNDS = 120
ROUNDS_PER_FILE = 30
LONGEST_LIFE_S = 0.12


@dataclass(frozen=True)
class Kept:
    text: str
    version: int


@dataclass
class Expected:
    """What was acknowledged, and the one change that was on its way when the end came."""

    notes: dict[str, Kept] = field(default_factory=dict)
    in_flight: dict[str, Any] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def read(self, lines: list[bytes]) -> None:
        for line in map(json.loads, lines):
            match line:
                case {"will": _}:
                    self.in_flight = line
                    continue
                case {"did": "save", "id": note_id, "text": text}:
                    self.notes[note_id] = Kept(text, 1)
                case {"did": "update", "id": note_id, "text": text, "version": version}:
                    assert version == self.notes[note_id].version + 1
                    self.notes[note_id] = Kept(text, version)
                case {"did": "delete", "id": note_id}:
                    del self.notes[note_id]
            self.counts[line["did"]] += 1
            self.in_flight = None

    def settle(self, found: dict[str, Kept]) -> None:
        """Compare with what is found; the change on its way may have happened or not."""
        match self.in_flight:
            case {"will": "save", "text": text}:
                new = {i: kept for i, kept in found.items() if i not in self.notes}
                assert list(new.values()) in ([], [Kept(text, 1)])
                self.notes |= new
            case {"will": "update", "id": note_id, "text": text}:
                old = self.notes[note_id]
                assert found[note_id] in (old, Kept(text, old.version + 1))
                self.notes[note_id] = found[note_id]
            case {"will": "delete", "id": note_id} if note_id not in found:
                del self.notes[note_id]
        if self.in_flight:
            self.counts[f"killed during {self.in_flight['will']}"] += 1
        self.in_flight = None
        assert found == self.notes


def test_sigkill_loses_nothing_acknowledged_and_leaves_nothing_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([crash_child.__name__])
    chance = random.Random()
    expected, counts = Expected(), Counter[str]()
    started = time.monotonic()
    for number in range(ROUNDS):
        path = tmp_path / f"memory-{number // ROUNDS_PER_FILE}.db"
        if number % ROUNDS_PER_FILE == 0:
            expected = Expected(counts=counts)
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(
            target=_child, args=(str(path), number, writer, list(expected.notes))
        )
        child.start()
        writer.close()
        if chance.random() < 0.9:  # else it may die while opening
            reader.poll(20)
        time.sleep(chance.random() * LONGEST_LIFE_S)
        assert child.pid is not None
        assert child.exitcode is None, "the child ended by itself"
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        expected.read(_lines(reader.fileno()))
        reader.close()
        expected.settle(asyncio.run(_inspect(path)))
    with capsys.disabled():
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"\n{ROUNDS} kills in {time.monotonic() - started:.0f} s: {told}")
    assert counts["save"] > ROUNDS
    assert counts["update"] > ROUNDS / 2


def _child(path: str, seed: int, writer: Any, notes: list[str]) -> None:
    crash_child.run(path, seed, writer.fileno(), notes)


def _lines(descriptor: int) -> list[bytes]:
    """All whole lines that the dead child has written."""
    content = b""
    while part := os.read(descriptor, 65536):
        content += part
    return content.split(b"\n")[:-1]


async def _inspect(path: Path) -> dict[str, Kept]:
    """Open the database as the guest would, check that it is whole, and read its notes."""
    database = await LocalDatabase.open(path)
    try:
        await migrate(database)

        async def rows(sql: str) -> list[tuple[Any, ...]]:
            return list((await database.execute(sql)).rows)

        assert await rows("PRAGMA integrity_check") == [("ok",)]
        assert await rows("PRAGMA foreign_key_check") == []
        assert await rows("SELECT * FROM guards") == []
        for index in ("chunks_fts", "conversation_fts"):
            await rows(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
        found = {}
        for note_id, text, version in await rows("SELECT note_id, content, version FROM notes"):
            found[note_id] = Kept(text, version)
        versions: dict[str, list[int]] = {note_id: [] for note_id in found}
        for note_id, number in await rows(
            "SELECT note_id, version FROM note_versions ORDER BY note_id, version"
        ):
            versions[note_id].append(number)
        passages: dict[str, list[str]] = {note_id: [] for note_id in found}
        for note_id, body in await rows("SELECT note_id, body FROM chunks ORDER BY position"):
            passages[note_id].append(body)
        settings = MemoryConfig(db_path="")
        for note_id, kept in found.items():
            assert versions[note_id] == list(range(1, kept.version))
            pieces = chunk(kept.text, settings.chunk_chars, settings.chunk_overlap)
            assert passages[note_id] == pieces
        chunk_ids = set(await rows("SELECT chunk_id FROM chunks"))
        assert set(await rows("SELECT id FROM chunks_fts_docsize")) == chunk_ids
        assert set(await rows("SELECT chunk_id FROM chunks_vec")) <= chunk_ids
        return found
    finally:
        await database.close()

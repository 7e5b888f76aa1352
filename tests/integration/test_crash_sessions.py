"""Killed while sessions are forgotten and vectors made anew: nothing is half-made."""

import asyncio
import multiprocessing
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guest.memory.memory import Memory
from tests.support.crashing import session_changes
from tests.support.crashing.killing import Line, Lines, end, times
from tests.support.memory.store import file_bytes, opened

ROUNDS = 40
ROUNDS_PER_FILE = 20
LONGEST_LIFE_S = 0.1
_SECRET = re.compile(r"q[0-9a-f]{16}")


@dataclass
class Expected:
    """What was acknowledged, and the one thing that was on its way when the end came."""

    sessions: dict[str, list[str]] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    version: int = 0
    in_flight: dict[str, Any] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def read(self, line: Line) -> None:
        match line:
            case {"will": _}:
                self.in_flight = line
                return
            case {"did": "talk", "id": session_id, "text": text}:
                self.sessions.setdefault(session_id, []).append(text)
            case {"did": "forget", "id": session_id}:
                self._forget(session_id)
            case {"did": "reembed", "version": version}:
                self.version = version
        self.counts[line["did"]] += 1
        self.in_flight = None

    def settle(self, found: dict[str, list[str]], versions: set[int], content: bytes) -> None:
        """Compare; what was on its way has happened as a whole, or not at all."""
        there = found.keys()
        found = {session_id: texts for session_id, texts in found.items() if texts}
        match self.in_flight:
            case {"will": "talk", "id": session_id, "text": text}:
                told = self.sessions.get(session_id, [])
                assert found.get(session_id, []) in (told, [*told, text])
                if session_id in found:
                    self.sessions[session_id] = found[session_id]
            case {"will": "forget", "id": session_id} if session_id not in there:
                self._forget(session_id)
            case {"will": "reembed", "version": version} if versions != {self.version}:
                self.version = version
        if self.in_flight:
            self.counts[f"killed during {self.in_flight['will']}"] += 1
        self.in_flight = None
        assert found == self.sessions
        assert versions <= {self.version}, "vectors of two versions are mixed"
        assert [each for each in self.forgotten if each.encode() in content] == []

    def _forget(self, session_id: str) -> None:
        texts = self.sessions.pop(session_id, [])
        self.forgotten |= {session_id, *_SECRET.findall(" ".join(texts))}


def test_sigkill_leaves_no_session_half_forgotten_and_no_vectors_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chance: random.Random
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([session_changes.__name__])
    expected, counts = Expected(), Counter[str]()
    started = time.monotonic()
    for number in range(ROUNDS):
        path = tmp_path / f"memory-{number // ROUNDS_PER_FILE}.db"
        if number % ROUNDS_PER_FILE == 0:
            expected = Expected(counts=counts)
        reader, writer = context.Pipe(duplex=False)
        child = context.Process(
            target=_child,
            args=(str(path), number, writer, list(expected.sessions), expected.version),
        )
        child.start()
        writer.close()
        lines = Lines(reader, expected.read)
        if chance.random() < 0.9:  # else it may die while opening
            assert lines.listen(60, times(chance.randrange(1, 25), "did"))
        lines.listen(chance.random() * LONGEST_LIFE_S)
        end(child)
        lines.close()
        expected.settle(*asyncio.run(_inspect(path)))
    with capsys.disabled():
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"\n{ROUNDS} kills in {time.monotonic() - started:.0f} s: {told}")
    assert counts["forget"] + counts["killed during forget"] > 0
    assert counts["reembed"] > 0


def _child(path: str, seed: int, writer: Any, sessions: list[str], version: int) -> None:
    session_changes.run(path, seed, writer.fileno(), sessions, version)


async def _inspect(path: Path) -> tuple[dict[str, list[str]], set[int], bytes]:
    """What a guest finds that opens the memory next, and every byte of the files then."""
    async with opened(path) as memory:
        assert await _rows(memory, "PRAGMA integrity_check") == [("ok",)]
        assert await _rows(memory, "PRAGMA foreign_key_check") == []
        assert await _rows(memory, "SELECT * FROM erasures") == []
        assert await _rows(memory, "SELECT * FROM sessions WHERE user_id <> 'alice'") == []
        await _rows(
            memory,
            "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('integrity-check', 1)",
        )
        passages = set(await _rows(memory, "SELECT chunk_id FROM chunks"))
        assert set(await _rows(memory, "SELECT id FROM conversation_fts_docsize")) == passages
        assert set(await _rows(memory, "SELECT chunk_id FROM chunks_vec")) <= passages
        found = {}
        for session in await memory.conversations.list(1000):
            events = await memory.conversations.history(session.session_id, 1000)
            found[session.session_id] = [event.text for event in events]
        blobs = await _rows(memory, "SELECT vector FROM chunks_vec WHERE model_id = 'fake-1'")
        versions = {int(np.frombuffer(blob, "<f4").argmax()) for (blob,) in blobs}
        return found, versions, file_bytes(path)


async def _rows(memory: Memory, sql: str) -> list[tuple[Any, ...]]:
    return list((await memory.store.database.execute(sql)).rows)

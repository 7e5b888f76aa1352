"""An import killed at random moments: acknowledged lines are there, none is half made."""

import json
import multiprocessing
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from guest.memory.indexing.chunking import passages_of
from tests.support.crashing import imports
from tests.support.crashing.killing import Line, Lines, times
from tests.support.examples import scaled
from tests.support.memory.exports import TIME, entities, event, exported, file, note, session
from tests.support.memory.store import opened, rows

ROUNDS = scaled(12)
PARTS = 16
LONGEST_MOMENT_S = 0.05


def _parts(chance: random.Random) -> list[list[dict[str, Any]]]:
    """Parts of a file: notes with versions, and a session with its events."""
    parts: list[list[dict[str, Any]]] = []
    for number in range(PARTS):
        name = f"{number}-{chance.getrandbits(32)}"
        words = " ".join(f"word{chance.randrange(99)}." for _ in range(150))
        kinds: list[dict[str, Any]] = [
            {"key": f"key {name}"},
            {"scope_session": f"s{name}"},
            {"superseded_by": f"n{name}-3", "superseded_at": TIME},
            {"access_count": 2, "accessed_at": TIME},
        ]
        lines = [
            note(f"n{name}-{n}", f"{name} {n} {words}", 1 + n % 4, **kinds[min(n, 3)])
            for n in range(8)
        ]
        said = [event(f"s{name}", n, f"{n} {words}") for n in range(1, 8)]
        parts.append([*lines, session(f"s{name}", turns=3), *said])
    return parts


async def test_sigkill_loses_no_acknowledged_line_and_leaves_none_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], chance: random.Random
) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([imports.__name__])
    counts = Counter[str]()
    for number in range(ROUNDS):
        path = tmp_path / f"{number}.db"
        parts = _parts(chance)
        done = _killed(context, path, [file(*part) for part in parts], chance)
        counts["acknowledged parts"] += done
        counts["killed before the end"] += done < PARTS
        counts["lines half made or lost"] += await _wrong(path, parts, done)
        counts["lines imported in the end"] += await _finished(path, parts)
    with capsys.disabled():
        print(f"\nimports killed {ROUNDS} times: {dict(counts)}")
    assert counts["lines half made or lost"] == 0
    assert counts["killed before the end"]
    assert counts["acknowledged parts"]


def _killed(context: Any, path: Path, parts: list[bytes], chance: random.Random) -> int:
    """How many parts were acknowledged before the end."""
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(str(path), parts, writer))
    child.start()
    writer.close()
    said: list[Line] = []
    lines = Lines(reader, said.append)
    assert lines.listen(60, times(chance.randrange(1, PARTS), "did"))
    lines.listen(chance.uniform(0, LONGEST_MOMENT_S))
    child.kill()
    child.join()
    assert child.exitcode in (-signal.SIGKILL, 0)
    lines.close()
    return len(said) - 1


def _child(path: str, parts: list[bytes], writer: Any) -> None:
    imports.run(path, parts, writer.fileno())


async def _wrong(path: Path, parts: list[list[dict[str, Any]]], done: int) -> int:
    """How many lines are there in another way than whole, or are missing though acknowledged."""
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    async with opened(path) as memory:
        found = {_name(line): line for line in map(json.loads, entities(await exported(memory)))}
    expected = {_name(line): line for part in parts for line in part}
    acknowledged = {_name(line) for part in parts[:done] for line in part}
    wrong: int = len(acknowledged - found.keys())
    wrong += sum(found[name] != expected.get(name) for name in found)
    passages: dict[Any, list[str]] = {}
    for *subject, body in rows(
        path, "SELECT note_id, session_id, sequence, body FROM chunks ORDER BY position"
    ):
        passages.setdefault(tuple(subject), []).append(body)
    for name, line in found.items():
        text = line.get("text") or line.get("current", {}).get("content")
        if text is not None:
            wrong += passages.pop(name, None) != passages_of(text)
    ids: set[int] = {row[0] for row in rows(path, "SELECT chunk_id FROM chunks")}
    for index in ("chunks_fts", "conversation_fts"):
        ids -= {row[0] for row in rows(path, f"SELECT id FROM {index}_docsize")}
    return wrong + len(passages) + len(ids)


async def _finished(path: Path, parts: list[list[dict[str, Any]]]) -> int:
    """Import all of it again: how many lines there are then."""
    async with opened(path) as memory:
        importer = memory.importer()
        for part in parts:
            report = await importer.feed(file(*part))
            assert report.problems == []
            assert report.updated == 0
        found = entities(await exported(memory))
    assert len(found) == sum(map(len, parts))
    return len(found)


def _name(line: dict[str, Any]) -> tuple[str | None, str | None, int | None]:
    return line.get("note_id"), line.get("session_id"), line.get("sequence")

"""A deletion finds the remains of a note without looking at every page, and misses none."""

import os
import random
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.scrubbing import Scrubber, page_gap
from tests.support.memory.forgetting import Writer
from tests.support.memory.store import ORIGIN, file_bytes, opened

PAGE = 4096
REMAINS = b"quixotry"


async def fill(memory: Memory, chance: random.Random, notes: int) -> list[str]:
    writer = Writer(chance)
    return [(await memory.save(writer.text()[0], [], ORIGIN)).note.note_id for _ in range(notes)]


def plant(path: Path) -> None:
    """Put remains into the unused space of a page in the middle of a file."""
    content = path.read_bytes()
    for number in range(len(content) // PAGE // 2, len(content) // PAGE):
        page = content[(number - 1) * PAGE : number * PAGE]
        start, end = page_gap(number, page)
        if end - start > len(REMAINS):
            with path.open("r+b") as file:
                file.seek((number - 1) * PAGE + start)
                file.write(REMAINS)
            return
    pytest.fail("no page has room: the test would see nothing")


def unclean(path: Path) -> list[int]:
    """The pages of a file whose unused space is not empty."""
    content = path.read_bytes()
    found = []
    for number in range(1, len(content) // PAGE + 1):
        page = content[(number - 1) * PAGE : number * PAGE]
        if page[slice(*page_gap(number, page))].strip(b"\0"):
            found.append(number)
    return found


async def plant_unseen(path: Path, chance: random.Random) -> int:
    """Plant it into a memory with notes, and leave no sign of it; returns when the file is said to
    have been written."""
    async with opened(path) as memory:
        await fill(memory, chance, 100)
    written = path.stat().st_mtime_ns
    plant(path)
    os.utime(path, ns=(written, written))
    return written


async def delete_one(path: Path) -> None:
    async with opened(path) as memory:
        await memory.delete((await memory.save("the garden", [], ORIGIN)).note.note_id)
        after = file_bytes(path)
    assert b"garden" not in after


async def test_pages_that_nobody_has_written_to_are_not_looked_at(
    path: Path, chance: random.Random
) -> None:
    """What was planted without a sign of it stays: that page was not read."""
    await plant_unseen(path, chance)
    await delete_one(path)
    assert REMAINS in file_bytes(path)


async def test_the_file_is_clean_whatever_is_written(path: Path, chance: random.Random) -> None:
    """Without any deletion that would look at every page."""
    writer = Writer(chance)
    for _ in range(4):
        async with opened(path) as memory:
            notes = await fill(memory, chance, 100)
            for note_id in notes[::3]:
                await memory.update(note_id, writer.text()[0], None, ORIGIN)
            assert unclean(path) == []
        assert unclean(path) == []


async def test_after_a_foreign_change_every_page_is_looked_at(
    path: Path, chance: random.Random
) -> None:
    async with opened(path) as memory:
        await fill(memory, chance, 100)
    plant(path)
    await delete_one(path)
    assert REMAINS not in file_bytes(path)


async def test_without_a_record_every_page_is_looked_at(path: Path, chance: random.Random) -> None:
    await plant_unseen(path, chance)
    path.with_name("memory.db.scrubbed").unlink()
    await delete_one(path)
    assert REMAINS not in file_bytes(path)


async def test_after_a_log_that_could_not_be_scrubbed_every_page_is_looked_at(
    path: Path, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is brought into the file anyway, so that it does not grow without end."""
    written = await plant_unseen(path, chance)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with opened(path) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(Scrubber, "scrub", full)
            await fill(memory, chance, 120)
            assert path.stat().st_mtime_ns != written, "the log was not brought into the file"
        await memory.delete((await memory.save("the garden", [], ORIGIN)).note.note_id)
        after = file_bytes(path)
    assert b"garden" not in after
    assert REMAINS not in after


@pytest.mark.parametrize("put", [Path.mkdir, os.mkfifo])
async def test_what_lies_in_the_place_of_the_record_is_no_obstacle(path: Path, put: object) -> None:
    assert callable(put)
    put(path.with_name("memory.db.scrubbed"))
    async with opened(path) as memory:
        await memory.delete((await memory.save("the garden", [], ORIGIN)).note.note_id)
        assert b"garden" not in path.read_bytes()


async def test_the_log_does_not_grow_without_end(path: Path) -> None:
    database = await LocalDatabase.open(path)
    try:
        await database.execute("CREATE TABLE t (x TEXT)")
        for _ in range(1500):
            await database.execute("INSERT INTO t VALUES (?)", ("words " * 300,))
        assert path.with_name("memory.db-wal").stat().st_size < 1100 * (PAGE + 24)
    finally:
        await database.close()


async def test_separators_change_and_the_index_is_not_rewritten(
    path: Path, chance: random.Random
) -> None:
    """The beginning of a deleted word goes from between two pages of the index."""
    segments = "SELECT DISTINCT segid FROM chunks_fts_idx WHERE length(term) > 1 ORDER BY segid"
    separators = "SELECT CAST(substr(term, 2) AS TEXT) FROM chunks_fts_idx WHERE length(term) > 1"
    changed = 0
    async with opened(path) as memory:
        database = memory.store.database
        notes = [
            (await memory.save(f"q{chance.randrange(10**12):012}x " * 5, [], ORIGIN)).note
            for _ in range(1200)
        ]
        await database.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('optimize')")
        before = (await database.execute(segments)).rows
        for (separator,) in (await database.execute(separators)).rows:
            for note in notes:
                if note.text.startswith(str(separator)):
                    await memory.delete(note.note_id)
                    changed += 1
            left = (await database.execute(separators)).rows
            assert not any(str(row[0]).startswith(str(separator)) for row in left)
        assert changed > 3, "the test would see nothing"
        assert (await database.execute(segments)).rows == before
        check = "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('integrity-check', 1)"
        await database.execute(check)
        alive = {note.note_id for note in (await memory.list(1000))[0]}
        found = next(note for note in notes if note.note_id in alive)
        assert (await memory.search(found.text.split()[0])).results


async def test_an_index_that_is_not_as_it_should_be_is_built_anew(path: Path) -> None:
    async with opened(path) as memory:
        database = memory.store.database
        note = (await memory.save("the garden", [], ORIGIN)).note
        await memory.save("it rains", [], ORIGIN)
        await database.execute(
            "INSERT INTO chunks_fts_idx (segid, term, pgno) SELECT segid, '0zebra', 1000 "
            "FROM chunks_fts_idx LIMIT 1"
        )
        await memory.delete(note.note_id)
        rows = (await database.execute("SELECT term FROM chunks_fts_idx")).rows
        assert all(row != (b"0zebra",) for row in rows)
        assert (await memory.search("rains")).results


@pytest.mark.long
async def test_nothing_is_left_in_a_large_memory(path: Path, chance: random.Random) -> None:
    """200,000 passages: what was deleted from among them is gone from every page."""
    secrets, notes = [], []
    async with opened(path, max_notes=1_000_000) as memory:
        for number in range(200_000):
            words = [f"{chance.choice('bcdfg')}{chance.randrange(30_000)}" for _ in range(20)]
            if number % 2000 == 0:
                secrets.append("".join(chance.choices("jqxzvwky", k=16)))
                words.insert(chance.randrange(20), secrets[-1])
            note = (await memory.save(" ".join(words), [], ORIGIN)).note
            if number % 2000 == 0:
                notes.append(note.note_id)
        content = file_bytes(path)
        assert all(secret.encode() in content for secret in secrets), "it would see nothing"
        for note_id in notes:
            await memory.delete(note_id)
        content = file_bytes(path)
    # Four letters stand there by chance: two row ids, one behind the other.
    assert [secret for secret in secrets if secret[:6].encode() in content] == []

"""What a copy of a memory has of its notes, page by page."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guest.memory.indexing.vector_store import VectorStore
from guest.memory.memory import Memory
from guest.memory.models import Details, Origin, User
from guest.memory.notes.quota import UNBOUNDED
from guest.memory.notes.repository import NoteRepository
from guest.memory.replica import replica, sync
from guest.memory.storage.base import Database
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"
READ = Origin("agent", "chat", "s9", "t9", "/shared/page.md", material=True)
NOTES = User(ALICE).notes


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    """A memory whose changes are counted, as on a server."""
    async with opened(tmp_path / "memory.db", FakeEmbedder()) as memory:
        await sync.count_changes(memory.store.database)
        yield memory


@pytest.fixture
async def copy(tmp_path: Path) -> AsyncIterator[Database]:
    database = await replica.open_copy(tmp_path / "replica.db", "", "elsewhere")
    yield database
    await database.close()


async def pulled(
    memory: Memory, copy: Database, progress: sync.Progress, *, ids: bool = False
) -> sync.Progress:
    """Fetch one page of everything."""
    page = await sync.pull(memory.store.database, NOTES, progress, kinds=3, ids=ids)
    return (await sync.put(copy, NOTES, progress, page)).progress


async def test_a_note_is_whole_but_for_how_often_it_was_recalled(
    memory: Memory, copy: Database
) -> None:
    details = Details("risk", 0.25, "the hose is old", 0.5, "s9")
    first = (await memory.save("the boiler may leak", ["house"], READ, details)).note
    await memory.update(first.note_id, "the boiler leaks", None, READ)
    await memory.keyed.write("plan", "call the plumber", "append", ORIGIN)
    await Memory(memory.store, BOB).save("nobody else's", [], ORIGIN)
    await memory.store.database.execute(
        "UPDATE notes SET superseded_by = 'note-x', superseded_reason = 'mended', "
        "superseded_at = 'then', access_count = 3, accessed_at = 'now' WHERE note_id = ?",
        (first.note_id,),
    )
    await pulled(memory, copy, sync.Progress())
    here = (await memory.list(10, include_superseded=True))[0]
    ids = [note.note_id for note in here]
    there = await NoteRepository(copy, VectorStore(copy), User(ALICE), UNBOUNDED).get_many(ids)
    assert there == [replace(note, access_count=0, accessed_at="") for note in here]
    assert here[1].access_count == 3
    counted = await copy.execute("SELECT namespace, notes FROM usage")
    assert counted.rows == ((NOTES, 2),)


async def test_the_next_page_is_asked_for_while_one_is_written(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await memory.save(f"fact {number}", [], ORIGIN)
    pull, put, asked, written = sync.pull, sync.put, [], []

    async def asking(*args: Any, **options: Any) -> sync.Page:
        asked.append(args)
        return await pull(*args, **options)

    async def writing(copy: Database, of: str, progress: sync.Progress, page: sync.Page) -> Any:
        written.append(page)
        async with asyncio.timeout(60):
            while not page.complete and len(asked) == len(written):
                await asyncio.sleep(0)
        return await put(copy, of, progress, page)

    monkeypatch.setattr(sync, "PAGE_ROWS", (2, 2, 2))
    monkeypatch.setattr(sync, "pull", asking)
    monkeypatch.setattr(sync, "put", writing)
    copied = await replica.Replica.open(
        tmp_path / "replica.db", "", "elsewhere", memory.store.database
    )
    try:
        await copied.sync([NOTES])
        assert (await copied.database.execute("SELECT COUNT(*) FROM notes")).rows == ((5,),)
    finally:
        await copied.close()
    assert len(asked) == len(written) > 3


async def test_a_name_may_be_another_notes_before_that_one_is_known_to_be_gone(
    memory: Memory, copy: Database
) -> None:
    """It was cleared and written anew after the copy had asked what is gone."""
    await memory.keyed.write("plan", "first", "replace", ORIGIN)
    await memory.save("a note after it, so that no row is used twice", [], ORIGIN)
    progress = await pulled(memory, copy, sync.Progress())
    await memory.keyed.clear("plan")
    note = await memory.keyed.write("plan", "second", "replace", ORIGIN)
    progress = await pulled(memory, copy, progress)
    await pulled(memory, copy, progress, ids=True)
    result = await copy.execute("SELECT note_id, content FROM notes WHERE key IS NOT NULL")
    assert result.rows == ((note.note_id, "second"),)

"""Every way to forget leaves no byte: cleared, undone, replaced, gone with its session."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from guest.memory.indexing.vector_store import REMOVED_AT_ONCE
from guest.memory.memory import Memory
from guest.memory.models import SCRATCHPAD, Details, NoteNotFound, Only, Origin, User
from guest.memory.notes.repository import VERSIONS_KEPT
from guest.memory.storage.local import LocalDatabase
from tests.support.memory.forgetting import KEY, bytes_of
from tests.support.memory.store import (
    ALONE,
    DIMENSIONS,
    ORIGIN,
    FakeEmbedder,
    embedded,
    file_bytes,
    opened,
    rows,
)

ALICE = "alice"
READ = Origin("agent", "cli", "s1", "t1", link="/shared/quixotry.md", material=True)


async def used(memory: Memory) -> tuple[int, int]:
    """What `usage` says, after it was compared with the notes and their versions."""
    counted = """
        SELECT SUM(note), SUM(length(CAST(content AS BLOB))) FROM (
            SELECT 1 AS note, content FROM notes UNION ALL SELECT 0, content FROM note_versions)
    """
    (truth,) = (await memory.store.database.execute(counted)).rows
    (said,) = (await memory.store.database.execute("SELECT notes, bytes FROM usage")).rows
    assert said == truth
    return said  # type: ignore[return-value]


async def forget_by_deleting(memory: Memory, note_id: str) -> None:
    await memory.delete(note_id)


async def forget_by_clearing(memory: Memory, note_id: str) -> None:
    assert await memory.keyed.clear("plan zephyrine")


async def forget_by_undoing(memory: Memory, note_id: str) -> None:
    """Back over the undone supersession and all versions, to before the first."""
    done: list[str] = []
    while not done or done[-1] != "forgotten":
        done.append((await memory.history.undo(note_id, may_forget=True)).done)
    assert done == ["current_again", "restored", "restored", "forgotten"]


async def tables_that_name(memory: Memory, note_id: str) -> set[str]:
    """The tables in which some column holds this id."""
    database = memory.store.database
    columns = await database.execute(
        "SELECT tables.name, columns.name FROM sqlite_schema AS tables "
        "JOIN pragma_table_info(tables.name) AS columns WHERE tables.type = 'table'"
    )
    found = set()
    for table, column in columns.rows:
        assert isinstance(table, str)
        assert isinstance(column, str)
        sql = f'SELECT COUNT(*) FROM "{table}" WHERE "{column}" = ?'
        if (await database.execute(sql, (note_id,))).rows[0][0]:
            found.add(table)
    return found


@pytest.mark.parametrize("key", ["", KEY])
@pytest.mark.parametrize("forget", [forget_by_deleting, forget_by_clearing, forget_by_undoing])
async def test_a_keyed_note_is_gone_with_all_that_was_known_of_it(
    path: Path, forget: Callable[[Memory, str], Awaitable[None]], key: str
) -> None:
    async with opened(path, FakeEmbedder(), encryption_key=key) as memory:
        kept = (await memory.save("the garden needs water", [], ORIGIN)).note
        before = await used(memory)
        name = "plan zephyrine"
        note = await memory.keyed.write(name, "about byzantium", "replace", READ)
        await memory.keyed.write(name, "then heliotrope", "append", ORIGIN)
        details = Details("decision", 0.5, "because of cochineal", 1.0)
        await memory.store.database.execute(
            "UPDATE notes SET rationale = ?, tags = '[\"tagquark\"]'", (details.rationale,)
        )
        await memory.keyed.write(name, "only obsidian", "replace", ORIGIN)
        await memory.typed.supersede(note.note_id, reason="it was xylophone")
        await memory.typed.supersede(kept.note_id, replacement_id=note.note_id)
        await memory.store.database.execute(
            "UPDATE notes SET rationale = '', tags = '[]' WHERE key IS NULL"
        )
        words = [b"zephyrin", b"byzantium", b"heliotrope", b"cochineal", b"tagquark"]
        words += [b"obsidian", b"xylophone", b"quixotry"]
        content = await bytes_of(memory, path, key)
        assert [word for word in words if word not in content] == [], "the test would see nothing"

        assert "notes" in await tables_that_name(memory, note.note_id)
        await forget(memory, note.note_id)

        content = await bytes_of(memory, path, key)
        assert [word for word in words if word in content] == []
        assert await tables_that_name(memory, note.note_id) <= {"receipts"}
        assert b"garden" in content
        assert await used(memory) == before
        assert await memory.keyed.activity(datetime.now(UTC).date()) == []
        with pytest.raises(NoteNotFound):
            await memory.notes.get(note.note_id)
        orphan = (await memory.notes.get(kept.note_id)).superseded
        assert orphan is not None
        assert orphan.by == ""
        assert (await memory.list(10))[0] == []


async def scoped(memory: Memory, session_id: str, text: str) -> str:
    origin = Origin("agent", "cli", session_id, "t1", link="/shared/quixotry.md", material=True)
    details = Details("decision", 0.5, f"why {text[:40]}", 1.0, session_id)
    return (await memory.save(text, ["tagquark"], origin, details)).note.note_id


async def replaced_behind_the_tools(memory: Memory, note_id: str, by: str) -> None:
    """A note that all sessions see, by one that a single session sees: no tool does that."""
    sql = "UPDATE notes SET superseded_by = ? WHERE note_id = ?"
    await memory.store.database.execute(sql, (by, note_id))


@pytest.mark.parametrize("key", ["", KEY])
async def test_a_session_takes_the_notes_with_it_that_only_it_sees(path: Path, key: str) -> None:
    async with opened(path, FakeEmbedder(), encryption_key=key) as memory:
        for session_id in ("gone", "kept"):
            await memory.conversations.create(session_id)
        everywhere = (await memory.save("the garden needs water", [], ORIGIN)).note
        beside = await scoped(memory, "kept", "roses in may")
        before = await used(memory)
        first = await scoped(memory, "gone", "code word zephyrine")
        await memory.update(first, "code word byzantium", None, ORIGIN)
        second = await scoped(memory, "gone", "about heliotrope " * 200)
        await memory.typed.supersede(
            first, reason="obsidian", replacement_id=second, session_id="gone"
        )
        replaced = (await memory.save("it rains", [], ORIGIN)).note
        await replaced_behind_the_tools(memory, replaced.note_id, second)
        await embedded(memory, (await memory.statistics()).passages)
        assert (await memory.search("heliotrope", only=Only("gone"))).results
        words = [b"zephyrin", b"byzantium", b"heliotrope", b"obsidian", b"tagquark", b"quixotry"]
        content = await bytes_of(memory, path, key)
        assert [word for word in words if word not in content] == [], "the test would see nothing"
        await memory.update(beside, "roses in may", [], ORIGIN)
        await memory.update(beside, "roses in june", [], ORIGIN)

        await memory.sessions.forget("gone")

        await memory.delete(beside)
        content = await bytes_of(memory, path, key)
        assert [word for word in words if word in content] == []
        for note_id in (first, second):
            assert await tables_that_name(memory, note_id) <= {"receipts"}
        assert (await memory.notes.get(everywhere.note_id)).superseded is None
        orphan = (await memory.notes.get(replaced.note_id)).superseded
        assert orphan is not None
        assert orphan.by == ""
        await memory.delete(replaced.note_id)
        assert await used(memory) == (before[0] - 1, before[1] - len("roses in may"))
        for only in (Only("gone"), Only("gone", superseded=True), Only()):
            found = await memory.search("heliotrope byzantium", only=only)
            assert [hit.note_id for hit in found.results if hit.note_id != everywhere.note_id] == []
        statistics = await memory.statistics()
        assert statistics.passages == statistics.passages_embedded == 1
    if not key:
        assert rows(path, "SELECT COUNT(*) FROM note_versions") == [(0,)]
        assert rows(path, "PRAGMA foreign_key_check") == []


async def test_an_old_session_takes_its_notes_with_it(path: Path) -> None:
    async with opened(path, retention_days=30) as memory:
        await memory.conversations.create("old")
        await scoped(memory, "old", "code word zephyrine")
        await memory.store.database.execute(
            "UPDATE sessions SET updated_at = '2020-01-01T00:00:00.0Z'"
        )
        assert await memory.retention().look() == 1
        content = file_bytes(path)
        assert [word for word in (b"zeph", b"tagq", b"quix") if word in content] == []
        assert (await memory.store.database.execute("SELECT notes, bytes FROM usage")).rows == (
            (0, 0),
        )


@pytest.mark.parametrize("delay", [0, 30])
async def test_what_a_scratchpad_said_long_ago_is_gone(path: Path, delay: float) -> None:
    """A while later, or, where the agent ends before that, at the next start."""
    steps = [f"step {number}" for number in range(10, 9 + VERSIONS_KEPT)]
    async with opened(path, erase_after_s=delay) as memory:
        for text in ("zephyrine", "byzantium", *steps):
            await memory.keyed.write(SCRATCHPAD, text, "replace", READ)
        assert b"zephyrine" in file_bytes(path)
        await memory.keyed.write(SCRATCHPAD, "and on", "append", ORIGIN)
        async with asyncio.timeout(60):
            while (
                not delay and (await memory.store.database.execute("SELECT 1 FROM erasures")).rows
            ):
                await asyncio.sleep(0.005)
        texts = [entry.text for entry in (await memory.history.changes())[0]]
        assert texts == [f"{steps[-1]}\nand on", *steps[::-1], "byzantium"]
        assert await used(memory) == (1, sum(map(len, texts)))
    async with opened(path):
        assert b"byzantium" in file_bytes(path)
        assert b"zephyrine" not in file_bytes(path)


async def test_many_notes_of_a_session_go_in_slices_and_are_hidden_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted between two slices: nobody finds the rest, and the next start removes it."""
    executed = LocalDatabase.execute
    left = 2

    async def failing(self: LocalDatabase, sql: str, arguments: object = ()) -> object:
        nonlocal left
        left -= "DELETE FROM chunks" in sql and "scope_session" in sql
        if not left:
            raise OSError("cut off")
        return await executed(self, sql, arguments)  # type: ignore[arg-type]

    async with opened(path, FakeEmbedder()) as memory:
        await memory.conversations.create("gone")
        kept = (await memory.save("kept", [], ORIGIN)).note
        for number in range(2 * REMOVED_AT_ONCE):
            await scoped(memory, "gone", f"zephyrine {number}")
        with monkeypatch.context() as patched:
            patched.setattr(LocalDatabase, "execute", failing)
            with pytest.raises(OSError, match="cut off"):
                await memory.sessions.forget("gone")
        assert [note.note_id for note in (await memory.list(30))[0]] == [kept.note_id]
        for only in (Only(), Only("gone")):
            hits = (await memory.search("zephyrine", only=only)).results
            assert [hit.text for hit in hits if "zephyrine" in hit.text] == []
        assert (await memory.typed.recall(limit=50, session_id="gone")).notes == (kept,)
        assert b"zephyrine" in file_bytes(path)
    async with opened(path) as memory:
        assert b"zephyrine" not in file_bytes(path)
        assert await used(memory) == (1, 4)
    assert rows(path, "SELECT COUNT(*) FROM chunks") == [(1,)]


async def test_notes_go_while_others_are_written(path: Path) -> None:
    """What is resident for searching stays in step while sessions and keyed notes go."""
    async with opened(path, FakeEmbedder()) as memory:
        await memory.save("the garden", [], ALONE)
        await embedded(memory, 1)
        assert (await memory.search("garden")).results

        async def one(number: int) -> None:
            session_id = f"s{number}"
            await memory.conversations.create(session_id)
            await scoped(memory, session_id, f"zephyrine {number}")
            await memory.keyed.write(session_id, f"zephyrine {number}", "append", READ)
            await memory.save(f"roses {number}", [], ORIGIN)
            await asyncio.gather(memory.sessions.forget(session_id), memory.keyed.clear(session_id))

        await asyncio.gather(*map(one, range(8)))
        await embedded(memory, 9)
        found = await memory.search("roses zephyrine", top_k=20)
        assert {hit.text for hit in found.results} == {f"roses {number}" for number in range(8)}
        assert found.warnings == ()
        resident, missing = await memory.store.vectors.snapshot(
            User(ALICE).notes, "fake-1", DIMENSIONS
        )
        assert (len(resident.ids) - len(resident.dead), missing) == (9, 0)
        assert b"zephyrine" not in file_bytes(path)
        assert (await used(memory))[0] == 9
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]

"""An export leaves out what is too long for a line, and says so; all the rest is there. A copy from
one database to another leaves nothing out."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from wire.limits import EXPORT_LINE_MAX_BYTES

from guest.memory.memory import Memory
from guest.memory.models import User
from guest.memory.transfer.move import copy_user
from tests.support.memory.exports import TIME
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

LARGE = "x" * (EXPORT_LINE_MAX_BYTES + 1)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db", FakeEmbedder()) as memory:
        await memory.save("tea at four", (), ORIGIN)
        for session in ("s1", "s2"):
            await memory.conversations.create(session, "a title", "test")
            for text in ("hello", "and now?"):
                await memory.conversations.append(
                    session, turn_id="t1", role="user", text=text, payload="[]"
                )
        yield memory


async def export(memory: Memory) -> tuple[bytes, list[str], int]:
    """The lines, what was left out, and how far the last part says that the export has come."""
    parts = [part async for part in memory.export()]
    left_out = [each for part in parts for each in part.left_out]
    return b"".join(part.lines for part in parts), left_out, parts[-1].entries


async def imported(tmp_path: Path, lines: bytes) -> int:
    """How many entries an import makes of the lines."""
    async with opened(tmp_path / "other.db", FakeEmbedder()) as other:
        report = await other.importer().feed(lines)
        assert report.problems == []
        return report.created


async def test_a_payload_that_is_stored_too_large(memory: Memory, tmp_path: Path) -> None:
    await memory.store.database.execute(
        "UPDATE conversation_events SET payload = ? WHERE session_id = 's1' AND sequence = 1",
        (LARGE,),
    )
    lines, left_out, entries = await export(memory)
    (told,) = left_out
    assert told.startswith("event 1 of session s1: its line would have 83")
    assert await imported(tmp_path, lines) == entries == 6


async def test_a_session_that_is_too_large_goes_with_its_events(
    memory: Memory, tmp_path: Path
) -> None:
    await memory.store.database.execute(
        "INSERT INTO session_state (session_id, name, value, updated_at) VALUES (?, ?, ?, ?)",
        ("s1", "summary", LARGE, TIME),
    )
    lines, left_out, entries = await export(memory)
    (told,) = left_out
    assert told.startswith("session s1 with its events: ")
    assert await imported(tmp_path, lines) == entries == 4


@pytest.mark.parametrize(
    ("table", "what"), [("notes", "note {}"), ("note_versions", "earlier versions of note {}")]
)
async def test_a_note_that_is_too_large_goes_with_its_history(
    memory: Memory, tmp_path: Path, table: str, what: str
) -> None:
    """Where only earlier versions are too large, the note itself stays."""
    note = (await memory.save("note 1", (), ORIGIN)).note
    for number in range(2, 40):
        await memory.update(note.note_id, f"note {number}", None, ORIGIN)
    await memory.save("the last", (), ORIGIN)
    await memory.store.database.execute(
        f"UPDATE {table} SET content = ? WHERE note_id = ? AND version IN (1, 39)",
        (LARGE, note.note_id),
    )
    lines, left_out, entries = await export(memory)
    (told,) = left_out
    assert told.startswith(what.format(note.note_id) + ": its line would have 83")
    assert b"the last" in lines
    assert (b"note 38" in lines) == (b"note 39" in lines) == (table != "notes")
    assert await imported(tmp_path, lines) == entries == (8 if table == "notes" else 9)


async def test_a_copy_has_what_is_too_large_for_an_export(memory: Memory, tmp_path: Path) -> None:
    await memory.store.database.execute(
        "UPDATE conversation_events SET payload = ? WHERE session_id = 's1' AND sequence = 1",
        (LARGE,),
    )
    select = "SELECT session_id, sequence, payload FROM conversation_events ORDER BY 1, 2"
    stored = await memory.store.database.execute(select)
    async with opened(tmp_path / "other.db", FakeEmbedder()) as other:
        await copy_user(memory.store.database, other.store.database, User("alice"))
        assert await other.store.database.execute(select) == stored

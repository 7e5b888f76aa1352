"""What a memory holds before a fault: one of the first version, or an export to be read in."""

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from guest.memory.memory import Memory
from guest.memory.models import Details
from guest.memory.storage.base import Statement, Value
from guest.memory.storage.migrations import MIGRATIONS, migrate
from tests.faults.ledger import Found, Kept
from tests.faults.stores import LocalPlace, Place, RemotePlace
from tests.faults.worker import USER
from tests.support import sqld
from tests.unit.memory_support import ORIGIN, opened

_FIRST: Final = Path(__file__).parents[1] / "fixtures/schema/v1.db"
_TABLES: Final = (
    "notes",
    "note_versions",
    "sessions",
    "session_state",
    "conversation_events",
    "chunks",
    "chunks_vec",
)


def first_version(place: Place) -> Found:
    """Make `place` a memory of schema version 1, and say what is in it."""
    match place:
        case LocalPlace():
            path = Path(place.config.db_path)
            shutil.copy(_FIRST, path)
            return _read(path)
        case RemotePlace():
            asyncio.run(_replay(place.server.url()))
            return _read(_FIRST)
    raise TypeError(place)


def _read(path: Path) -> Found:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as old:
        before: dict[str, tuple[str, ...]] = {}
        for note_id, text in old.execute(
            "SELECT note_id, content FROM note_versions ORDER BY note_id, version"
        ):
            before[note_id] = (*before.get(note_id, ()), text)
        notes = {
            note_id: Kept(text, version, before.get(note_id, ()), kind, key, "", superseded)
            for note_id, text, version, kind, key, superseded in old.execute(
                "SELECT note_id, content, version, type, IFNULL(key, ''), superseded_by FROM notes"
            )
        }
        sessions: dict[str, tuple[str, ...]] = {}
        for session_id, text in old.execute(
            "SELECT session_id, text FROM conversation_events ORDER BY session_id, sequence"
        ):
            sessions[session_id] = (*sessions.get(session_id, ()), text)
    return Found(notes, sessions)


async def _replay(url: str) -> None:
    """The rows of the old file on a server, by the statements of that time."""
    statements = []
    with closing(sqlite3.connect(f"file:{_FIRST}?immutable=1", uri=True)) as old:
        for table in _TABLES:
            rows: list[tuple[Value, ...]] = old.execute(f"SELECT * FROM {table}").fetchall()
            statements += [
                Statement(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
                for row in rows
            ]
    async with sqld.connected(url) as database:
        await migrate(database, MIGRATIONS[:1])
        await database.batch(statements)


def exported(notes: int, sessions: int) -> tuple[bytes, Found]:
    """An export of a memory with so many notes, each with one earlier version, and sessions
    of three events; and what it holds."""
    return asyncio.run(_exported(notes, sessions))


async def _every_kind(
    memory: Memory, number: int, old: str, text: str, last: str
) -> tuple[str, Kept]:
    """A note with one version before: plain, named, seen by one session, or replaced."""
    kind = number % 8
    if kind == 1:
        await memory.keyed.write(USER, f"plan {number}", old, "replace", ORIGIN)
        note = await memory.keyed.write(USER, f"plan {number}", text, "append", ORIGIN)
        return note.note_id, Kept(f"{old}\n{text}", 2, (old,), key=f"plan {number}")
    scope = "imported-0" if kind == 2 else ""
    details = Details(type="risk", scope_session=scope)
    note = (await memory.save(USER, old, [], ORIGIN, details)).note
    await memory.update(USER, note.note_id, text, None, ORIGIN)
    kept = Kept(text, 2, (old,), type="risk", scope=scope)
    if kind == 4:
        await memory.typed.supersede(USER, note.note_id, replacement_id=last)
        kept = replace(kept, superseded=last)
    return note.note_id, kept


async def _exported(notes: int, sessions: int) -> tuple[bytes, Found]:
    found, last = Found({}, {}), ""
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        async with opened(Path(scratch) / "memory.db") as memory:
            for number in range(notes):
                old, text = f"Old {number}. words", f"Imported {number}. "
                text = (text + "Some more words. " * (number % 90)).strip()
                note_id, kept = await _every_kind(memory, number, old, text, last)
                found.notes[note_id] = kept
                last = note_id
            for number in range(sessions):
                session_id = f"imported-{number}"
                await memory.conversations.create(USER, session_id)
                texts = tuple(f"Said {number} and {event}." for event in range(3))
                for event, text in enumerate(texts):
                    await memory.conversations.append(
                        USER, session_id, turn_id=f"{event}", role="user", text=text, payload="[]"
                    )
                found.sessions[session_id] = texts
            lines = b"".join([part.lines async for part in memory.export(USER)])
    return lines, found

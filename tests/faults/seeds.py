"""What a memory holds before a fault: notes of every kind and sessions, or an export of them."""

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path

from guest.memory.memory import Memory
from guest.memory.models import Details
from tests.faults.ledger import Found
from tests.faults.stores import Place
from tests.faults.worker import USER
from tests.support.memory.model import NoteModel
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened
from tests.support.scratch import SCRATCH


def filled(place: Place, notes: int, sessions: int) -> Found:
    """Fill a new `place` as `exported` does; what it holds then."""

    async def fill() -> Found:
        memory = await Memory.open(place.config, FakeEmbedder(), USER)
        try:
            return await _fill(memory, notes, sessions)
        finally:
            await memory.close()

    return asyncio.run(fill())


def exported(notes: int, sessions: int) -> tuple[bytes, Found]:
    """An export of a memory with so many notes, each with one earlier version, and sessions
    of three events; and what it holds."""
    return asyncio.run(_exported(notes, sessions))


async def _every_kind(
    memory: Memory, number: int, old: str, text: str, last: str
) -> tuple[str, NoteModel]:
    """A note with one version before: plain, named, seen by one session, or replaced."""
    kind = number % 8
    if kind == 1:
        await memory.keyed.write(f"plan {number}", old, "replace", ORIGIN)
        note = await memory.keyed.write(f"plan {number}", text, "append", ORIGIN)
        return note.note_id, NoteModel(f"{old}\n{text}", 2, (old,), key=f"plan {number}")
    scope = "imported-0" if kind == 2 else ""
    details = Details(type="risk", scope_session=scope)
    note = (await memory.save(old, [], ORIGIN, details)).note
    await memory.update(note.note_id, text, None, ORIGIN)
    model = NoteModel(text, 2, (old,), type="risk", scope=scope)
    if kind == 4:
        await memory.typed.supersede(note.note_id, replacement_id=last)
        model = replace(model, superseded_by=last)
    return note.note_id, model


async def _fill(memory: Memory, notes: int, sessions: int) -> Found:
    found, last = Found({}, {}), ""
    for number in range(notes):
        old, text = f"Old {number}. words", f"Imported {number}. "
        text = (text + "Some more words. " * (number % 90)).strip()
        note_id, model = await _every_kind(memory, number, old, text, last)
        found.notes[note_id] = model
        last = note_id
    for number in range(sessions):
        session_id = f"imported-{number}"
        await memory.conversations.create(session_id)
        texts = tuple(f"Said {number} and {event}." for event in range(3))
        for event, text in enumerate(texts):
            await memory.conversations.append(
                session_id, turn_id=f"{event}", role="user", text=text, payload="[]"
            )
        found.sessions[session_id] = texts
    return found


async def _exported(notes: int, sessions: int) -> tuple[bytes, Found]:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        async with opened(Path(scratch) / "memory.db") as memory:
            found = await _fill(memory, notes, sessions)
            lines = b"".join([part.lines async for part in memory.export()])
    return lines, found

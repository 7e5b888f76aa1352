"""Every family's operations on one file, in any order, against dictionaries; and at any
moment an export that is read into a new store is the same memory."""

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.models import (
    Details,
    MemoryConfig,
    NoteNotFound,
    NoteType,
    Only,
    SessionNotFound,
    SupersedeRefused,
    User,
)
from guest.memory.notes.history import UndoRefused
from tests.support.examples import examples
from tests.support.memory.exports import entities, exported
from tests.support.memory.model import MemoryModel, NoteModel
from tests.support.memory.store import ALONE
from tests.support.scratch import SCRATCH

USER = "alice"
WORDS = ("tea", "quartz", "violin")
SESSIONS = ("s0", "s1")
KEYS = ("plan", "list")
TYPES: tuple[NoteType, ...] = ("fact", "decision", "risk")

TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=2).map(" ".join)
GONE, REPLACING = 6, 7
WHICH = st.integers(0, 7)
SCOPE = st.sampled_from(("", "", *SESSIONS))
KEY = st.sampled_from(KEYS)
STEP = st.one_of(
    st.tuples(st.just("save"), TEXT),
    st.tuples(st.just("remember"), TEXT, st.sampled_from(TYPES), SCOPE),
    st.tuples(st.just("remember"), TEXT, st.sampled_from(TYPES), SCOPE),
    st.tuples(st.just("update"), WHICH, TEXT),
    st.tuples(st.just("delete"), WHICH),
    st.tuples(st.just("write"), KEY, TEXT, st.sampled_from(("replace", "append"))),
    st.tuples(st.just("clear"), KEY),
    st.tuples(st.just("supersede"), WHICH, WHICH, SCOPE),
    st.tuples(st.just("supersede"), WHICH, st.none() | WHICH, SCOPE),
    st.tuples(st.just("swap"), WHICH, WHICH),
    st.tuples(st.just("undo"), WHICH, st.booleans()),
    st.tuples(st.just("undo"), WHICH, st.booleans()),
    st.tuples(st.just("forget"), st.sampled_from(SESSIONS)),
    st.tuples(st.just("search"), TEXT, SCOPE),
    st.tuples(st.just("recall"), st.sampled_from(TYPES), SCOPE, st.booleans()),
    st.tuples(st.just("move")),
    st.tuples(st.just("again")),
)
FIRST: tuple[tuple[Any, ...], ...] = (
    ("save", "tea"),
    ("save", "quartz"),
    ("remember", "violin", "risk", "s0"),
    ("write", "plan", "tea", "append"),
)
STEPS = st.lists(STEP, min_size=20, max_size=50)
UNDONE_TWICE = [
    ("save", "tea tea"),
    ("update", 0, "quartz"),
    ("undo", 0, True),
    ("update", 0, "violin"),
    ("undo", 0, True),
]
"""The second undo goes back to what the first one restored, not to what it undid."""
CIRCLE = [
    *(("save", "tea violin"), ("save", "quartz violin")),
    ("supersede", 0, 1, ""),
    ("update", 0, "tea tea"),
    ("supersede", 1, 0, ""),
    *(("undo", 0, True), ("undo", 1, True), ("undo", 0, True)),
]
"""The first undo would close a circle of notes that replace each other."""


@dataclass
class World:
    """A memory, and what should be in it."""

    directory: Path
    model: MemoryModel = field(default_factory=MemoryModel)
    issued: list[str] = field(default_factory=list)
    stores: Any = field(default_factory=itertools.count)

    async def open(self) -> None:
        path = self.directory / f"memory{next(self.stores)}.db"
        self.memory = await Memory.open(MemoryConfig(db_path=str(path)), None, USER)

    async def step(self, action: tuple[Any, ...]) -> None:
        memory, model = self.memory, self.model
        match action:
            case "save", text:
                await self._save(text, Details())
            case "remember", text, kind, scope:
                if scope and scope not in model.sessions:
                    await memory.conversations.create(scope)
                    model.sessions[scope] = ()
                await self._save(text, Details(type=kind, scope_session=scope))
            case "update", which, text:
                note_id = self._note(which)
                try:
                    await memory.update(note_id, text, None, ALONE)
                    model.notes[note_id] = model.notes[note_id].updated(text)
                except NoteNotFound:
                    assert note_id not in model.notes
            case "delete", which:
                note_id = self._note(which)
                try:
                    await memory.delete(note_id)
                    model.remove(note_id)
                except NoteNotFound:
                    assert note_id not in model.notes
            case "write", key, text, mode:
                await self._write(key, text, mode)
            case "clear", key:
                keyed = model.keyed(key)
                assert await memory.keyed.clear(key) == (keyed is not None)
                if keyed is not None:
                    model.remove(keyed)
            case "supersede", which, by, scope:
                replacement = "" if by is None else self._note(by)
                await self._supersede(self._note(which), replacement, scope)
            case "swap", which, other:
                await self._swap(self._note(which), self._note(other))
            case "undo", which, may_forget:
                await self._undo(self._note(which), may_forget)
            case "forget", session_id:
                try:
                    await memory.sessions.forget(session_id)
                except SessionNotFound:
                    assert session_id not in model.sessions
                model.forget_session(session_id)
            case "search", query, scope:
                found = await memory.search(query, top_k=50, only=Only(scope))
                assert {hit.note_id: hit.text for hit in found.results} == {
                    note_id: note.text
                    for note_id, note in model.visible_to(scope).items()
                    if note.superseded_by is None and set(query.split()) & set(note.text.split())
                }
            case "recall", kind, scope, superseded:
                recalled = await memory.typed.recall(
                    types=[kind],
                    limit=50,
                    include_superseded=superseded,
                    session_id=scope,
                )
                assert {note.note_id for note in recalled.notes} == {
                    note_id
                    for note_id, note in model.visible_to(scope).items()
                    if note.type == kind and (superseded or note.superseded_by is None)
                }
            case ("again",):
                before = await exported(memory)
                report = await memory.importer().feed(before)
                assert (report.created, report.updated, report.problems) == (0, 0, [])
                assert entities(await exported(memory)) == entities(before)
            case ("move",):
                await self._move()

    async def _save(self, text: str, details: Details) -> None:
        duplicates = self.model.duplicates(text, details.scope_session)
        outcome = await self.memory.save(text, [], ALONE, details)
        assert outcome.created == (not duplicates)
        note_id = outcome.note.note_id
        if duplicates:
            assert note_id in duplicates
        else:
            note = NoteModel(text, type=details.type, scope=details.scope_session)
            self.model.notes[note_id] = note
            self.issued.append(note_id)

    async def _write(self, key: str, text: str, mode: Any) -> None:
        note_id = self.model.keyed(key)
        note = await self.memory.keyed.write(key, text, mode, ALONE)
        if note_id is None:
            self.issued.append(note.note_id)
            self.model.notes[note.note_id] = NoteModel(text, key=key)
            return
        written = self.model.notes[note_id].written(text, mode)
        self.model.notes[note_id] = written
        assert (note.note_id, note.text) == (note_id, written.text)

    async def _supersede(self, note_id: str, by: str, scope: str) -> None:
        error = self.model.supersede_error(note_id, by, scope)
        with pytest.raises(error) if error else nullcontext():
            await self.memory.typed.supersede(note_id, replacement_id=by, session_id=scope)
        if error is None:
            self.model.supersede(note_id, by)

    async def _swap(self, one: str, other: str) -> None:
        """Each is to replace the other, at the same moment."""
        supersede = self.memory.typed.supersede
        pairs = (one, other), (other, one)
        outcomes = await asyncio.gather(
            *(supersede(note_id, replacement_id=by) for note_id, by in pairs),
            return_exceptions=True,
        )
        for (note_id, by), outcome in zip(pairs, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, SupersedeRefused | NoteNotFound)
            else:
                self.model.supersede(note_id, by)

    async def _undo(self, note_id: str, may_forget: bool) -> None:
        note = self.model.notes.get(note_id)
        try:
            undone = await self.memory.history.undo(note_id, may_forget=may_forget)
        except NoteNotFound:
            assert note is None
        except UndoRefused:
            assert note is not None
            if not self.model.closes_circle(note_id):
                assert note.undone() is None
                assert not may_forget
        else:
            assert undone.done == self.model.undo(note_id)

    async def _move(self) -> None:
        """Go on with a new store that has read what the one before has written."""
        before = await exported(self.memory)
        await self.memory.close()
        await self.open()
        report = await self.memory.importer().feed(before)
        assert (report.updated, report.unchanged, report.problems) == (0, 0, [])
        assert entities(await exported(self.memory)) == entities(before)

    async def check(self) -> None:
        listed, _ = await self.memory.list(1000, include_superseded=True)
        self.model.check_listed(listed)
        for note_id in self.model.notes:
            self.model.chain(note_id)
        changes, _ = await self.memory.history.changes(limit=1000)
        assert {(one.note_id, one.version, one.change == "supersede") for one in changes} == {
            (note_id, version, False)
            for note_id, note in self.model.notes.items()
            for version in range(1, note.version + 1)
        } | {
            (note_id, note.version, True)
            for note_id, note in self.model.notes.items()
            if note.superseded_by is not None
        }
        used = await self.memory.store.database.execute(
            "SELECT notes, bytes FROM usage WHERE namespace = ?", (User(USER).notes,)
        )
        texts = [text for note in self.model.notes.values() for text in note.texts]
        size = sum(len(text.encode()) for text in texts)
        assert used.rows in ((), ((len(self.model.notes), size),))
        assert used.rows or not texts
        sessions = await self.memory.conversations.list()
        assert {session.session_id for session in sessions} == self.model.sessions.keys()

    def _note(self, which: int) -> str:
        """One of the latest notes that there are, one that has replaced another, or the last
        one that is gone."""
        notes = self.model.notes
        gone = [note_id for note_id in self.issued if note_id not in notes]
        living = list(notes)
        if which == REPLACING:
            replacing = {note.superseded_by for note in notes.values()}
            living = [note_id for note_id in living if note_id in replacing] or living
        if which == GONE or not living:
            return gone[-1] if gone else "note-unknown"
        return living[-1 - which % len(living)]


async def play(steps: Sequence[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        world = World(Path(scratch))
        await world.open()
        try:
            for action in (*FIRST, *steps):
                await world.step(action)
            await world.check()
            await world.step(("move",))
            await world.check()
        finally:
            await world.memory.close()


@examples(40)
@given(STEPS)
@example(UNDONE_TWICE)
@example(CIRCLE)
def test_every_kind_of_memory_is_what_dictionaries_would_be(
    steps: Sequence[tuple[Any, ...]],
) -> None:
    asyncio.run(play(steps))

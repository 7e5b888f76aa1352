"""Superseding and undoing against a model: whatever is done in whatever order, also at the
same moment, notes never replace each other in a circle, and every change is accounted for."""

import asyncio
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, NoteNotFound, SupersedeRefused
from guest.memory.notes.history import UndoRefused
from tests.support.examples import examples
from tests.support.memory.model import MemoryModel, NoteModel
from tests.support.memory.store import ORIGIN
from tests.support.scratch import SCRATCH

USER = "alice"
WHICH = st.integers(0, 4)
STEP = st.one_of(
    st.tuples(st.just("save")),
    st.tuples(st.just("supersede"), WHICH, WHICH),
    st.tuples(st.just("supersede"), WHICH, WHICH),
    st.tuples(st.just("swap"), WHICH, WHICH),
    st.tuples(st.just("forget"), WHICH),
    st.tuples(st.just("update"), WHICH),
    st.tuples(st.just("undo"), WHICH, st.booleans()),
    st.tuples(st.just("undo"), WHICH, st.booleans()),
)


@dataclass
class World:
    memory: Memory
    issued: list[str] = field(default_factory=list)
    model: MemoryModel = field(default_factory=MemoryModel)
    said: int = 0

    async def step(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("save",):
                text = self._text()
                note_id = (await self.memory.save(text, (), ORIGIN)).note.note_id
                self.issued.append(note_id)
                self.model.notes[note_id] = NoteModel(text)
            case "supersede", which, other:
                await self._supersede(self._note(which), self._note(other))
            case "forget", which:
                await self._supersede(self._note(which), "")
            case "swap", which, other:
                await self._swap(self._note(which), self._note(other))
            case "update", which:
                note_id, text = self._note(which), self._text()
                try:
                    await self.memory.update(note_id, text, None, ORIGIN)
                except NoteNotFound:
                    assert note_id not in self.model.notes
                else:
                    self.model.notes[note_id] = self.model.notes[note_id].updated(text)
            case "undo", which, may_forget:
                await self._undo(self._note(which), may_forget)

    async def _supersede(self, note_id: str, by: str) -> None:
        error = self.model.supersede_error(note_id, by)
        with pytest.raises(error) if error else nullcontext():
            await self.memory.typed.supersede(note_id, replacement_id=by)
        if error is None:
            self.model.supersede(note_id, by)

    async def _swap(self, one: str, other: str) -> None:
        """Each is to replace the other, at the same moment."""
        outcomes = await asyncio.gather(
            self.memory.typed.supersede(one, replacement_id=other),
            self.memory.typed.supersede(other, replacement_id=one),
            return_exceptions=True,
        )
        for note_id, by, outcome in ((one, other, outcomes[0]), (other, one, outcomes[1])):
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

    async def check(self) -> None:
        """Memory holds what the model does, and every chain has an end."""
        listed, _ = await self.memory.list(100, include_superseded=True)
        self.model.check_listed(listed)
        for note_id in self.model.notes:
            self.model.chain(note_id)
        changes, _ = await self.memory.history.changes(limit=1000)
        assert {
            (change.note_id, change.version, change.change == "supersede") for change in changes
        } == {
            (note_id, version, False)
            for note_id, note in self.model.notes.items()
            for version in range(1, note.version + 1)
        } | {
            (note_id, note.version, True)
            for note_id, note in self.model.notes.items()
            if note.superseded_by is not None
        }

    def _note(self, which: int) -> str:
        return self.issued[which % len(self.issued)] if self.issued else "note-unknown"

    def _text(self) -> str:
        self.said += 1
        return f"tea number {self.said}"


@examples(25)
@given(st.lists(STEP, min_size=15, max_size=40))
@example([("save",), ("update", 3), ("undo", 3, True), ("update", 3), ("undo", 3, True)])
@example([("supersede", 0, 1), ("update", 0), ("supersede", 1, 0), ("undo", 0, True)])
@example([("supersede", 0, 1), ("update", 0), ("undo", 1, True), ("undo", 0, True)])
def test_notes_never_replace_each_other_in_a_circle(steps: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            memory = await Memory.open(MemoryConfig(str(Path(scratch, "memory.db"))), None, USER)
            try:
                world = World(memory)
                for action in [("save",), ("save",), ("save",), *steps]:
                    await world.step(action)
                await world.check()
            finally:
                await memory.close()

    asyncio.run(play())

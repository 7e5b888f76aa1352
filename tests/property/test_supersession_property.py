"""Superseding and undoing against a model: whatever is done in whatever order, also at the
same moment, notes never replace each other in a circle, and every change is accounted for."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, NoteNotFound
from guest.memory.notes.history import UndoRefused
from guest.memory.notes.supersession import SupersedeRefused
from tests.unit.memory_support import ORIGIN

DEPTH = settings().max_examples / 100
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
class Kept:
    """What each version said, and which one it restored; and what a note is superseded by."""

    versions: list[tuple[str, int]]
    by: str | None = None


@dataclass
class World:
    memory: Memory
    issued: list[str] = field(default_factory=list)
    notes: dict[str, Kept] = field(default_factory=dict)
    said: int = 0

    async def step(self, action: tuple[Any, ...]) -> None:
        match action:
            case ("save",):
                text = self._text()
                note_id = (await self.memory.save(USER, text, (), ORIGIN)).note.note_id
                self.issued.append(note_id)
                self.notes[note_id] = Kept([(text, 0)])
            case "supersede", which, other:
                await self._supersede(self._note(which), self._note(other))
            case "forget", which:
                await self._supersede(self._note(which), "")
            case "swap", which, other:
                await self._swap(self._note(which), self._note(other))
            case "update", which:
                note_id, text = self._note(which), self._text()
                try:
                    await self.memory.update(USER, note_id, text, None, ORIGIN)
                except NoteNotFound:
                    assert note_id not in self.notes
                else:
                    self.notes[note_id].versions.append((text, 0))
                    self.notes[note_id].by = None
            case "undo", which, may_forget:
                await self._undo(self._note(which), may_forget)

    async def _supersede(self, note_id: str, by: str) -> None:
        expected = self._refusal(note_id, by)
        try:
            await self.memory.typed.supersede(USER, note_id, replacement_id=by)
        except SupersedeRefused:
            assert expected is SupersedeRefused
        except NoteNotFound:
            assert expected is NoteNotFound
        else:
            assert expected is None
            self.notes[note_id].by = by

    async def _swap(self, one: str, other: str) -> None:
        """Each is to replace the other, at the same moment."""
        outcomes = await asyncio.gather(
            self.memory.typed.supersede(USER, one, replacement_id=other),
            self.memory.typed.supersede(USER, other, replacement_id=one),
            return_exceptions=True,
        )
        for note_id, by, outcome in ((one, other, outcomes[0]), (other, one, outcomes[1])):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, SupersedeRefused | NoteNotFound)
            else:
                self.notes[note_id].by = by

    async def _undo(self, note_id: str, may_forget: bool) -> None:
        kept = self.notes.get(note_id)
        try:
            undone = await self.memory.history.undo(USER, note_id, may_forget=may_forget)
        except NoteNotFound:
            assert kept is None
            return
        except UndoRefused:
            assert kept is not None
            assert kept.by is None
            assert self._before(kept) == 0
            assert not may_forget
            return
        assert kept is not None
        if kept.by is not None:
            assert undone.done == "current_again"
            kept.by = None
        elif version := self._before(kept):
            assert undone.done == "restored"
            text, restored = kept.versions[version - 1]
            kept.versions.append((text, restored or version))
        else:
            assert undone.done == "forgotten"
            del self.notes[note_id]
            for other in self.notes.values():
                other.by = "" if other.by == note_id else other.by

    async def check(self) -> None:
        """Memory holds what the model does, and every chain has an end."""
        listed, _ = await self.memory.list(USER, 100, include_superseded=True)
        stored = {note.note_id: note for note in listed}
        assert stored.keys() == self.notes.keys()
        for note_id, kept in self.notes.items():
            note = stored[note_id]
            assert (note.text, note.restores) == kept.versions[-1]
            assert note.version == len(kept.versions)
            assert (note.superseded and note.superseded.by) == kept.by
            assert note_id not in self._chain(kept.by or "")
        changes, _ = await self.memory.history.changes(USER, limit=1000)
        assert {
            (change.note_id, change.version, change.change == "supersede") for change in changes
        } == {
            (note_id, version, False)
            for note_id, kept in self.notes.items()
            for version in range(1, len(kept.versions) + 1)
        } | {
            (note_id, len(kept.versions), True)
            for note_id, kept in self.notes.items()
            if kept.by is not None
        }

    def _refusal(self, note_id: str, by: str) -> type[Exception] | None:
        kept = self.notes.get(note_id)
        if kept is None:
            return NoteNotFound
        if kept.by == by:
            return None
        if by and by != note_id and by not in self.notes:
            return NoteNotFound
        if kept.by is not None or by == note_id or note_id in self._chain(by):
            return SupersedeRefused
        return None

    def _chain(self, note_id: str) -> list[str]:
        """The note and what replaces it, one after the other; a circle fails."""
        chain: list[str] = []
        while note_id:
            assert note_id not in chain
            chain.append(note_id)
            kept = self.notes.get(note_id)
            note_id = (kept.by or "") if kept else ""
        return chain

    def _before(self, kept: Kept) -> int:
        return (kept.versions[-1][1] or len(kept.versions)) - 1

    def _note(self, which: int) -> str:
        return self.issued[which % len(self.issued)] if self.issued else "note-unknown"

    def _text(self) -> str:
        self.said += 1
        return f"tea number {self.said}"


@settings(max_examples=int(25 * DEPTH), deadline=None)
@given(st.lists(STEP, min_size=15, max_size=40))
def test_notes_never_replace_each_other_in_a_circle(steps: list[tuple[Any, ...]]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
            memory = await Memory.open(MemoryConfig(str(Path(scratch, "memory.db"))), None)
            try:
                world = World(memory)
                for action in [("save",), ("save",), ("save",), *steps]:
                    await world.step(action)
                await world.check()
            finally:
                await memory.close()

    asyncio.run(play())

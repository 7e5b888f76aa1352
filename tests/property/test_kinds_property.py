"""Every family's operations on one file, in any order, against dictionaries; and at any
moment an export that is read into a new store is the same memory."""

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.models import (
    Details,
    MemoryConfig,
    NoteNotFound,
    NoteType,
    Only,
    SessionNotFound,
    notes_of,
)
from guest.memory.notes.supersession import SupersedeRefused
from tests.support.memory_lines import entities, exported
from tests.unit.memory_support import ORIGIN

DEPTH = settings().max_examples / 100
"""1, and more with the profile `deep`."""

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
    st.tuples(st.just("undo"), WHICH),
    st.tuples(st.just("undo"), WHICH),
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


@dataclass(frozen=True)
class Kept:
    text: str
    before: tuple[str, ...] = ()
    type: str = "fact"
    scope: str = ""
    key: str = ""
    superseded: str | None = None
    restores: int = 0

    @property
    def version(self) -> int:
        return len(self.before) + 1

    def followed_by(self, text: str, restores: int = 0) -> "Kept":
        before = (*self.before, self.text)
        return replace(self, text=text, before=before, superseded=None, restores=restores)

    def seen_by(self, session_id: str) -> bool:
        return self.scope in ("", session_id)


@dataclass
class World:
    """A memory, and what should be in it."""

    directory: Path
    notes: dict[str, Kept] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    issued: list[str] = field(default_factory=list)
    stores: Any = field(default_factory=itertools.count)

    async def open(self) -> None:
        path = self.directory / f"memory{next(self.stores)}.db"
        self.memory = await Memory.open(MemoryConfig(db_path=str(path)), None)

    async def step(self, action: tuple[Any, ...]) -> None:
        memory = self.memory
        match action:
            case "save", text:
                await self._save(text, Details())
            case "remember", text, kind, scope:
                if scope and scope not in self.sessions:
                    await memory.conversations.create(USER, scope)
                    self.sessions.add(scope)
                await self._save(text, Details(type=kind, scope_session=scope))
            case "update", which, text:
                note_id = self._note(which)
                try:
                    await memory.update(USER, note_id, text, None, ORIGIN)
                    self.notes[note_id] = self.notes[note_id].followed_by(text)
                except NoteNotFound:
                    assert note_id not in self.notes
            case "delete", which:
                note_id = self._note(which)
                try:
                    await memory.delete(USER, note_id)
                    self._remove(note_id)
                except NoteNotFound:
                    assert note_id not in self.notes
            case "write", key, text, mode:
                await self._write(key, text, mode)
            case "clear", key:
                named = self._named(key)
                assert await memory.keyed.clear(USER, key) == (named is not None)
                if named is not None:
                    self._remove(named)
            case "supersede", which, by, scope:
                replacement = "" if by is None else self._note(by)
                await self._supersede(self._note(which), replacement, scope)
            case "undo", which:
                await self._undo(self._note(which))
            case "forget", session_id:
                try:
                    await memory.sessions.forget(USER, session_id)
                except SessionNotFound:
                    assert session_id not in self.sessions
                self.sessions.discard(session_id)
                for note_id in [i for i, kept in self.notes.items() if kept.scope == session_id]:
                    self._remove(note_id)
            case "search", query, scope:
                found = await memory.search(USER, query, top_k=50, only=Only(scope))
                assert {hit.note_id: hit.text for hit in found.hits} == {
                    note_id: kept.text
                    for note_id, kept in self.notes.items()
                    if kept.superseded is None
                    and kept.seen_by(scope)
                    and set(query.split()) & set(kept.text.split())
                }
            case "recall", kind, scope, superseded:
                recalled = await memory.typed.recall(
                    USER,
                    types=[kind],
                    limit=50,
                    include_superseded=superseded,
                    session_id=scope,
                )
                assert {note.note_id for note in recalled.notes} == {
                    note_id
                    for note_id, kept in self.notes.items()
                    if kept.type == kind
                    and kept.seen_by(scope)
                    and (superseded or kept.superseded is None)
                }
            case ("again",):
                before = await exported(memory, USER)
                report = await memory.importer(USER).feed(before)
                assert (report.created, report.updated, report.problems) == (0, 0, [])
                assert entities(await exported(memory, USER)) == entities(before)
            case ("move",):
                await self._move()

    async def _save(self, text: str, details: Details) -> None:
        known = [
            note_id
            for note_id, kept in self.notes.items()
            if (kept.text, kept.scope, kept.key) == (text, details.scope_session, "")
            and kept.superseded is None
        ]
        outcome = await self.memory.save(USER, text, [], ORIGIN, details)
        assert outcome.created == (not known)
        if known:
            assert outcome.note.note_id in known
        else:
            kept = Kept(text, type=details.type, scope=details.scope_session)
            self.notes[outcome.note.note_id] = kept
            self.issued.append(outcome.note.note_id)

    async def _write(self, key: str, text: str, mode: Any) -> None:
        named = self._named(key)
        note = await self.memory.keyed.write(USER, key, text, mode, ORIGIN)
        if named is None:
            self.issued.append(note.note_id)
            self.notes[note.note_id] = Kept(text, key=key)
            return
        before = self.notes[named]
        appended = mode == "append" and before.superseded is None
        whole = f"{before.text}\n{text}" if appended else text
        self.notes[named] = before.followed_by(whole)
        assert (note.note_id, note.text) == (named, whole)

    async def _supersede(self, note_id: str, by: str, scope: str) -> None:
        seen = {each for each, kept in self.notes.items() if kept.seen_by(scope)}
        before = self.notes[note_id].superseded if note_id in seen else None
        chain, link = [by], self.notes.get(by)
        while link is not None and link.superseded:
            chain.append(link.superseded)
            link = self.notes.get(link.superseded)
        narrower = (
            by in self.notes
            and note_id in self.notes
            and (self.notes[by].scope not in ("", self.notes[note_id].scope))
        )
        try:
            await self.memory.typed.supersede(USER, note_id, replacement_id=by, session_id=scope)
        except NoteNotFound:
            assert note_id not in seen or by not in {"", *seen}
        except SupersedeRefused:
            assert note_id in chain or before not in (None, by) or narrower
        else:
            assert note_id in seen
            assert before == by or (before is None and note_id not in chain and by in {"", *seen})
            assert before == by or not narrower
            self.notes[note_id] = replace(self.notes[note_id], superseded=by)

    async def _undo(self, note_id: str) -> None:
        kept = self.notes.get(note_id)
        try:
            undone = await self.memory.history.undo(USER, note_id, may_forget=True)
        except NoteNotFound:
            assert kept is None
            return
        assert kept is not None
        earlier = (kept.restores or kept.version) - 1
        if kept.superseded is not None:
            assert undone.done == "current_again"
            self.notes[note_id] = replace(kept, superseded=None)
        elif earlier:
            assert undone.done == "restored"
            self.notes[note_id] = kept.followed_by(kept.before[earlier - 1], earlier)
        else:
            assert undone.done == "forgotten"
            self._remove(note_id)

    async def _move(self) -> None:
        """Go on with a new store that has read what the one before has written."""
        before = await exported(self.memory, USER)
        await self.memory.close()
        await self.open()
        report = await self.memory.importer(USER).feed(before)
        assert (report.updated, report.unchanged, report.problems) == (0, 0, [])
        assert entities(await exported(self.memory, USER)) == entities(before)

    async def check(self) -> None:
        listed, _ = await self.memory.list(USER, 1000, include_superseded=True)
        assert self.notes.keys() == {note.note_id for note in listed}
        for note in listed:
            kept = self.notes[note.note_id]
            assert (note.text, note.version, note.key, note.restores) == (
                kept.text,
                kept.version,
                kept.key,
                kept.restores,
            )
            assert (note.details.type, note.details.scope_session) == (kept.type, kept.scope)
            assert (note.superseded.by if note.superseded else None) == kept.superseded
        used = await self.memory._database.execute(
            "SELECT notes, bytes FROM usage WHERE namespace = ?", (notes_of(USER),)
        )
        texts = [text for kept in self.notes.values() for text in (kept.text, *kept.before)]
        size = sum(len(text.encode()) for text in texts)
        assert used.rows in ((), ((len(self.notes), size),))
        assert used.rows or not texts
        sessions = await self.memory.conversations.list(USER)
        assert {session.session_id for session in sessions} == self.sessions

    def _note(self, which: int) -> str:
        """One of the latest notes that there are, one that has replaced another, or the last
        one that is gone."""
        gone = [note_id for note_id in self.issued if note_id not in self.notes]
        replacing = {kept.superseded for kept in self.notes.values()}
        living = list(self.notes)
        if which == REPLACING:
            living = [note_id for note_id in living if note_id in replacing] or living
        if which == GONE or not living:
            return gone[-1] if gone else "note-unknown"
        return living[-1 - which % len(living)]

    def _named(self, key: str) -> str | None:
        return next((i for i, kept in self.notes.items() if kept.key == key), None)

    def _remove(self, note_id: str) -> None:
        del self.notes[note_id]
        for other, kept in self.notes.items():
            if kept.superseded == note_id:
                self.notes[other] = replace(kept, superseded="")


async def play(steps: Sequence[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
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


@settings(max_examples=int(30 * DEPTH), deadline=None)
@given(STEPS)
def test_every_kind_of_memory_is_what_dictionaries_would_be(
    steps: Sequence[tuple[Any, ...]],
) -> None:
    asyncio.run(play(steps))

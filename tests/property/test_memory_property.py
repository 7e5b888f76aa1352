"""Memory against dictionaries: in a file, and on a server that two guests share.

Whatever is done in whatever order, also by guests that crash in between, memory holds
and finds what plain dictionaries would.
"""

import asyncio
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.memory.factory import open_store
from guest.memory.memory import Memory
from guest.memory.models import (
    NoteNotFound,
    RemoteConfig,
    SearchOutcome,
    SessionNotFound,
    StaleVersion,
)
from tests.support.examples import examples
from tests.support.memory.model import MemoryModel, NoteModel
from tests.support.memory.store import ALONE, FakeEmbedder
from tests.support.scratch import SCRATCH
from tests.support.servers import sqld
from tests.support.settings import memory_config

WORDS = ("tea", "quartz", "violin", "harbor", "zebra", "lantern", "meadow", "copper")
TAGS = ("home", "work")
USERS = ("alice", "bob")

TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
LABELS = st.lists(st.sampled_from(TAGS), unique=True, max_size=2).map(tuple)
WHICH = st.integers(0, 9)
STEP = st.tuples(
    st.sampled_from((0, 1)),
    st.sampled_from(USERS),
    st.one_of(
        st.tuples(st.just("save"), TEXT, LABELS),
        st.tuples(st.just("save"), TEXT, LABELS),
        st.tuples(
            st.just("update"), WHICH, TEXT, st.none() | LABELS, st.none() | st.just(0) | WHICH
        ),
        st.tuples(st.just("delete"), WHICH),
        st.tuples(st.just("search"), TEXT, LABELS),
        st.tuples(st.just("append"), WHICH, TEXT),
        st.tuples(st.just("append"), WHICH, TEXT),
        st.tuples(st.just("forget"), WHICH),
        st.tuples(st.just("reopen")),
        st.tuples(st.just("crash")),
    ),
)
STEPS = st.lists(STEP, min_size=20, max_size=50)


class OwnDirections(FakeEmbedder):
    """Every word of the test points its own way, so that only shared words are alike."""

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.array([text.split().count(word) for word in WORDS] + [1e-3], np.float32)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


class Guest:
    """One guest's memory, with files in a directory of its own."""

    def __init__(
        self,
        directory: Path,
        users: Sequence[str],
        remote: RemoteConfig | None,
        **settings: Any,
    ) -> None:
        directory.mkdir()
        self._users = users
        self._directory = directory
        self._remote = remote
        self._settings = settings
        self._crashes = 0

    async def open(self) -> None:
        path = self._directory / "memory.db"
        config = memory_config(path, remote=self._remote, **self._settings)
        self.store = await open_store(config, OwnDirections())
        self.memories = {user: Memory(self.store, user) for user in self._users}

    async def close(self) -> None:
        await self.store.close()

    async def reopen(self) -> None:
        await self.close()
        await self.open()

    async def crash(self) -> None:
        """Go on with the files as SIGKILL would leave them at this moment. Another program
        copies them: closing one here would drop this program's locks on it."""
        self._crashes += 1
        left, before = (
            self._directory.with_name(f"{self._directory.name}{self._crashes}"),
            self.store,
        )
        subprocess.run(["cp", "-r", self._directory, left], check=True)
        self._directory = left
        await self.open()
        await before.close()


@dataclass
class World:
    """The guests, the users they all act for, and what should be there."""

    guests: Sequence[Guest]
    models: dict[str, MemoryModel]
    issued: list[str] = field(default_factory=list)

    async def step(self, guest: int, user_id: str, action: tuple[Any, ...]) -> None:
        acting = self.guests[guest % len(self.guests)]
        memory, model = acting.memories[user_id], self.models[user_id]
        match action:
            case "save", text, tags:
                await self._save(memory, model, text, tags)
                await self._search_all(user_id, text)
            case "update", which, text, tags, version:
                await self._update(memory, model, (self._note(which), text, tags, version))
                await self._search_all(user_id, text)
            case "delete", which:
                note_id = self._note(which)
                try:
                    await memory.delete(note_id)
                except NoteNotFound:
                    assert note_id not in model.notes
                else:
                    removed = model.remove(note_id)
                    await self._search_all(user_id, removed.text)
            case "search", query, tags:
                await self._search(memory, model, query, tags)
            case "append", which, text:
                session_id = f"{user_id}-session-{which % 3}"
                await memory.conversations.create(session_id)
                said = (*model.sessions.get(session_id, ()), text)
                model.sessions[session_id] = said
                sequence = await memory.conversations.append(
                    session_id, turn_id="t", role="user", text=text, payload="[]"
                )
                assert sequence == len(said)
            case "forget", which:
                session_id = f"{user_id}-session-{which % 3}"
                try:
                    await memory.sessions.forget(session_id)
                except SessionNotFound:
                    assert session_id not in model.sessions
                else:
                    model.forget_session(session_id)
            case ("reopen",):
                await acting.reopen()
            case ("crash",):
                await acting.crash()

    async def _save(
        self, memory: Memory, model: MemoryModel, text: str, tags: tuple[str, ...]
    ) -> None:
        outcome = await memory.save(text, tags, ALONE)
        duplicates = model.duplicates(text)
        assert outcome.created == (not duplicates)
        assert {similar.note_id for similar in outcome.similar} <= model.notes.keys()
        if outcome.created:
            model.notes[outcome.note.note_id] = NoteModel(text, tags=tags)
            self.issued.append(outcome.note.note_id)
        else:
            assert outcome.note.note_id in duplicates

    async def _update(self, memory: Memory, model: MemoryModel, change: tuple[Any, ...]) -> None:
        """Replace any version, or, with 0, the one that is there."""
        note_id, text, tags, version = change
        note = model.notes.get(note_id)
        if version == 0 and note is not None:
            version = note.version
        try:
            updated = await memory.update(note_id, text, tags, ALONE, expected_version=version)
        except NoteNotFound:
            assert note is None
        except StaleVersion as stale:
            current = stale.current
            assert note is not None
            assert version != note.version
            assert (current.text, current.version) == (note.text, note.version)
        else:
            assert note is not None
            assert version in (None, note.version)
            model.notes[note_id] = note.updated(text, tags)
            assert updated.note.version == note.version + 1

    async def _search_all(self, user_id: str, query: str) -> None:
        """Where several guests share a store, each finds what any of them has changed."""
        for guest in self.guests if len(self.guests) > 1 else ():
            await self._search(guest.memories[user_id], self.models[user_id], query, ())

    async def _search(
        self, memory: Memory, model: MemoryModel, query: str, tags: tuple[str, ...]
    ) -> None:
        found = await _whole(memory, query, tags)
        assert {hit.note_id for hit in found.results} == {
            note_id
            for note_id, note in model.notes.items()
            if set(query.split()) & set(note.text.split()) and set(tags) <= set(note.tags)
        }
        for hit in found.results:
            note = model.notes[hit.note_id]
            assert (hit.text, hit.tags, hit.version) == (note.text, note.tags, note.version)
            assert 0 <= hit.score <= 1

    async def check(self) -> None:
        """Every guest sees everything, and the indexes are in step with it."""
        for guest in self.guests:
            for user_id, model in self.models.items():
                memory = guest.memories[user_id]
                listed, _ = await memory.list(1000)
                model.check_listed(listed)
                sessions = await memory.conversations.list()
                assert {session.session_id for session in sessions} == model.sessions.keys()
                for session_id, said in model.sessions.items():
                    events = await memory.conversations.history(session_id, 1000)
                    assert tuple(event.text for event in events) == said
            for index in ("chunks_fts", "conversation_fts"):
                await guest.store.database.execute(
                    f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"
                )

    def _note(self, which: int) -> str:
        return self.issued[which % len(self.issued)] if self.issued else "note-unknown"


async def _whole(memory: Memory, query: str, tags: tuple[str, ...]) -> SearchOutcome:
    """What a search finds once nothing is missing: on a busy machine a server may be slow."""
    async with asyncio.timeout(60):
        while True:
            found = await memory.search(query, top_k=20, tags=tags)
            if not found.warnings:
                return found
            await asyncio.sleep(0.05)


def play(steps: Sequence[Any], semantic: bool, remotes: Sequence[RemoteConfig | None]) -> None:
    """Do the steps, with a guest for each of `remotes`, for users that are new."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=SCRATCH)))
            names = {user: f"{user}{scratch.name.replace('_', '-')}" for user in USERS}
            users, guests = list(names.values()), []
            for number, remote in enumerate(remotes):
                weight = 0.5 * semantic
                guest = Guest(scratch / f"guest{number}-", users, remote, vector_weight=weight)
                await guest.open()
                stack.push_async_callback(guest.close)
                guests.append(guest)
            world = World(guests, {name: MemoryModel() for name in users})
            for guest_number, user, action in steps:
                await world.step(guest_number, names[user], action)
            await world.check()

    asyncio.run(run())


@examples(40)
@given(STEPS, st.booleans())
def test_a_file_holds_what_dictionaries_would(steps: Sequence[Any], semantic: bool) -> None:
    play(steps, semantic, [None])


@pytest.fixture(scope="module")
def server() -> Iterator[sqld.Sqld]:
    with sqld.running() as server:
        yield server


@pytest.mark.sqld
@examples(10)
@given(STEPS, st.booleans())
def test_a_server_that_two_guests_share_holds_what_dictionaries_would(
    server: sqld.Sqld, steps: Sequence[Any], semantic: bool
) -> None:
    play(
        steps,
        semantic,
        [RemoteConfig(server.url(), one_user=True), RemoteConfig(server.url(), one_user=True)],
    )

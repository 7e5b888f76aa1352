"""An error that comes after a change says that the change was made."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code

from guest.errors import AfterChangeError, StorageError
from guest.memory.conversations import sessions
from guest.memory.memory import Memory
from guest.memory.models import Note
from guest.memory.notes.repository import NoteRepository
from guest.memory.storage.base import AnswerLost, Result, Statement
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.local import LocalDatabase
from tests.support.memory.store import ORIGIN, opened

ALICE = "alice"


def away(*_: Any, **__: Any) -> Any:
    raise StorageError(Code.UNAVAILABLE, "the server is away", details="nothing was changed there")


async def deleted(memory: Memory, note_id: str) -> None:
    await memory.delete(note_id)


async def forgotten(memory: Memory, _: str) -> None:
    await memory.sessions.forget("s")


@pytest.mark.parametrize(
    ("change", "part", "sentence"),
    [
        (deleted, (NoteRepository, "traces"), "is deleted; removing every byte"),
        (deleted, (Eraser, "erase"), "is deleted; removing every byte"),
        (forgotten, (sessions, "purge"), "what was to be forgotten is"),
    ],
)
async def test_what_fails_after_a_change_does_not_deny_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Memory, str], Any],
    part: tuple[object, str],
    sentence: str,
) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        note = (await memory.save("likes tea", [], ORIGIN)).note
        await memory.conversations.create("s")
        with monkeypatch.context() as patched:
            patched.setattr(*part, away)
            with pytest.raises(StorageError, match=sentence) as caught:
                await change(memory, note.note_id)
        assert caught.value.code is Code.UNAVAILABLE
        assert "nothing was changed" not in str(caught.value)
        texts = [found.text for found in (await memory.list(10))[0]]
        kept = await memory.conversations.list()
    assert texts == ([] if change is deleted else ["likes tea"])
    assert len(kept) == (change is not forgotten)


async def test_an_undo_tells_of_its_note_although_nothing_can_be_read_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revive = NoteRepository.revive

    async def cut_off(self: NoteRepository, note: Note) -> bool:
        done = await revive(self, note)
        monkeypatch.setattr(NoteRepository, "get", away)
        return done

    async with opened(tmp_path / "memory.db") as memory:
        note = (await memory.save("likes tea", [], ORIGIN)).note
        await memory.typed.supersede(note.note_id)
        with monkeypatch.context() as patched:
            patched.setattr(NoteRepository, "revive", cut_off)
            undone = await memory.history.undo(note.note_id)
        assert (undone.done, undone.note) == ("current_again", note)
        assert [found.text for found in (await memory.list(10))[0]] == ["likes tea"]


async def test_an_update_without_an_answer_names_its_own_version_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = LocalDatabase.batch
    after: list[str] = []

    async def unanswered(self: LocalDatabase, statements: Sequence[Statement]) -> list[Result]:
        await batch(self, statements)
        for text in after:
            await self.execute("UPDATE notes SET content = ?, version = version + 1", (text,))
        raise AnswerLost

    async with opened(tmp_path / "memory.db") as memory:
        note = (await memory.save("likes tea", [], ORIGIN)).note
        with monkeypatch.context() as patched:
            patched.setattr(LocalDatabase, "batch", unanswered)
            updated = (await memory.update(note.note_id, "likes coffee", None, ORIGIN)).note
            assert (updated.version, updated.text) == (2, "likes coffee")
            after.append("likes milk")
            with pytest.raises(AfterChangeError, match="is updated, and was changed again"):
                await memory.update(note.note_id, "likes water", None, ORIGIN)


async def test_what_was_said_is_not_denied_where_answers_are_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = LocalDatabase.batch

    async def unanswered(self: LocalDatabase, statements: Sequence[Statement]) -> list[Result]:
        await batch(self, statements)
        raise AnswerLost

    async with opened(tmp_path / "memory.db") as memory:
        await memory.conversations.create("s")
        with monkeypatch.context() as patched:
            patched.setattr(LocalDatabase, "batch", unanswered)
            patched.setattr(LocalDatabase, "execute", away)
            with pytest.raises(StorageError, match="what was said is stored") as caught:
                await memory.conversations.append(
                    "s", turn_id="t", role="user", text="hello", payload="{}"
                )
        assert caught.value.code is Code.UNAVAILABLE
        assert [each.text for each in await memory.conversations.history("s", 10)] == ["hello"]

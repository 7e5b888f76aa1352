"""What a person is told outside of turns, as it is stored."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import User
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate
from guest.memory.transfer.move import copy_user
from guest.notices import outbox as module
from guest.notices.outbox import KINDS, Outbox
from tests.support.memory.forgetting import KEY, bytes_of
from tests.support.memory.store import ORIGIN, opened


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db") as memory:
        yield memory


def of(memory: Memory, user_id: str = "") -> Outbox:
    return Outbox(memory.store.database, user_id or memory.user_id)


async def test_a_notice_is_there_once_for_its_key_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as memory:
        first = await of(memory).add("budget", "the day's is used", key="day:1", turn_id="t1")
        assert (first.kind, first.turn_id, first.read_at) == ("budget", "t1", "")
    async with opened(path) as memory:
        outbox = of(memory)
        assert await outbox.add("budget", "again", key="day:1") == first
        many = [outbox.add("budget", "at once", key="day:2") for _ in range(5)]
        assert len({each.number for each in await asyncio.gather(*many)}) == 1
        assert [each.text for each in await outbox.newest(9)] == ["at once", "the day's is used"]
        assert await of(memory, "bob").newest(9) == []
        assert (await of(memory, "bob").add("guest", "down", key="day:1")).text == "down"


async def test_what_is_kept_is_bounded(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 3)
    monkeypatch.setattr(module, "SURFACES_MAX", 2)
    outbox = of(memory)
    for number in range(6):
        await outbox.add("schedule", "\0\ud800" + "x" * 5_000, key=f"k{number}")
        await outbox.tell(f"s{number}", 1)
    kept = await outbox.after(0, 9)
    assert [each.key for each in kept] == ["k3", "k4", "k5"]
    assert len(kept[0].text) == module.TEXT_MAX_CHARS
    assert [each.text.endswith("gone unread: there were too many)") for each in kept] == [
        *(True, False, False),
    ]
    await outbox.read(up_to=kept[0].number)
    await outbox.add("schedule", "x", key="k6")
    oldest, *_ = await outbox.after(0, 9)
    assert "gone" not in oldest.text, "what went had been read"
    assert [await outbox.told(f"s{number}") for number in range(6)] == [0, 0, 0, 0, 1, 1]
    for key in ("", "k" * 201):
        with pytest.raises(ValueError, match="key"):
            await outbox.add("schedule", "text", key=key)


async def test_each_surface_has_its_own_mark_and_the_person_reads_for_all(memory: Memory) -> None:
    outbox = of(memory)
    one, two, three = [await outbox.add("command", kind, key=kind) for kind in KINDS[:3]]
    await outbox.tell("chat", two.number)
    await outbox.tell("chat", one.number)  # late: nothing goes back
    assert (await outbox.told("chat"), await outbox.told("console")) == (two.number, 0)
    assert await outbox.read([two.number]) == 2
    assert await outbox.after(0, 9, unread=True) == [one, three]
    assert await outbox.read(up_to=one.number) == 1
    assert [each.read_at > "2026" for each in await outbox.after(0, 9)] == [True, True, False]
    assert await outbox.newest(1, three.number, unread=True) == []


async def test_who_follows_is_told_what_was_and_what_comes(memory: Memory) -> None:
    outbox = of(memory)
    for key in ("a", "b"):
        await outbox.add("schedule", key, key=key)
    async with aclosing(outbox.follow(0)) as notices, asyncio.timeout(60):
        assert [(await anext(notices)).key for _ in range(2)] == ["a", "b"]
        coming = asyncio.ensure_future(anext(notices))
        await asyncio.sleep(0)
        await outbox.add("schedule", "c", key="c")
        assert (await coming).key == "c"


async def test_a_notice_goes_with_its_session_and_with_its_note(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path, encryption_key=KEY) as memory:
        await memory.conversations.create("s1")
        note = (await memory.save("a note", [], ORIGIN)).note
        outbox = of(memory)
        await outbox.add("schedule", "code word quixotry", key="1", session_id="s1")
        await outbox.add("reminder", "code word zephyrine", key="2", note_id=note.note_id)
        await of(memory, "bob").add("reminder", "stays", key="2", note_id=note.note_id)
        await outbox.add("guest", "stays", key="3")
        assert b"quixotry" in await bytes_of(memory, path, KEY)
        await memory.sessions.forget("s1")
        assert [each.key for each in await outbox.after(0, 9)] == ["2", "3"]
        await memory.delete(note.note_id)
        assert [each.key for each in await outbox.after(0, 9)] == ["3"]
        assert len(await of(memory, "bob").after(0, 9)) == 1
        content = await bytes_of(memory, path, KEY)
        assert [word for word in (b"quixotry", b"zephyrine") if word in content] == []


async def test_a_move_takes_them_along(memory: Memory, tmp_path: Path) -> None:
    outbox = of(memory)
    await outbox.add("schedule", "one", key="1")
    two = await outbox.add("schedule", "two", key="2")
    await outbox.read([two.number])
    await of(memory, "bob").add("schedule", "bob's", key="3")
    target = await LocalDatabase.open(tmp_path / "copy.db")
    try:
        await migrate(target)
        for _ in range(2):
            await copy_user(memory.store.database, target, User(memory.user_id))
        copied = await Outbox(target, memory.user_id).after(0, 9)
        assert [(each.key, bool(each.read_at)) for each in copied] == [("1", False), ("2", True)]
        assert await Outbox(target, "bob").after(0, 9) == []
    finally:
        await target.close()

"""Many tasks at once on one memory."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

from guest.memory.memory import Memory
from guest.memory.models import NoteNotFound
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened, rows

USERS = ("alice", "bob")
STEPS = 20


async def live(memory: Memory, seed: int) -> dict[str, str]:
    """One user's turn: random changes and searches that see only what is the user's."""
    chance = random.Random(seed)
    notes: dict[str, str] = {}
    for step in range(STEPS):
        text = f"{memory.user_id} {seed} fact {step} about tea"
        match chance.randrange(4):
            case 0 | 1:
                notes[(await memory.save(text, [], ORIGIN)).note.note_id] = text
            case 2 if notes:
                note_id = chance.choice(list(notes))
                await memory.update(note_id, text, None, ORIGIN)
                notes[note_id] = text
            case 3 if notes:
                note_id = chance.choice(list(notes))
                await memory.delete(note_id)
                del notes[note_id]
        found = await memory.search(f"tea fact {seed}", top_k=20, include_conversation=True)
        for hit in found.results:
            assert memory.user_id in hit.text
            if f"{memory.user_id} {seed} " in hit.text and hit.note_id:
                assert notes[hit.note_id] == hit.text
        await memory.conversations.append(
            f"s-{memory.user_id}", turn_id=str(step), role="user", text=text, payload="[]"
        )
    return notes


async def test_two_users_interleaved_never_meet(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        users = {user_id: Memory(memory.store, user_id) for user_id in USERS}
        for user_id, own in users.items():
            await own.conversations.create(f"s-{user_id}")
        turns = [(user_id, seed) for seed in range(4) for user_id in USERS]
        kept = await asyncio.gather(*(live(users[user_id], seed) for user_id, seed in turns))
        for user_id, own in users.items():
            expected = {
                k: v
                for turn, m in zip(turns, kept, strict=True)
                if turn[0] == user_id
                for k, v in m.items()
            }
            listed, _ = await own.list(1000)
            assert {note.note_id: note.text for note in listed} == expected
            events = await own.conversations.history(f"s-{user_id}", 1000)
            assert [event.sequence for event in events] == list(range(1, 4 * STEPS + 1))
            assert all(event.text.startswith(user_id) for event in events)
            await embedded(own, len(expected) + 4 * STEPS)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_resident_vectors_stay_in_step(path: Path) -> None:
    """After everything, a fresh start finds the same as the running one."""
    embedder = FakeEmbedder()
    queries = [f"tea fact {i}" for i in range(30)]
    async with opened(path, embedder) as memory:
        await memory.conversations.create("s-alice")
        await asyncio.gather(*(live(memory, seed) for seed in range(3)))
        await embedded(memory, (await memory.statistics()).passages)
        running = [await memory.search(q, top_k=20) for q in queries]
    async with opened(path, embedder) as memory:
        assert [await memory.search(q, top_k=20) for q in queries] == running


async def test_cancelled_calls_leave_everything_in_step(path: Path) -> None:
    chance = random.Random(5)
    embedder = FakeEmbedder()
    async with opened(path, embedder) as memory:
        await memory.conversations.create("s")
        kept = (await memory.save("kept fact about tea", [], ORIGIN)).note
        for i in range(150):
            calls = [
                memory.save(f"fact {i} about tea", [], ORIGIN),
                memory.update(kept.note_id, f"kept fact {i} about tea", None, ORIGIN),
                memory.conversations.append(
                    "s", turn_id="t", role="user", text=f"said {i}", payload="[]"
                ),
                memory.search("tea", include_conversation=True),
            ]
            tasks = [asyncio.ensure_future(call) for call in calls]
            await asyncio.sleep(chance.random() * 0.002)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        passages = (await memory.statistics()).passages
        await embedded(memory, passages)
        running = await memory.search("tea fact", top_k=20)
        assert running.warnings == ()
        events = await memory.conversations.history("s", 1000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    async with opened(path, embedder) as memory:
        assert await memory.search("tea fact", top_k=20) == running


async def test_each_of_many_writers_is_told_the_version_that_says_its_text(path: Path) -> None:
    """Whoever updates next with `expected_version` must never overwrite what it has not seen."""
    embedder = FakeEmbedder()
    embedder.delay_s = 0.01
    async with opened(path, embedder) as memory:
        note = (await memory.save("draft", [], ORIGIN)).note
        texts = [f"draft of writer {number}" for number in range(30)]
        told = await asyncio.gather(
            *(memory.update(note.note_id, text, None, ORIGIN) for text in texts)
        )
        entries, _ = await memory.history.changes(note_id=note.note_id)
        appended = await asyncio.gather(
            *(memory.keyed.write("list", text, "append", ORIGIN) for text in texts[:8])
        )
        lists, _ = await memory.history.changes(note_id=appended[0].note_id)
    says = {entry.version: entry.text for entry in entries}
    assert [each.note.text for each in told] == texts
    assert {each.note.version: each.note.text for each in told} | {1: "draft"} == says
    assert {each.version: each.text for each in appended} == {
        entry.version: entry.text for entry in lists
    }


async def test_deletions_and_saves_of_the_same_text_at_once(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:

        async def save_and_delete() -> None:
            for _ in range(10):
                note_id = (await memory.save("contested", [], ORIGIN)).note.note_id
                with suppress(NoteNotFound):
                    await memory.delete(note_id)

        await asyncio.gather(*(save_and_delete() for _ in range(5)))
        assert (await memory.list(10))[0] == []
        assert not (await memory.search("contested")).results


async def test_closing_lets_running_changes_finish(path: Path) -> None:
    memory: Memory
    async with opened(path) as memory:
        note = (await memory.save("to be deleted", [], ORIGIN)).note
        saving = asyncio.create_task(memory.save("last words", [], ORIGIN))
        deleting = asyncio.create_task(memory.delete(note.note_id))
        await asyncio.sleep(0)
        await memory.close()
        await asyncio.gather(saving, deleting)
    async with opened(path) as memory:
        assert [n.text for n in (await memory.list(10))[0]] == ["last words"]

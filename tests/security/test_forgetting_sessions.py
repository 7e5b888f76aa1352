"""After a session is forgotten no byte of what was said in it is left in the files."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import Origin, SessionNotFound
from guest.memory.storage.base import Result, Statement
from guest.memory.storage.local import LocalDatabase
from tests.security.test_forgetting import Writer, left_over, visible
from tests.support.memory.store import FakeEmbedder, embedded, file_bytes, opened, rows

ALICE = "alice"


async def say(memory: Memory, session_id: str, text: str, role: str = "user") -> None:
    await memory.conversations.append(
        session_id, turn_id="t1", role=role, text=text, payload=f'["{text}"]'
    )


async def separators_of_dead_terms(memory: Memory) -> list[bytes]:
    """What stands between the pages of the conversations' index and begins no living term."""
    database = memory.store.database
    terms = await database.execute("SELECT term FROM conversation_terms")
    living = [str(term).encode() for (term,) in terms.rows]
    index = await database.execute("SELECT term FROM conversation_fts_idx")
    separators = [term[1:] for (term,) in index.rows if isinstance(term, bytes)]
    assert len(separators) > 1, "the test would see nothing"
    return [s for s in separators if not any(term.startswith(s) for term in living)]


async def test_titles_events_payloads_state_index_and_log_hold_nothing(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        for session_id in ("kept", "gone"):
            await memory.conversations.create(session_id, "a trip to zanzibar", "cli")
        await memory.sessions.rename("kept", "the garden")
        await memory.sessions.rename("gone", "the quixotry file")
        await say(memory, "kept", "the roses need water")
        await say(memory, "gone", "code word zephyrine")
        await say(memory, "gone", "a byzantium of tool output " * 200, "tool")
        await memory.store.database.execute(
            "INSERT INTO session_state VALUES ('gone', 'summary', 'about heliotrope', 1, '')"
        )
        origin = Origin(actor="user", session_id="gone", turn_id="t1")
        await memory.save("a note about cochineal", [], origin)
        await embedded(memory, (await memory.statistics()).passages)
        words = [b"zanzibar", b"quixotry", b"zephyrin", b"byzantium", b"heliotrope"]
        assert all(word in file_bytes(path) for word in words), "the test would see nothing"

        await memory.sessions.forget("gone")

        after = file_bytes(path)
        assert [word for word in words if word in after] == []
        assert b"roses" in after
        with pytest.raises(SessionNotFound):
            await memory.conversations.history("gone", 10)
        found = await memory.search("code word zephyrine", include_conversation=True)
        assert all("zephyrine" not in hit.text for hit in found.results)
        assert (await memory.search("cochineal")).results, "the user's notes stay"
        assert (await memory.search("roses", include_conversation=True)).results
        statistics = await memory.statistics()
        assert statistics.passages == statistics.passages_embedded == 2
    assert rows(path, "SELECT COUNT(*) FROM chunks_vec") == [(2,)]
    assert rows(path, "PRAGMA foreign_key_check") == []


@pytest.mark.parametrize("number", range(2))
async def test_nothing_is_left_after_many_sessions(
    path: Path, number: int, chance: random.Random
) -> None:
    """Rows move between pages while sessions come and go; their old copies go too."""
    writer = Writer(chance)
    alive: dict[str, list[str]] = {}
    dead: list[str] = []
    async with opened(path) as memory:
        for number in range(400):
            text, secrets = writer.text()
            action = chance.random()
            if action < 0.15 or not alive:
                session_id = f"s{number}"
                await memory.conversations.create(session_id, secrets[0])
                alive[session_id] = secrets[:1]
            elif action < 0.92:
                session_id = chance.choice(list(alive))
                await say(memory, session_id, text, chance.choice(["user", "assistant"]))
                alive[session_id] += secrets
            else:
                session_id = chance.choice(list(alive))
                await memory.sessions.forget(session_id)
                dead += alive.pop(session_id)
        living = [secret for secrets in alive.values() for secret in secrets]
        content = file_bytes(path)
        assert visible(content, living), "the test would see nothing"
        await memory.sessions.forget(session_id := chance.choice(list(alive)))
        dead += alive.pop(session_id)
        living = [secret for secrets in alive.values() for secret in secrets]
        assert left_over(path, dead, living) == []
        assert await separators_of_dead_terms(memory) == []
        await memory.store.database.execute(
            "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('integrity-check', 1)"
        )
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert len(dead) > 50


async def test_an_interrupted_erasure_is_finished_at_the_next_start(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: LocalDatabase) -> None:
        raise OSError("cut off")

    async with opened(path) as memory:
        await memory.conversations.create("gone")
        await say(memory, "gone", "code word quixotry")
        with monkeypatch.context() as patched:
            patched.setattr(LocalDatabase, "checkpoint", fail)
            with pytest.raises(OSError, match="cut off"):
                await memory.sessions.forget("gone")
        with pytest.raises(SessionNotFound):
            await memory.conversations.get("gone")
    async with opened(path):
        assert b"quixotry" not in file_bytes(path)
    assert rows(path, "SELECT * FROM erasures") == []


async def test_a_cancelled_caller_does_not_stop_the_forgetting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()
    batch = LocalDatabase.batch

    async def noticed(self: LocalDatabase, statements: Sequence[Statement]) -> list[Result]:
        begun.set()
        return await batch(self, statements)

    async with opened(path) as memory:
        await memory.conversations.create("gone")
        await say(memory, "gone", "code word quixotry")
        monkeypatch.setattr(LocalDatabase, "batch", noticed)
        task = asyncio.create_task(memory.sessions.forget("gone"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert b"quixotry" not in file_bytes(path)
    assert rows(path, "SELECT COUNT(*) FROM erasures") == [(0,)]

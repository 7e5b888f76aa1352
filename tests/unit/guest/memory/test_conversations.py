"""Sessions and their events."""

import asyncio
import json
from pathlib import Path

import pytest
from wire.errors import Code
from wire.limits import SEQUENCE_MAX

from guest.errors import StorageError
from guest.memory.conversations.store import TOOL_INDEX_CHARS, Conversations
from guest.memory.memory import Memory
from guest.memory.models import SessionNotFound
from tests.support.memory.store import FakeEmbedder, embedded, opened

ALICE, BOB = "alice", "bob"


async def append(
    conversations: Conversations,
    text: str,
    *,
    session_id: str = "s1",
    turn_id: str = "t1",
    role: str = "user",
    payload: str = "[]",
) -> int:
    return await conversations.append(
        session_id, turn_id=turn_id, role=role, text=text, payload=payload
    )


async def test_a_session_is_created_once_and_resumed(path: Path) -> None:
    async with opened(path) as memory:
        made = await memory.conversations.create("s1", "Trip", "cli")
        assert (made.session_id, made.title) == ("s1", "Trip")
        assert (made.channel, made.turns) == ("cli", 0)
        assert await memory.conversations.create("s1", "Other", "web") == made
        named = await memory.conversations.create()
        assert named.session_id.startswith("session-")
    async with opened(path) as memory:
        assert await memory.conversations.get("s1") == made


async def test_a_session_knows_which_one_its_work_was_delegated_from(path: Path) -> None:
    async with opened(path) as memory:
        parent = await memory.conversations.create("s1")
        assert parent.parent_id == ""
        child = await memory.conversations.create("s2", parent_id="s1")
        assert child.parent_id == "s1"
        assert await memory.conversations.create("s2", parent_id="s3") == child
        listed = await memory.conversations.list(include_delegated=True)
        assert [session.parent_id for session in listed] == ["s1", ""]
        assert [each.session_id for each in await memory.conversations.list()] == ["s1"]


async def test_only_the_first_event_gives_a_session_a_title(path: Path) -> None:
    async with opened(path) as memory:
        made = memory.conversations
        await made.create("s1")
        await made.create("s2", title="Mine")
        for session_id in ("s1", "s2"):
            for title in ("First\0", "Second"):
                await made.append(
                    session_id, turn_id=title[:5], role="user", text="x", payload="[]", title=title
                )
        assert [each.title for each in await made.list()] == ["Mine", "First\u2400"]
        await made.create("s3")
        await append(made, "x", session_id="s3")
        await made.append("s3", turn_id="t2", role="user", text="x", payload="[]", title="Late")
        assert (await made.get("s3")).title == ""


async def test_another_users_session_is_refused_like_an_unknown_one(path: Path) -> None:
    async with opened(path) as memory:
        mine, theirs = memory.conversations, Memory(memory.store, BOB).conversations
        await theirs.create("bobs")
        await append(theirs, "private", session_id="bobs")
        for session_id in ("bobs", "unknown"):
            attempts = [
                mine.get(session_id),
                mine.history(session_id, 10),
                append(mine, "intruding", session_id=session_id),
            ]
            for attempt in attempts:
                with pytest.raises(SessionNotFound) as caught:
                    await attempt
                assert caught.value.session_id == session_id
        with pytest.raises(SessionNotFound):
            await mine.create("bobs")
        assert await mine.list() == []
        events = await theirs.history("bobs", 10)
        assert [event.text for event in events] == ["private"]
        assert (await memory.statistics()).passages == 0


async def test_events_come_back_in_order_with_their_payload(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        payload = json.dumps([{"text": "naïve 🧠 \u0000"}])
        assert await append(memory.conversations, "hello", payload=payload) == 1
        assert await append(memory.conversations, "hi", role="assistant") == 2
        assert await append(memory.conversations, "{}", role="tool", turn_id="t2") == 3
    async with opened(path) as memory:
        events = await memory.conversations.history("s1", 10)
        assert [(e.sequence, e.turn_id, e.role, e.text) for e in events] == [
            (1, "t1", "user", "hello"),
            (2, "t1", "assistant", "hi"),
            (3, "t2", "tool", "{}"),
        ]
        assert json.loads(events[0].payload) == [{"text": "naïve 🧠 \u0000"}]
        last = await memory.conversations.history("s1", 2)
        assert [event.sequence for event in last] == [2, 3]
        assert (await memory.conversations.get("s1")).turns == 2


async def test_a_session_without_events_has_an_empty_history(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        assert await memory.conversations.history("s1", 10) == []


async def test_sessions_are_listed_by_last_use(path: Path) -> None:
    async with opened(path) as memory:
        for session_id in ("s1", "s2", "s3"):
            await memory.conversations.create(session_id)
        await append(memory.conversations, "again", session_id="s1")
        listed = await memory.conversations.list()
        assert [session.session_id for session in listed] == ["s1", "s3", "s2"]
        assert len(await memory.conversations.list(2)) == 2


async def test_concurrent_appends_get_numbers_without_gaps(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        numbers = await asyncio.gather(
            *(append(memory.conversations, f"m{i}", turn_id=f"t{i % 4}") for i in range(50))
        )
        assert sorted(numbers) == list(range(1, 51))
        assert (await memory.conversations.get("s1")).turns == 4
        events = await memory.conversations.history("s1", 100)
        assert {e.sequence: e.text for e in events} == {
            number: f"m{i}" for i, number in enumerate(numbers)
        }


async def test_numbers_beyond_the_maximum_are_refused_and_not_wrapped(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        await memory.conversations.create("s2")
        await memory.store.database.execute(
            """INSERT INTO conversation_events
               (session_id, sequence, turn_id, role, text, payload, created_at)
               VALUES ('s1', ?, 't0', 'user', 'planted', '[]', '')""",
            (SEQUENCE_MAX - 1,),
        )
        assert await append(memory.conversations, "the last") == SEQUENCE_MAX
        with pytest.raises(StorageError, match="cannot take another event") as caught:
            await append(memory.conversations, "one too many")
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert "new session" in caught.value.resolution
        events = await memory.conversations.history("s1", 10)
        assert [event.text for event in events] == ["planted", "the last"]
        assert (await memory.statistics()).passages == 1
        assert await append(memory.conversations, "fine", session_id="s2") == 1


async def test_what_the_database_cannot_hold_is_replaced(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        await append(memory.conversations, "a\0b \ud800", payload='["\ud800 é \0"]', role="tool")
        (event,) = await memory.conversations.history("s1", 1)
        assert event.text == "a␀b \N{REPLACEMENT CHARACTER}"
        assert json.loads(event.payload) == ["\ud800 é \0"]


async def test_an_unknown_role_or_limit_is_refused(path: Path) -> None:
    async with opened(path) as memory:
        await memory.conversations.create("s1")
        with pytest.raises(ValueError, match="role: 'system' is not one of user"):
            await append(memory.conversations, "text", role="system")
        with pytest.raises(ValueError, match="limit"):
            await memory.conversations.history("s1", 0)


async def test_long_turns_are_found_and_tool_output_only_by_its_beginning(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        await memory.conversations.create("s1")
        filler = " ".join(f"Sentence {i} about nothing." for i in range(80))
        await append(memory.conversations, filler + " The password hint is heliotrope.")
        output = "cochineal " + "x " * TOOL_INDEX_CHARS + " mauveine"
        await append(memory.conversations, output, role="tool")
        await append(memory.conversations, "  ", role="assistant")
        for word, found in (("heliotrope", True), ("cochineal", True), ("mauveine", False)):
            outcome = await memory.search(word, include_conversation=True)
            assert any(word in hit.text for hit in outcome.results) == found, word
        assert [e.text for e in await memory.conversations.history("s1", 3)][1] == output


async def test_passages_get_vectors_soon_after(path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.aliases = {"physician": "doctor"}
    async with opened(path, embedder) as memory:
        await memory.conversations.create("s1")
        await append(memory.conversations, "physician")
        await embedded(memory, 1)
        assert "physician" in embedder.texts
        (hit,) = (await memory.search("doctor user", include_conversation=True)).results
        assert hit.matched_by == "both"

"""The memory server goes away and comes back: what still works, what says that it does not."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import RemoteConfig, SessionNotFound
from tests.support.memory.store import ORIGIN, FakeEmbedder
from tests.support.servers.bad_network import BadNetwork, Fault, between
from tests.support.servers.sqld import SOON_S, Keys, Sqld, connected, running
from tests.support.settings import PATIENT, memory_config

pytestmark = pytest.mark.sqld

ALICE = "alice"
TIMEOUT_S = 1.0


@pytest.fixture
def server() -> Iterator[Sqld]:
    with running() as started:
        yield started


@asynccontextmanager
async def guest(
    url: str, place: Path, token: str = "", timeout_s: float = 30.0, **settings: Any
) -> AsyncIterator[Memory]:
    place.mkdir(exist_ok=True)
    remote = RemoteConfig(url, token, timeout_s=timeout_s, first_wait_s=SOON_S, one_user=True)
    config = memory_config(place / "memory.db", remote=remote, **settings)
    memory = await Memory.open(config, FakeEmbedder(), ALICE)
    try:
        yield memory
    finally:
        await memory.close()


@asynccontextmanager
async def hanging(
    server: Sqld, place: Path, timeout_s: float = TIMEOUT_S, **settings: Any
) -> AsyncIterator[tuple[BadNetwork, Memory]]:
    """A guest that soon gives up on a network that swallows."""
    async with (
        between(server.port) as network,
        guest(network.url, place, timeout_s=timeout_s, **settings) as memory,
    ):
        yield network, memory


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.02)


async def gone(memory: Memory) -> None:
    """Let the memory notice that its server is away."""
    with pytest.raises(StorageError):
        await memory.list(1)
    assert memory.store.state != "ready"


async def back(memory: Memory) -> None:
    async def ready() -> bool:
        return memory.store.state == "ready"

    await until(ready)


async def say(memory: Memory, session_id: str, text: str, turn_id: str = "t") -> int:
    return await memory.conversations.append(
        session_id, turn_id=turn_id, role="user", text=text, payload="[]"
    )


async def said(memory: Memory, session_id: str) -> list[str]:
    return [event.text for event in await memory.conversations.history(session_id, 50)]


async def stored(server: Sqld) -> list[tuple[Any, ...]]:
    """Session, sequence and text of every event on the server."""
    async with connected(server.url()) as database:
        result = await database.execute(
            "SELECT session_id, sequence, text FROM conversation_events ORDER BY event_id"
        )
        return list(result.rows)


async def test_changes_fail_and_searches_answer_from_the_copy_until_it_is_back(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server.url(), tmp_path) as memory:
        note = (await memory.save("tea with milk", [], ORIGIN)).note
        assert (await memory.search("tea")).warnings == ()
        server.kill()
        with pytest.raises(StorageError):
            await memory.save("coffee without sugar", [], ORIGIN)
        for change in (
            lambda: memory.save("coffee", [], ORIGIN),
            lambda: memory.update(note.note_id, "coffee", None, ORIGIN),
            lambda: memory.delete(note.note_id),
            lambda: memory.notes.get(note.note_id),
            lambda: memory.list(10),
        ):
            with pytest.raises(StorageError, match="cannot be reached") as raised:
                await change()
            assert raised.value.code == Code.UNAVAILABLE
            assert raised.value.resolution
        outcome = await memory.search("tea coffee")
        assert [hit.text for hit in outcome.results] == ["tea with milk"]
        assert outcome.warnings[0].startswith("the memory server cannot be reached (")
        assert outcome.warnings[0].endswith(" ago")
        counts = await memory.statistics()
        assert (counts.store, counts.notes) == ("remote", 1)
        assert "cannot be reached" in counts.state
        assert counts.replica_synced_at
        server.start()
        await back(memory)
        assert (await memory.save("coffee", [], ORIGIN)).created
        outcome = await memory.search("tea coffee")
        assert sorted(hit.text for hit in outcome.results) == ["coffee", "tea with milk"]
        assert outcome.warnings == ()
        assert (await memory.statistics()).state == "ready"


async def test_while_it_is_away_nobody_waits_for_it_again(server: Sqld, tmp_path: Path) -> None:
    async with hanging(server, tmp_path) as (network, memory):
        await memory.save("tea with milk", [], ORIGIN)
        await memory.search("tea")
        network.fault = Fault.SWALLOW_REQUEST
        await gone(memory)
        struck = network.struck.total()
        for _ in range(50):
            assert (await memory.search("tea")).results
            with pytest.raises(StorageError):
                await memory.save("coffee", [], ORIGIN)
        assert network.struck.total() - struck <= 50
        network.fault = None
        await back(memory)
        assert (await memory.save("coffee", [], ORIGIN)).created


async def test_a_server_that_hangs_does_not_hold_a_search_up(server: Sqld, tmp_path: Path) -> None:
    patience = replace(PATIENT, copy_s=0.1)
    async with hanging(server, tmp_path, patience=patience) as (network, memory):
        await memory.save("tea with milk", [], ORIGIN)

        async def copied() -> bool:
            return not (await memory.search("tea")).warnings

        await until(copied)
        network.fault = Fault.SWALLOW_REQUEST
        outcome = await memory.search("tea")
        assert [hit.text for hit in outcome.results] == ["tea with milk"]
        assert outcome.warnings[0].startswith("the memory server does not answer; these results")
        network.fault = None


async def test_a_guest_starts_without_the_server_and_goes_on_when_it_comes(
    server: Sqld, tmp_path: Path
) -> None:
    server.stop()
    async with guest(server.url(), tmp_path) as memory:
        assert memory.store.state != "ready"
        with pytest.raises(StorageError, match="there is no copy of it on this machine"):
            await memory.search("tea")
        session = await memory.conversations.create()
        assert await say(memory, session.session_id, "hello") == 0
        server.start()
        await back(memory)
        assert (await memory.save("tea with milk", [], ORIGIN)).created
        assert [hit.text for hit in (await memory.search("tea")).results] == ["tea with milk"]
        assert await said(memory, session.session_id) == ["hello"]
    assert await stored(server) == [(session.session_id, 1, "hello")]


async def test_a_refused_token_is_an_absence_too(tmp_path: Path) -> None:
    keys = Keys()
    with running(keys) as server:
        good, bad = keys.token("default"), Keys().token("default")
        async with guest(server.url(), tmp_path, bad) as memory:
            assert "refuses the token" in memory.store.state
            with pytest.raises(StorageError, match="refuses the token"):
                await memory.save("tea", [], ORIGIN)
            with pytest.raises(StorageError):
                await memory.store.set_token(Keys().token("default"))
            await memory.store.set_token(good)
            await back(memory)
            assert (await memory.save("tea", [], ORIGIN)).created


async def test_talks_go_on_and_are_stored_in_order_afterwards(server: Sqld, tmp_path: Path) -> None:
    async with guest(server.url(), tmp_path) as memory:
        for session_id in ("old", "quiet"):
            await memory.conversations.create(session_id, title=session_id)
        assert await say(memory, "old", "before") == 1
        server.kill()
        assert memory.conversations.unstored("old") == ""
        assert await say(memory, "old", "one") == 0
        assert "not being stored right now" in memory.conversations.unstored("old")
        assert memory.conversations.unstored("old") == ""
        new = await memory.conversations.create("new", title="made while away", parent_id="old")
        assert new.parent_id == "old"
        assert (await memory.conversations.get("new")) == new
        await say(memory, "new", "a")
        await say(memory, "old", "two")
        assert await said(memory, "old") == ["before", "one", "two"]
        assert await said(memory, "new") == ["a"]
        assert (await memory.conversations.get("quiet")).title == "quiet"
        with pytest.raises(StorageError):
            await memory.conversations.get("never seen")
        server.start()
        await back(memory)
        assert await say(memory, "old", "three") == 4
        assert await said(memory, "old") == ["before", "one", "two", "three"]
        assert await said(memory, "new") == ["a"]
        assert (await memory.conversations.get("new")).parent_id == "old"
        assert memory.conversations.unstored("old") == ""
        found = (await memory.search("two", include_conversation=True)).results
        assert {hit.source for hit in found} == {"conversation"}
        assert any(hit.text.endswith(": two") for hit in found), "said while it was away"
    assert await stored(server) == [
        ("old", 1, "before"),
        ("old", 2, "one"),
        ("new", 1, "a"),
        ("old", 3, "two"),
        ("old", 4, "three"),
    ]


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.SWALLOW, Fault.REPEAT, Fault.DROP])
async def test_an_event_whose_answer_was_lost_is_stored_once(
    server: Sqld, tmp_path: Path, fault: Fault
) -> None:
    way = hanging(server, tmp_path, TIMEOUT_S if fault is Fault.SWALLOW else 30.0)
    async with way as (network, memory):
        await memory.conversations.create("s")
        for i in range(3):
            network.fault = fault
            await say(memory, "s", f"event {i}", f"turn {i}")
            network.fault = None
            await back(memory)
        assert await said(memory, "s") == ["event 0", "event 1", "event 2"]
        assert network.struck[fault] >= 3
    assert await stored(server) == [("s", i + 1, f"event {i}") for i in range(3)]


async def test_what_still_waits_at_the_end_is_lost_and_counted(
    server: Sqld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with guest(server.url(), tmp_path) as memory:
        await memory.conversations.create("s")
        server.kill()
        for i in range(3):
            await say(memory, "s", f"event {i}")
    lost = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["3 events of conversations are lost" in record.getMessage() for record in lost] == [
        True
    ]


async def test_events_of_a_session_forgotten_meanwhile_are_dropped(
    server: Sqld, tmp_path: Path
) -> None:
    async with between(server.port) as network, guest(network.url, tmp_path / "a") as memory:
        await memory.conversations.create("s")
        await memory.conversations.create("kept")
        network.fault = Fault.DROP
        await say(memory, "s", "never stored")
        await say(memory, "kept", "stored")
        async with guest(server.url(), tmp_path / "b") as other:
            await other.sessions.forget("s")
        network.fault = None
        await back(memory)
        assert await said(memory, "kept") == ["stored"]
        with pytest.raises(SessionNotFound):
            await memory.conversations.get("s")
    assert await stored(server) == [("kept", 1, "stored")]

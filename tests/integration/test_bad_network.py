"""A memory server behind a network that fails in every way: nothing is claimed that is
not there, nothing is there twice, and work goes on when the network is well again."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from guest.memory.models import RemoteConfig
from guest.memory.storage.migrations import migrate
from guest.memory.storage.remote import RemoteDatabase
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened
from tests.support.servers import sqld
from tests.support.servers.bad_network import BadNetwork, Fault, between

pytestmark = pytest.mark.sqld

HANGS = (Fault.SWALLOW, Fault.SWALLOW_REQUEST)


@pytest.fixture(scope="module")
def server() -> Iterator[sqld.Sqld]:
    with sqld.running() as running:
        yield running


@pytest.fixture
async def network(server: sqld.Sqld) -> AsyncIterator[BadNetwork]:
    async with between(server.port) as proxy:
        yield proxy


@pytest.fixture
async def direct(server: sqld.Sqld) -> AsyncIterator[RemoteDatabase]:
    """A way to the server that is always well."""
    async with sqld.connected(server.url()) as database:
        await migrate(database)
        await database.execute("CREATE TABLE IF NOT EXISTS marks (name TEXT)")
        yield database


def patience(fault: Fault, hurried_s: float) -> float:
    """Seconds for a request: few where it hangs, and else enough for a busy machine."""
    return hurried_s if fault in HANGS else 30.0


@pytest.mark.parametrize("fault", Fault)
async def test_one_fault_per_request_does_not_stop_a_memory(
    fault: Fault, network: BadNetwork, direct: RemoteDatabase, tmp_path: Path
) -> None:
    """Saved, changed, deleted and said: each answered as done, and done once, also while
    the index and the copy ask the server for things of their own."""
    network.spare_repetitions()
    config = RemoteConfig(
        network.url, timeout_s=patience(fault, 1.5), first_wait_s=sqld.SOON_S, one_user=True
    )
    count = 2 if fault in HANGS else 4
    path = tmp_path / "memory.db"
    async with opened(path, FakeEmbedder(), remote=config, embed_wait_s=2.0) as memory:
        session = await memory.conversations.create(f"s-{fault.name}")
        for number in range(count):
            text = f"{fault.name} note {number}"
            network.strike(fault, 1)
            saved = await memory.save(text, [], ORIGIN)
            assert saved.created
            network.strike(fault, 1)
            again = await memory.save(text, [], ORIGIN)
            assert (again.created, again.note.note_id) == (False, saved.note.note_id)
            network.strike(fault, 1)
            changed = (
                await memory.update(saved.note.note_id, f"{text} changed", None, ORIGIN)
            ).note
            assert changed.version == 2
            network.strike(fault, 1)
            said = await memory.conversations.append(
                session.session_id, turn_id="t", role="user", text=text, payload="{}"
            )
            assert said == number + 1
            if number % 2:
                network.strike(fault, 1)
                await memory.delete(saved.note.note_id)
        network.strike(None)
    notes = await direct.execute(
        "SELECT COUNT(*), COUNT(DISTINCT content) FROM notes WHERE content LIKE ?",
        (f"{fault.name} note%",),
    )
    kept = count - count // 2
    assert notes.rows == ((kept, kept),)
    events = await direct.execute(
        "SELECT COUNT(*) FROM conversation_events WHERE session_id = ?", (session.session_id,)
    )
    assert events.rows == ((count,),)
    left = await direct.execute(
        "SELECT COUNT(*) FROM chunks WHERE body LIKE ?", (f"{fault.name} note%",)
    )
    assert left.rows == ((kept + count,),)
    assert network.struck[fault] >= count

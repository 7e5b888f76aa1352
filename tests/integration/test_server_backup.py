"""A memory on a server: backed up as a file, and migrated once however many guests start."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import RemoteConfig
from guest.memory.storage.files.backup import Backups
from guest.memory.storage.migrations import MIGRATIONS, migrate
from guest.memory.storage.remote import RemoteDatabase
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened
from tests.support.servers.sqld import running
from tests.support.settings import memory_config

pytestmark = pytest.mark.sqld

ALICE, BOB = "alice", "bob"
KEY = "a key that only the tests know"


@pytest.fixture
def remote() -> Iterator[RemoteConfig]:
    with running() as server:
        yield RemoteConfig(server.url(), one_user=True)


async def test_a_backup_holds_everything_of_the_user_and_is_encrypted(
    remote: RemoteConfig, tmp_path: Path
) -> None:
    config = memory_config(tmp_path / "memory.db", encryption_key=KEY, remote=remote)
    memory = await Memory.open(config, FakeEmbedder(), ALICE)
    try:
        for i in range(30):
            await memory.save(f"note {i} quixotry", ["tagged"], ORIGIN)
        note = (await memory.save("likes tea", [], ORIGIN)).note
        await memory.update(note.note_id, "likes coffee", None, ORIGIN)
        await Memory(memory.store, BOB).save("nobody else's", [], ORIGIN)
        await memory.conversations.create("s1", title="Keys")
        await memory.conversations.append(
            "s1", turn_id="t1", role="user", text="where are they", payload="[]"
        )
        await embedded(memory, (await memory.statistics()).passages)
        backups = Backups(tmp_path / "backups", KEY, memory.copy_to)
        made = await backups.make()
        assert (made.notes, made.sessions) == (31, 1)
        expected, _ = await memory.list(100)
        counts = await memory.statistics()
    finally:
        await memory.close()
    file = tmp_path / "backups" / made.name
    assert b"quixotry" not in file.read_bytes()
    assert [p.name for p in file.parent.iterdir()] == [made.name]
    async with opened(file, FakeEmbedder(), encryption_key=KEY) as copy:
        assert (await copy.list(100))[0] == expected
        assert (await Memory(copy.store, BOB).list(100))[0] == []
        found = await copy.statistics()
        assert found.note_versions == counts.note_versions == 1
        assert found.passages_embedded == counts.passages
        events = await copy.conversations.history("s1", 10)
        assert [event.text for event in events] == ["where are they"]
        assert (await copy.search("coffee")).results[0].matched_by == "both"


async def test_many_guests_at_once_migrate_a_server_once(remote: RemoteConfig) -> None:
    guests = await asyncio.gather(*(RemoteDatabase.open(remote) for _ in range(6)))
    try:
        versions = await asyncio.gather(*(migrate(guest) for guest in guests))
        assert set(versions) == {len(MIGRATIONS)}
        sql = "SELECT version, name FROM memory_migrations ORDER BY version"
        history = (await guests[0].execute(sql)).rows
        assert history == tuple((m.version, m.name) for m in MIGRATIONS)
    finally:
        await asyncio.gather(*(guest.close() for guest in guests))

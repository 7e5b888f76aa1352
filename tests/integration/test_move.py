"""Whole memories from a file to a real server and back."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code

from guest.errors import GuestError, StorageError
from guest.memory.models import MemoryConfig, RemoteConfig, User
from guest.memory.storage.base import Database
from guest.memory.storage.erasure import Eraser
from guest.memory.storage.remote import RemoteDatabase
from guest.memory.transfer import move as move_module
from guest.memory.transfer.exporter import export
from guest.memory.transfer.move import move
from guest.schedules.store import Schedule, Schedules, Slot
from guest.schedules.timing import stored
from tests.support.memory.exports import TIME, entities, event, exported, file, note, session
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened
from tests.support.servers.sqld import connected, running
from tests.support.settings import memory_config

pytestmark = pytest.mark.sqld

ALICE = User("alice")


@pytest.fixture
def config(tmp_path: Path) -> Iterator[MemoryConfig]:
    """A local file, and a server that has nothing yet."""
    with running() as sqld:
        yield memory_config(tmp_path / "memory.db", remote=RemoteConfig(sqld.url(), one_user=True))


def silent(_step: str, _done: int, _total: int) -> None:
    pass


async def fill(path: Path) -> list[bytes]:
    """A memory with everything in it; its lines."""
    kinds: list[dict[str, Any]] = [
        {"key": "k"},
        {"scope_session": "s2"},
        {"superseded_by": "n0", "superseded_reason": "so", "superseded_at": TIME},
        {"superseded_by": "", "superseded_at": TIME},
        {"access_count": 4, "accessed_at": TIME},
    ]
    notes = [
        note(f"n{n}", f"tea 👩‍🚀 {n}", 1 + n % 30, **(kinds[n] if n < len(kinds) else {}))
        for n in range(70)
    ]
    said = [event("s1", n, f"It was said\u2028{n}.") for n in range(1, 140)]
    state = {"name": "summary", "value": "short", "epoch": 3, "updated_at": TIME}
    sessions = (session("s1", title="A", state=[state]), *said, session("s2", parent_id="s1"))
    async with opened(path, FakeEmbedder()) as memory:
        report = await memory.importer().feed(file(*notes, *sessions))
        assert report.problems == []
        await memory.save("the newest note", ["tag"], ORIGIN)
        await embedded(memory, 71 + 139)
        return entities(await exported(memory))


@asynccontextmanager
async def on(config: MemoryConfig) -> AsyncIterator[RemoteDatabase]:
    assert config.remote is not None
    async with connected(config.remote.url) as database:
        yield database


async def on_server(config: MemoryConfig) -> list[bytes]:
    """What an export of the server's memory holds."""
    async with on(config) as database:
        return entities(b"".join([part.lines async for part in export(database, ALICE)]))


async def test_a_memory_goes_to_the_server_and_back_and_loses_nothing(
    config: MemoryConfig, tmp_path: Path
) -> None:
    before = await fill(Path(config.db_path))
    steps: list[tuple[str, int, int]] = []
    moved = await move(config, ALICE, to_remote=True, progress=lambda *step: steps.append(step))
    assert moved == {
        "notes": 71,
        "note_versions": sum(n % 30 for n in range(70)),
        "sessions": 2,
        "events": 139,
        "vectors": 210,
    }
    assert {step for step, _, _ in steps} == {"copying", "vectors", "comparing"}
    assert all(done <= total for _, done, total in steps)
    assert await on_server(config) == before
    async with opened(Path(config.db_path)) as memory:
        assert entities(await exported(memory)) == before
    back = replace(config, db_path=str(tmp_path / "back.db"))
    assert await move(back, ALICE, to_remote=False, progress=silent) == moved
    async with opened(Path(back.db_path), FakeEmbedder()) as memory:
        assert entities(await exported(memory)) == before
        statistics = await memory.statistics()
        assert statistics.passages_embedded == statistics.passages == 210


async def test_schedules_move_with_their_runs(
    config: MemoryConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several pages of them."""
    monkeypatch.setattr(move_module, "ROWS_PER_PAGE", 3)

    def of(database: Database) -> Schedules:
        return Schedules(database, Eraser(database), "alice", "host")

    moment = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    async with opened(Path(config.db_path)) as memory:
        here = of(memory.store.database)
        made = await here.create(
            Schedule("", "build", "look", "0 7 * * 1-5", "Europe/Berlin", moment.isoformat()),
            moment,
        )
        for day in range(8):
            slot = Slot(made.schedule_id, stored(moment + timedelta(days=day)), "running")
            assert await here.claim(slot)
            await here.end(replace(slot, state="done", cost=day), slot.slot[:10])
        assert len(runs := await here.runs(made.schedule_id, 10)) == 8
        made = await here.find("build")
    await move(config, ALICE, to_remote=True, progress=silent)
    async with on(config) as database:
        assert await of(database).find("build") == made
        assert await of(database).runs(made.schedule_id, 10) == runs
    back = replace(config, db_path=str(tmp_path / "back.db"))
    await move(back, ALICE, to_remote=False, progress=silent)
    async with opened(Path(back.db_path)) as memory:
        assert await of(memory.store.database).find("build") == made
        assert await of(memory.store.database).runs(made.schedule_id, 10) == runs


async def test_a_move_that_was_interrupted_goes_on(
    config: MemoryConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await fill(Path(config.db_path))
    applied, left = RemoteDatabase.batch, 0

    async def failing(self: RemoteDatabase, statements: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise StorageError(Code.UNAVAILABLE, "the cable was pulled")
        return await applied(self, statements)

    with monkeypatch.context() as patched:
        patched.setattr(RemoteDatabase, "batch", failing)
        for number in (12, 14, 16, 19):
            left = number
            with pytest.raises(StorageError, match="the cable was pulled"):
                await move(config, ALICE, to_remote=True, progress=silent)
    halfway = await on_server(config)
    assert 0 < len(halfway) < len(before)
    await move(config, ALICE, to_remote=True, progress=silent)
    assert await on_server(config) == before
    await move(config, ALICE, to_remote=True, progress=silent)
    assert await on_server(config) == before


async def test_what_was_forgotten_on_the_server_does_not_come_back_from_the_old_file(
    config: MemoryConfig,
) -> None:
    await fill(Path(config.db_path))
    await move(config, ALICE, to_remote=True, progress=silent)
    async with on(config) as server:
        await server.execute("DELETE FROM chunks WHERE note_id = 'n7'")
        await server.execute("DELETE FROM notes WHERE note_id = 'n7'")
    with pytest.raises(StorageError, match="the local file holds 1 notes") as caught:
        await move(config, ALICE, to_remote=False, progress=silent)
    assert "mv memory.db memory.db.old" in caught.value.resolution
    Path(config.db_path).rename(Path(config.db_path).with_suffix(".old"))
    await move(config, ALICE, to_remote=False, progress=silent)
    async with opened(Path(config.db_path)) as memory:
        assert all(b'"n7"' not in line for line in entities(await exported(memory)))


async def test_different_things_under_one_id_are_not_mixed(config: MemoryConfig) -> None:
    await fill(Path(config.db_path))
    await move(config, ALICE, to_remote=True, progress=silent)
    async with opened(Path(config.db_path)) as memory:
        await memory.update("n0", "local words", None, ORIGIN)
    async with on(config) as server:
        await server.execute(
            "UPDATE notes SET content = 'server words', version = 2 WHERE note_id = 'n0'"
        )
    with pytest.raises(StorageError, match="different things under the same ids") as caught:
        await move(config, ALICE, to_remote=True, progress=silent)
    assert "note n0 was changed here and there" in caught.value.details


async def test_a_difference_that_copying_does_not_see_is_found_by_comparing(
    config: MemoryConfig,
) -> None:
    await fill(Path(config.db_path))
    await move(config, ALICE, to_remote=True, progress=silent)
    async with on(config) as server:
        await server.execute("UPDATE notes SET superseded_reason = 'x' WHERE note_id = 'n9'")
    with pytest.raises(StorageError, match="does not hold the same") as caught:
        await move(config, ALICE, to_remote=True, progress=silent)
    assert "note n9 is not the same in both" in caught.value.details


async def test_recalls_at_either_place_do_not_stop_a_move(config: MemoryConfig) -> None:
    await fill(Path(config.db_path))
    await move(config, ALICE, to_remote=True, progress=silent)
    async with on(config) as server:
        await server.execute("UPDATE notes SET access_count = 9 WHERE note_id = 'n4'")
    await move(config, ALICE, to_remote=True, progress=silent)
    assert b'"access_count":9,"accessed_at":"2026' in (await on_server(config))[4]
    await move(config, ALICE, to_remote=False, progress=silent)
    async with opened(Path(config.db_path)) as memory:
        assert b'"access_count":9' in entities(await exported(memory))[4]


async def test_without_a_server_or_a_file_there_is_nothing_to_move(config: MemoryConfig) -> None:
    with pytest.raises(GuestError, match="no memory server"):
        await move(replace(config, remote=None), ALICE, to_remote=True, progress=silent)
    with pytest.raises(GuestError, match="there is no memory to move"):
        await move(config, ALICE, to_remote=True, progress=silent)
    assert not Path(config.db_path).exists()

"""Databases that are whole, damaged, foreign or owned, and that nothing changes in a look."""

import asyncio
import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.settings import EncryptionSettings, MemorySettings

from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, Origin
from runner.config.models import Config
from runner.doctor import database as checks
from runner.doctor.finding import State
from runner.host.runtime import Runtime, host_lock

ORIGIN = Origin(actor="user", channel="test", session_id="s1", turn_id="t1")


@pytest.fixture
def config() -> Iterator[Config]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxd-"))
    (root / "ws/alice/.oxydra").mkdir(parents=True)
    yield Config(workspace_root=root / "ws", runtime_dir=root / "rt", tier="process")
    shutil.rmtree(root)


@pytest.fixture
def file(config: Config) -> Path:
    """A whole database."""
    path = config.workspace_root / "alice/.oxydra/memory.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, text TEXT)")
    rows = [(str(number), "word " * 200) for number in range(500)]
    connection.executemany("INSERT INTO notes VALUES (?, ?)", rows)
    connection.commit()
    connection.close()
    return path


def snapshot(file: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in file.parent.iterdir()
    }


def test_one_that_is_not_there_yet(config: Config) -> None:
    found = checks.database(config, "alice")
    assert found.state is State.OK
    assert "made at the first start" in found.what


def test_a_whole_one_is_left_as_it_was(config: Config, file: Path) -> None:
    before = snapshot(file)
    found = checks.database(config, "alice")
    assert (found.state, found.what) == (State.OK, f"{file} is whole")
    assert snapshot(file) == before


async def test_a_real_memory_is_whole_once_its_owner_has_closed_it(config: Config) -> None:
    path = config.workspace_root / "alice/.oxydra/memory.db"
    memory = await Memory.open(MemoryConfig(db_path=str(path)), None, "alice")
    try:
        await memory.save("the cat is called Tibbles", (), ORIGIN)
        found = await asyncio.to_thread(checks.database, config, "alice")
        assert (found.state, found.what) == (State.OK, f"{path} is in use")
        await memory.save("and the dog Rex", (), ORIGIN)
    finally:
        await memory.close()
    before = snapshot(path)
    found = await asyncio.to_thread(checks.database, config, "alice")
    assert (found.state, found.what) == (State.OK, f"{path} is whole")
    assert snapshot(path) == before


def test_a_damaged_one(config: Config, file: Path) -> None:
    with file.open("rb+") as content:
        content.seek(4096)
        content.write(os.urandom(60_000))
    found = checks.database(config, "alice")
    assert found.state is State.PROBLEM
    assert found.what.startswith(f"{file} is damaged")
    assert found.fix == f"restore it, or: mv {file} {file}.damaged"


def test_something_else_in_its_place(config: Config, file: Path) -> None:
    file.write_bytes(os.urandom(8192))
    found = checks.database(config, "alice")
    assert found.state is State.PROBLEM
    assert "it may be encrypted" in found.what


def test_one_whose_owner_was_killed_keeps_its_log(config: Config, file: Path) -> None:
    file.with_name("memory.db-wal").write_bytes(b"frames")
    before = snapshot(file)
    found = checks.database(config, "alice")
    assert found.state is State.OK
    assert "the next start replays its log" in found.what
    assert snapshot(file) == before


@pytest.mark.parametrize("name", ["memory.db", "memory.db.lock"])
@pytest.mark.parametrize("key", ["", "KEY"])
def test_a_pipe_in_its_place_is_not_waited_for(
    config: Config, file: Path, name: str, key: str
) -> None:
    """The attack: an agent leaves a pipe to which nobody writes."""
    planted = file.with_name(name)
    planted.unlink(missing_ok=True)
    os.mkfifo(planted)
    memory = MemorySettings(encryption=EncryptionSettings(key_env=key))
    asked = config.model_copy(update={"memory": memory})
    found = checks.database(asked, "alice", timeout=20.0)
    if key and name != file.name:
        assert "is not encrypted" in found.what
    else:
        assert "it is not a plain file" in found.what


def test_one_that_is_owned_is_not_opened(config: Config, file: Path) -> None:
    with file.open("rb+") as content:
        content.truncate(5000)
    with file.with_name("memory.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = checks.database(config, "alice")
    assert (found.state, found.what) == (State.OK, f"{file} is in use")


def test_that_of_a_running_host_is_not_even_looked_at(config: Config, file: Path) -> None:
    file.write_bytes(b"damaged" * 1000)
    assert checks.database(config, "alice").state is State.PROBLEM
    runtime = Runtime.locate(config, "alice")
    runtime.create()
    with host_lock(runtime.lock):
        found = checks.database(config, "alice")
    assert found.state is State.OK
    assert "running host" in found.what


def test_one_that_cannot_be_opened(config: Config, file: Path) -> None:
    file.unlink()
    file.mkdir()
    found = checks.database(config, "alice")
    assert found.state is State.PROBLEM
    assert found.what.startswith(f"{file} cannot be read")


def test_a_place_that_tools_could_see(config: Config) -> None:
    bad = config.model_copy(update={"memory": MemorySettings(db_path="shared/memory.db")})
    found = checks.database(bad, "alice")
    assert found.state is State.PROBLEM
    assert "memory.db_path" in found.what


def test_a_look_that_takes_too_long(config: Config, file: Path) -> None:
    found = checks.database(config, "alice", timeout=0.0)
    assert found.state is State.WARNING
    assert "could not be checked within 0 s" in found.what


@pytest.mark.parametrize(
    ("content", "state"),
    [(b"SQLite format 3\0 and more", State.PROBLEM), (b"\x8a\x11\xfe" * 40, State.OK)],
)
def test_an_encrypted_file_is_told_by_its_beginning(
    config: Config, content: bytes, state: State
) -> None:
    path = config.workspace_root / "alice" / ".oxydra" / "memory.db"
    path.write_bytes(content)
    memory = MemorySettings(encryption=EncryptionSettings(key_env="KEY"))
    found = checks.database(config.model_copy(update={"memory": memory}), "alice")
    assert found.state is state, found
    assert found.fix == ("runner memory rekey" if state is State.PROBLEM else "")

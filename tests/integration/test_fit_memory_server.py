"""Which memory servers are taken for a user's memory: by the agent at its start, by the doctor."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code
from wire.settings import MemorySettings

from guest.errors import StorageError
from guest.memory.factory import admit, prepare
from guest.memory.models import RemoteConfig, User
from guest.memory.storage.base import Result, Value
from guest.memory.transfer.move import move
from runner.config.models import Config
from runner.doctor.finding import Finding, State
from runner.doctor.memory import memory
from tests.support.memory.store import ORIGIN, opened
from tests.support.servers import sqld
from tests.support.settings import memory_config

KEYS = sqld.Keys()
ROWS = b'{"type": "ok", "response": {"result": {"rows": [%s]}}}'
NOBODY = Path("/nonexistent")
REACHES = "may reach files (fsdir, readfile, writefile)"


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    sqld.localhost_names(monkeypatch)


@pytest.fixture(scope="module")
def shared() -> Iterator[sqld.Sqld]:
    with sqld.running(KEYS, namespaces=True) as server:
        asyncio.run(server.create_namespace("alice"))
        asyncio.run(server.create_namespace("bob"))
        yield server


@pytest.fixture(scope="module")
def alone() -> Iterator[sqld.Sqld]:
    with sqld.running(KEYS) as server:
        yield server


def remote(server: sqld.Sqld, name: str = "", *, one_user: bool) -> RemoteConfig:
    return RemoteConfig(server.url(name), KEYS.token(name or "default"), one_user=one_user)


def examined(server: sqld.Sqld, name: str = "", **settings: Any) -> Finding:
    section = {"remote_url": server.url(name), "auth_token_env": "TOKEN", **settings}
    config = Config(tier="process", workspace_root=NOBODY, memory=MemorySettings(**section))
    found = memory(config, "alice", {"TOKEN": KEYS.token(name or "default")})
    assert found[0].state is State.OK
    return found[1]


@pytest.mark.sqld
async def test_a_server_whose_sql_reaches_files_is_refused_at_the_start(
    shared: sqld.Sqld, tmp_path: Path
) -> None:
    where = remote(shared, "alice", one_user=False)
    with pytest.raises(StorageError) as raised:
        async with opened(tmp_path / "m.db", remote=where):
            pass
    assert raised.value.code == Code.FAILED_PRECONDITION
    assert REACHES in raised.value.brief
    assert "sqld-users.sh add USER" in raised.value.resolution
    assert "memory.server_holds_one_user = true: runner config edit" in raised.value.resolution
    async with sqld.connected(where.url, where.auth_token) as database:
        tables = await database.execute("SELECT count(*) FROM sqlite_schema")
    assert tables.rows == ((0,),)


@pytest.mark.sqld
async def test_a_server_of_one_user_is_taken_where_that_is_said(
    alone: sqld.Sqld, tmp_path: Path
) -> None:
    async with opened(tmp_path / "m.db", remote=remote(alone, one_user=True)) as kept:
        await kept.save("the bike is in the cellar", [], ORIGIN)
    with pytest.raises(StorageError, match="may reach files"):
        async with opened(tmp_path / "m.db", remote=remote(alone, one_user=False)):
            pass


@pytest.mark.sqld
async def test_a_server_with_a_database_for_each_name_is_not_believed_to_hold_one(
    shared: sqld.Sqld, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="holds more than one user") as raised:
        async with opened(tmp_path / "m.db", remote=remote(shared, "alice", one_user=True)):
            pass
    assert "--enable-namespaces" in raised.value.details


@pytest.mark.sqld
async def test_a_memory_leaves_a_shared_server_and_none_goes_there(
    shared: sqld.Sqld, alone: sqld.Sqld, tmp_path: Path
) -> None:
    old = memory_config(tmp_path / "memory.db", remote=remote(shared, "bob", one_user=True))
    user = User("bob")
    async with sqld.connected(shared.url("bob"), KEYS.token("bob")) as database:
        await prepare(database)
    counts = await move(old, user, to_remote=False, progress=lambda *_: None)
    assert counts["notes"] == 0
    with pytest.raises(StorageError, match="holds more than one user"):
        await move(old, user, to_remote=True, progress=lambda *_: None)


@pytest.mark.sqld
def test_the_doctor_says_the_same(shared: sqld.Sqld, alone: sqld.Sqld) -> None:
    found = examined(shared, "alice")
    assert found.state is State.PROBLEM
    assert REACHES in found.what
    assert "sqld-users.sh add USER" in found.fix
    assert "holds more than one" in examined(shared, "alice", server_holds_one_user=True).what
    assert examined(alone).state is State.PROBLEM
    url = alone.url()
    good = Finding("memory server", State.OK, f"{url} answers")
    assert examined(alone, server_holds_one_user=True) == good


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        *(
            b"HTTP/1.1 200 OK\r\n\r\n" + body
            for body in (b"[" * 99_999, b'{"results": [%s, %s]}' % ((ROWS % b"[]",) * 2))
        ),
    ],
)
def test_the_doctor_bears_what_else_may_listen_there(answer: bytes) -> None:
    peers = []

    def answered() -> None:
        peers.append(server.accept()[0])
        peers[0].sendall(answer)
        peers[0].shutdown(socket.SHUT_WR)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answered, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        config = Config(
            tier="process", workspace_root=NOBODY, memory=MemorySettings(remote_url=url)
        )
        assert memory(config, "alice", {})[1].what == f"{url} is not a memory server"


class _Engine:
    """A database of an engine that knows some of the questions only."""

    def __init__(self, **answers: tuple[str, ...]) -> None:
        self._answers = answers

    async def execute(self, sql: str, args: tuple[Value, ...] = ()) -> Result:
        for word, texts in self._answers.items():
            if word in sql:
                return Result(tuple((text,) for text in texts), 0)
        raise StorageError(Code.INTERNAL, "failed", details="no such function")


@pytest.mark.parametrize("url", ["https://x.example", "https://notes-alice.aws.turso.io"])
@pytest.mark.parametrize("one_user", [True, False])
async def test_a_database_without_full_text_search_is_named_with_the_way_out(
    url: str, one_user: bool
) -> None:
    """As Turso's newer engine answers: it has neither the function nor the pragma."""
    with pytest.raises(StorageError, match=r"no full-text search \(FTS5\)") as raised:
        await admit(_Engine(), RemoteConfig(url, one_user=one_user))  # type: ignore[arg-type]
    assert "--tursodb" in raised.value.details
    assert "turso db create NAME" in raised.value.resolution


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "does not say what it can do"),
        ({"pragma_function_list": ()}, "does not say what it can do"),
        ({"pragma_function_list": ("abs", "file_read")}, r"may reach files \(file_read\)"),
        ({"pragma_function_list": ("abs", "READFILE")}, r"may reach files \(READFILE\)"),
        ({"pragma_function_list": ("eval", "pragma_x", "file /data")}, r"may reach files \(eval\)"),
        ({"pragma_function_list": tuple(map(str, range(99)))}, r"\(0, 1, 10, .*, …\)"),
    ],
)
async def test_a_server_whose_sql_may_do_what_is_not_known_is_refused(
    answers: dict[str, tuple[str, ...]], said: str
) -> None:
    engine: Any = _Engine(fts5_source_id=("fts5",), **answers)
    with pytest.raises(StorageError, match=said):
        await admit(engine, RemoteConfig("https://x.example"))
    await admit(engine, RemoteConfig("https://x.example", one_user=True))


async def test_tursos_cloud_gets_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    engine = _Engine(fts5_source_id=("fts5",), pragma_function_list=("abs", "readfile"))
    await admit(engine, RemoteConfig("https://n-a.turso.io"))  # type: ignore[arg-type]
    assert "may reach files (readfile)" in caplog.text
    for url in ("https://n-a.turso.io.example", "https://example/n-a.turso.io"):
        with pytest.raises(StorageError, match="may reach files"):
            await admit(engine, RemoteConfig(url))  # type: ignore[arg-type]


async def test_a_server_without_such_functions_may_hold_many() -> None:
    engine = _Engine(fts5_source_id=("fts5",), pragma_function_list=("abs", "json_each"))
    await admit(engine, RemoteConfig("https://x.example"))  # type: ignore[arg-type]

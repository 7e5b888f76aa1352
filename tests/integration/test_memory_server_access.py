"""Who may reach a memory on a server, and what is said where somebody may not."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.models import RemoteConfig
from guest.memory.storage.base import Statement
from guest.memory.storage.migrations import migrate
from guest.memory.storage.remote import RemoteDatabase, is_query
from tests.support.servers import sqld
from tests.support.servers.authority import Authority

CREATE = "CREATE TABLE IF NOT EXISTS secrets (text TEXT)"


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    sqld.localhost_names(monkeypatch)


@pytest.fixture(scope="module")
def keys() -> sqld.Keys:
    return sqld.Keys()


@pytest.fixture(scope="module")
def server(keys: sqld.Keys) -> Iterator[sqld.Sqld]:
    """With namespaces and tokens for alice and bob."""
    with sqld.running(keys, namespaces=True) as running:
        asyncio.run(running.create_namespace("alice"))
        asyncio.run(running.create_namespace("bob"))
        yield running


@pytest.fixture
async def alice(server: sqld.Sqld, keys: sqld.Keys) -> AsyncIterator[RemoteDatabase]:
    async with sqld.connected(server.url("alice"), keys.token("alice")) as database:
        await migrate(database)
        await database.execute(CREATE)
        yield database


@pytest.mark.sqld
async def test_two_users_of_one_server_never_meet(
    alice: RemoteDatabase, server: sqld.Sqld, keys: sqld.Keys
) -> None:
    await alice.execute("INSERT INTO secrets VALUES ('only for alice')")
    async with sqld.connected(server.url("bob"), keys.token("bob")) as bob:
        await migrate(bob)
        await bob.execute(CREATE)
        assert (await bob.execute("SELECT * FROM secrets")).rows == ()
        with pytest.raises(StorageError):
            await bob.execute('ATTACH "alice" AS other')
    async with sqld.connected(server.url("alice"), keys.token("bob")) as thief:
        with pytest.raises(StorageError, match="there is no memory at") as raised:
            await thief.execute("SELECT * FROM secrets")
        assert "runner memory token" in raised.value.resolution


@pytest.mark.sqld
@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", Code.UNAUTHENTICATED),
        ("garbage", Code.UNAUTHENTICATED),
        ("expired", Code.UNAUTHENTICATED),
        ("of another key", Code.UNAUTHENTICATED),
        ("read only", Code.PERMISSION_DENIED),
    ],
)
async def test_a_refused_token_is_said_and_never_shown(
    token: str,
    code: Code,
    alice: RemoteDatabase,
    server: sqld.Sqld,
    keys: sqld.Keys,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = {
        "expired": keys.token("alice", exp=1),
        "of another key": sqld.Keys().token("alice"),
        "read only": keys.token("alice", access="ro"),
    }
    given = tokens.get(token, token)
    async with sqld.connected(server.url("alice"), given) as database:
        with pytest.raises(StorageError, match="refuses the token") as raised:
            await database.execute("INSERT INTO secrets VALUES ('x')")
        assert raised.value.code == code
        assert "runner memory token" in raised.value.resolution
        if given:
            assert given not in f"{raised.value}{raised.value!r}{caplog.text}"
            assert given not in repr(RemoteConfig(server.url("alice"), given))
        with pytest.raises(StorageError, match="refuses the token"):
            await alice.set_token(given)
    await alice.execute("INSERT INTO secrets VALUES ('the old token still holds')")


@pytest.mark.sqld
async def test_a_database_that_is_not_there_is_said(server: sqld.Sqld, keys: sqld.Keys) -> None:
    async with sqld.connected(server.url("nobody"), keys.token("nobody")) as database:
        with pytest.raises(StorageError, match="there is no memory at") as raised:
            await database.execute("SELECT 1")
    assert raised.value.code == Code.FAILED_PRECONDITION


@pytest.mark.sqld
async def test_a_killed_server_keeps_what_it_answered() -> None:
    with sqld.running() as server:
        async with sqld.connected(server.url()) as database:
            await migrate(database)
            await database.execute(CREATE)
            for number in range(5):
                await database.batch([Statement("INSERT INTO secrets VALUES (?)", (str(number),))])
                server.kill()
                with pytest.raises(StorageError, match="cannot be reached"):
                    await database.execute("SELECT 1")
                server.start()
            rows = (await database.execute("SELECT text FROM secrets")).rows
    assert [text for (text,) in rows] == ["0", "1", "2", "3", "4"]


@pytest.mark.sqld
async def test_old_keys_are_pruned_and_young_ones_are_not(
    alice: RemoteDatabase, server: sqld.Sqld, keys: sqld.Keys
) -> None:
    await alice.execute("DELETE FROM batches")
    await alice.batch(
        [
            Statement("INSERT INTO batches VALUES ('old', unixepoch() - 86500)"),
            Statement("INSERT INTO batches VALUES ('old and void', 86500 - unixepoch())"),
            Statement("INSERT INTO batches VALUES ('young', unixepoch() - 86300)"),
            Statement("INSERT INTO batches VALUES ('young and void', 86300 - unixepoch())"),
        ]
    )
    async with sqld.connected(server.url("alice"), keys.token("alice")) as opened_again:
        await opened_again.execute("INSERT INTO secrets VALUES ('a change')")
    left = await alice.execute("SELECT key FROM batches WHERE length(key) < 20 ORDER BY key")
    assert left.rows == (("young",), ("young and void",))


async def _tls_server(authority: Authority, name: str) -> asyncio.Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate_for(name))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 418 x\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)


@pytest.mark.parametrize(
    ("name", "trusted", "said"),
    [
        ("localhost", True, "does not serve a memory"),
        ("localhost", False, "is not trusted"),
        ("elsewhere.example", True, "is not trusted"),
    ],
)
async def test_only_a_trusted_certificate_of_that_name_is_spoken_to(
    name: str, trusted: bool, said: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    listening = await _tls_server(authority, name)
    url = f"https://localhost:{listening.sockets[0].getsockname()[1]}"
    settings: dict[str, Any] = {"ca_pem": authority.pem} if trusted else {}
    async with listening, sqld.connected(url, "token", **settings) as database:
        with pytest.raises(StorageError, match=said) as raised:
            await database.execute("SELECT 1")
    assert raised.value.code == Code.FAILED_PRECONDITION


async def test_certificates_that_are_none_are_refused() -> None:
    with pytest.raises(StorageError, match=r"memory\.ca_file holds no certificates"):
        await RemoteDatabase.open(RemoteConfig("https://x.example", ca_pem="nonsense"))


async def test_where_nobody_listens_nothing_is_left_open() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        async with sqld.connected(url, timeout_s=30) as database:
            with pytest.raises(StorageError, match="cannot be reached") as raised:
                await database.execute("DELETE FROM notes")
    assert raised.value.code == Code.UNAVAILABLE


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT 1", True),
        ("\n  select replace(a, 'b', 'c') FROM t", True),
        ("WITH a AS (SELECT 1) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", False),
        ("PRAGMA page_count", True),
        ("PRAGMA user_version = 3", False),
        ("PRAGMA wal_checkpoint(TRUNCATE)", False),
        ("selection", False),
        ("INSERT INTO t SELECT 1", False),
        ("DELETE FROM t", False),
    ],
)
def test_only_what_surely_changes_nothing_is_asked_again(sql: str, reads: bool) -> None:
    assert is_query(sql) is reads

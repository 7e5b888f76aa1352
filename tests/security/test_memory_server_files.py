"""What the SQL of a memory server reaches: every function and every table of the real server, tried
by one user against the files of another."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from wire.memory_server import ABILITIES, files_in_reach

from guest.errors import StorageError
from guest.memory.storage.base import Value
from guest.memory.storage.remote import RemoteDatabase
from tests.support.servers import sqld

pytestmark = [pytest.mark.sqld, pytest.mark.root]

SECRET: Final = b"what only bob knows"
ALICE, BOB = 1_990_000_001, 1_990_000_002
REACHING: Final = {"readfile", "writefile", "fsdir"}
_FUNCTIONS: Final = "SELECT DISTINCT name, narg, type FROM pragma_function_list"
_MODULES: Final = "SELECT name FROM pragma_module_list"


@pytest.fixture(autouse=True)
def _names(monkeypatch: pytest.MonkeyPatch) -> None:
    sqld.localhost_names(monkeypatch)


def calls(name: str, narg: int, kind: str) -> Iterator[str]:
    """The function with the path as each of its arguments."""
    over = " OVER ()" if kind == "w" else ""
    for count in range(1, 4) if narg < 0 else (narg,):
        for place in range(count):
            for other in ("1", "'x'"):
                words = ["?1" if at == place else other for at in range(count)]
                yield f"SELECT {name}({', '.join(words)}){over}"


def tables(name: str) -> Iterator[str]:
    for words in ("?1", "?1, ?1", "'main', ?1"):
        yield f"SELECT * FROM {name}({words}) LIMIT 100"


async def reached(database: RemoteDatabase, directory: Path) -> set[str]:
    """The functions and tables with which the user of `database` reads or changes a file beside the
    database in `directory`."""
    found = set()
    asked = [
        (str(name), sql)
        for name, narg, kind in (await database.execute(_FUNCTIONS)).rows
        for sql in calls(str(name), int(str(narg)), str(kind))
    ]
    for (name,) in (await database.execute(_MODULES)).rows:
        asked += [(str(name), sql) for sql in tables(str(name))]
    assert len(asked) > 300
    target = laid(directory)
    for name, sql in asked:
        if any(SECRET in value for value in await told(database, sql, target)):
            found.add(name)
        if not target.exists() or target.read_bytes() != SECRET:
            found.add(name)
            target = laid(directory)
    assert (await database.execute("SELECT 1")).rows == ((1,),)
    return found


async def told(database: RemoteDatabase, sql: str, path: Path) -> list[bytes]:
    """All values that a query about `path` gives, none if it is refused."""
    try:
        rows = (await database.execute(sql, (str(path),))).rows
    except StorageError:
        return []
    return [_bytes(value) for row in rows for value in row if value is not None]


def laid(directory: Path) -> Path:
    """A file with the owner of the database beside it, who alone may read it."""
    path, owner = directory / "victim", (directory / "data").stat()
    path.unlink(missing_ok=True)
    path.write_bytes(SECRET)
    path.chmod(0o600)
    os.chown(path, owner.st_uid, owner.st_gid)
    return path


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


@asynccontextmanager
async def kept_by_bob(server: sqld.Sqld, url: str, token: str) -> AsyncIterator[None]:
    async with sqld.connected(url, token) as bob:
        await bob.execute("CREATE TABLE secrets (text TEXT)")
        await bob.execute("INSERT INTO secrets VALUES (?)", (SECRET.decode(),))
        yield
        assert (await bob.execute("SELECT text FROM secrets")).rows == ((SECRET.decode(),),)


async def test_on_a_shared_server_only_what_is_known_to_reach_files_does() -> None:
    """So that the start asks for the right names: it refuses such a server."""
    keys = sqld.Keys()
    with sqld.running(keys, namespaces=True) as server:
        for user in ("alice", "bob"):
            await server.create_namespace(user)
        async with (
            kept_by_bob(server, server.url("bob"), keys.token("bob")),
            sqld.connected(server.url("alice"), keys.token("alice", access="ro")) as alice,
        ):
            found = await reached(alice, server.data / "dbs/bob")
            names = [str(name) for (name,) in (await alice.execute(ABILITIES)).rows]
    assert found == REACHING
    assert set(files_in_reach(names)) == found


@pytest.mark.attempt(
    "reading or changing another user's memory by any function or table of the memory server's SQL",
    stopped_by="a process, a uid and a volume for each user's server",
)
async def test_no_function_of_ones_own_server_reaches_another_users_memory() -> None:
    of_alice, of_bob = sqld.Keys(), sqld.Keys()
    with sqld.running(of_alice, uid=ALICE) as hers, sqld.running(of_bob, uid=BOB) as his:
        async with (
            kept_by_bob(his, his.url(), of_bob.token("default")),
            sqld.connected(hers.url(), of_alice.token("default")) as alice,
        ):
            own = laid(hers.data / "dbs/default")
            assert await told(alice, "SELECT readfile(?)", own) == [SECRET]
            directory = his.data / "dbs/default"
            assert await reached(alice, directory) == set()
            for path in [*directory.rglob("*"), Path(f"/proc/{his.pid}/environ")]:
                for sql in ("SELECT readfile(?)", "SELECT data FROM fsdir(?)"):
                    assert not any(await told(alice, sql, path))


@pytest.mark.attempt(
    "opening another user's memory server with one's own token", stopped_by="a key for each server"
)
async def test_a_token_opens_the_server_of_its_own_key_alone() -> None:
    of_alice, of_bob = sqld.Keys(), sqld.Keys()
    with sqld.running(of_bob) as his:
        async with sqld.connected(his.url(), of_alice.token("default")) as alice:
            with pytest.raises(StorageError, match="refuses the token"):
                await alice.execute("SELECT 1")

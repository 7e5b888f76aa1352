"""What every `Database` does, run against each implementation."""

import asyncio
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer

from guest.errors import StorageError
from guest.memory.models import RemoteConfig
from guest.memory.storage.base import ConstraintViolated, Database, Statement, Value
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import migrate
from guest.memory.storage.remote import RemoteDatabase
from tests.support.scratch import SCRATCH
from tests.support.servers import sqld, sqld_image

INTEGER_MAX = 2**53 - 1


@asynccontextmanager
async def local() -> AsyncIterator[Database]:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
        yield await LocalDatabase.open(Path(scratch) / "test.db")


@asynccontextmanager
async def remote() -> AsyncIterator[Database]:
    """On a real server; with the table of keys, as every memory has it."""
    with sqld.running() as server:
        opened = await RemoteDatabase.open(RemoteConfig(server.url()))
        await migrate(opened)
        yield opened


@cache
def container() -> DockerContainer:
    """One server for all tests; each has a namespace of its own in it."""
    testcontainers_config.ryuk_disabled = True  # its image may not be had; see _stop_container
    command = ["sqld", "--no-welcome", "--http-listen-addr=0.0.0.0:8080"]
    command += ["--admin-listen-addr=0.0.0.0:9090", "--enable-namespaces"]
    server = DockerContainer(sqld_image.build()).with_command(command)
    # Of IPv4 alone: an engine may give IPv6 another port, and tell that one first.
    ports: dict[str, Any] = dict.fromkeys(("8080", "9090"), ("127.0.0.1",))
    server.ports = ports
    return server.start()


@asynccontextmanager
async def in_container() -> AsyncIterator[Database]:
    """On a real server in a container."""
    port, admin = (int(container().get_exposed_port(inside)) for inside in (8080, 9090))
    sqld.wait_for(lambda: str(container().get_logs()), port)
    name = f"n{uuid.uuid4().hex}"
    await sqld.create_namespace(admin, name)
    with pytest.MonkeyPatch.context() as patch:
        sqld.localhost_names(patch)
        opened = await RemoteDatabase.open(RemoteConfig(f"http://{name}.localhost:{port}"))
        await migrate(opened)
        yield opened


IMPLEMENTATIONS = {"local": local, "remote": remote, "container": in_container}


@pytest.fixture(scope="module", autouse=True)
def _stop_container() -> Iterator[None]:
    yield
    if container.cache_info().currsize:
        container().stop()


@pytest.fixture(
    params=[
        "local",
        pytest.param("remote", marks=pytest.mark.sqld),
        pytest.param("container", marks=[pytest.mark.sqld, pytest.mark.docker]),
    ]
)
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """An empty database of each implementation with one table to play with."""
    async with IMPLEMENTATIONS[request.param]() as opened:
        await opened.execute(
            "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT UNIQUE, value, vector, "
            "positive INTEGER CHECK (positive > 0))"
        )
        await opened.execute(
            "CREATE TABLE parts (id INTEGER PRIMARY KEY, "
            "thing INTEGER REFERENCES things (id) ON DELETE CASCADE)"
        )
        yield opened
        await opened.close()


async def names(database: Database) -> list[Value]:
    return [row[0] for row in (await database.execute("SELECT name FROM things ORDER BY id")).rows]


async def add(database: Database, name: str) -> None:
    await database.execute("INSERT INTO things (name) VALUES (?)", (name,))


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        -1,
        2**31 - 1,
        1.5,
        -1e300,
        "",
        "plain",
        "naïve 日本語 🧠 e\u0301 \u200b\ufeff\r\n\t",
        "'; DROP TABLE things; --",
        "x" * 1_000_000,
        b"",
        b"\x00\xff\x00 bytes",
    ],
)
async def test_values_come_back_as_they_were(database: Database, value: Value) -> None:
    """Of this column, the only one for bytes."""
    await database.execute("INSERT INTO things (vector) VALUES (?)", (value,))
    rows = (await database.execute("SELECT vector, typeof(vector) FROM things")).rows
    assert rows[0][0] == value
    assert type(rows[0][0]) is type(value)


@pytest.mark.parametrize("number", [INTEGER_MAX, -INTEGER_MAX, 2**31, -(2**31), 2**40 + 1])
async def test_large_integers_are_exact_in_integer_columns(database: Database, number: int) -> None:
    await database.execute("CREATE TABLE numbers (n INTEGER)")
    await database.execute("INSERT INTO numbers VALUES (?)", (number,))
    rows = (await database.execute("SELECT n, typeof(n) FROM numbers")).rows
    assert rows == ((number, "integer"),)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (INTEGER_MAX + 1, "integer"),
        (-INTEGER_MAX - 1, "integer"),
        (2**100, "integer"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
        ("tail \udfff", "surrogate"),
        (float("nan"), "NaN"),
        (float("inf"), "infinite"),
        (float("-inf"), "infinite"),
    ],
)
async def test_a_value_that_would_be_damaged_is_refused_before_anything_runs(
    database: Database, value: Value, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        await database.execute("INSERT INTO things (value) VALUES (?)", (value,))
    with pytest.raises(ValueError, match=reason):
        await database.batch(
            [
                Statement("INSERT INTO things (name) VALUES ('first')"),
                Statement("INSERT INTO things (value) VALUES (?)", (value,)),
            ]
        )
    assert await names(database) == []


async def test_an_unknown_type_is_refused(database: Database) -> None:
    with pytest.raises(TypeError, match="list"):
        await database.execute("SELECT ?", ([],))  # type: ignore[arg-type]


async def test_a_batch_gives_one_result_per_statement(database: Database) -> None:
    inserted, changed, returned, counted = await database.batch(
        [
            Statement("INSERT INTO things (name) VALUES ('a'), ('b')"),
            Statement("UPDATE things SET value = ?", (7,)),
            Statement("DELETE FROM things WHERE name = ? RETURNING name, value", ("a",)),
            Statement("SELECT COUNT(*) FROM things"),
        ]
    )
    assert inserted.rows == ()
    assert inserted.rows_affected == 2
    assert changed.rows_affected == 2
    assert returned.rows == (("a", 7),)
    assert counted.rows == ((1,),)


@pytest.mark.parametrize(
    "broken",
    [
        "INSERT INTO things (positive) VALUES (0)",
        "INSERT INTO things (name) VALUES ('first')",
        "INSERT INTO parts (thing) VALUES (99)",
    ],
)
async def test_a_constraint_undoes_the_whole_batch(database: Database, broken: str) -> None:
    with pytest.raises(ConstraintViolated):
        await database.batch(
            [
                Statement("INSERT INTO things (name) VALUES ('first')"),
                Statement(broken),
                Statement("INSERT INTO things (name) VALUES ('last')"),
            ]
        )
    assert await names(database) == []
    await add(database, "afterwards")
    assert await names(database) == ["afterwards"]


async def test_a_failing_statement_undoes_the_whole_batch(database: Database) -> None:
    with pytest.raises(StorageError, match="failed"):
        await database.batch(
            [
                Statement("INSERT INTO things (name) VALUES ('first')"),
                Statement("CREATE TABLE made (x)"),
                Statement("SELECT nonsense FROM nowhere"),
            ]
        )
    assert await names(database) == []
    with pytest.raises(StorageError):
        await database.execute("SELECT * FROM made")
    await add(database, "afterwards")


async def test_a_guard_compares_and_swaps(database: Database) -> None:
    await migrate(database)
    await database.execute("INSERT INTO things (name, value) VALUES ('counter', 1)")

    def swap(expected: int, new: int) -> Sequence[Statement]:
        guard = """INSERT INTO guards (ok) SELECT 0 WHERE NOT EXISTS
                   (SELECT 1 FROM things WHERE name = 'counter' AND value = ?)"""
        return (
            Statement(guard, (expected,)),
            Statement("UPDATE things SET value = ?", (new,)),
        )

    await database.batch(swap(1, 2))
    with pytest.raises(ConstraintViolated):
        await database.batch(swap(1, 3))
    assert (await database.execute("SELECT value FROM things")).rows == ((2,),)
    assert (await database.execute("SELECT COUNT(*) FROM guards")).rows == ((0,),)


async def test_foreign_keys_cascade(database: Database) -> None:
    await add(database, "whole")
    await database.execute("INSERT INTO parts (thing) SELECT id FROM things")
    result = await database.execute("DELETE FROM things")
    assert result.rows_affected == 1
    assert (await database.execute("SELECT COUNT(*) FROM parts")).rows == ((0,),)


async def test_many_tasks_at_once_lose_nothing(database: Database) -> None:
    await asyncio.gather(*(add(database, f"task {i}") for i in range(100)))
    assert sorted(str(name) for name in await names(database)) == sorted(
        f"task {i}" for i in range(100)
    )


async def test_concurrent_increments_are_serial(database: Database) -> None:
    await database.execute("INSERT INTO things (id, value) VALUES (1, 0)")
    increment = Statement("UPDATE things SET value = value + 1 WHERE id = 1")
    await asyncio.gather(*(database.batch([increment, increment]) for _ in range(50)))
    assert (await database.execute("SELECT value FROM things")).rows == ((100,),)


async def test_a_cancelled_batch_happens_wholly_or_not_at_all(database: Database) -> None:
    statements = [Statement("INSERT INTO things (name) VALUES (?)", (f"{i}",)) for i in range(100)]
    for delay in (0.0, 0.0001, 0.0005, 0.001, 0.002):
        await database.execute("DELETE FROM things")
        task = asyncio.create_task(database.batch(statements))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(await names(database)) in (0, 100)
    await add(database, "alive")


async def test_full_text_and_vectors_are_there(database: Database) -> None:
    await database.execute("CREATE VIRTUAL TABLE t USING fts5(body, tokenize='porter unicode61')")
    await database.execute("INSERT INTO t VALUES ('remembering names')")
    found = await database.execute("SELECT COUNT(*) FROM t WHERE t MATCH '\"name\"'")
    assert found.rows == ((1,),)
    distance = await database.execute("SELECT vector_distance_cos('[1, 0]', '[0, 1]')")
    assert distance.rows == ((1.0,),)


async def test_a_checkpoint_changes_nothing_to_see(database: Database) -> None:
    await add(database, "kept")
    await database.checkpoint()
    assert await names(database) == ["kept"]
    assert await database.size_bytes() >= 0


async def test_closing_twice_is_fine_and_later_calls_fail_clearly(database: Database) -> None:
    pending = asyncio.create_task(add(database, "on its way"))
    await asyncio.sleep(0)
    await asyncio.gather(database.close(), database.close())
    await pending
    await database.close()
    with pytest.raises(StorageError, match="closed"):
        await database.execute("SELECT 1")
    with pytest.raises(StorageError, match="closed"):
        await database.batch([Statement("SELECT 1")])

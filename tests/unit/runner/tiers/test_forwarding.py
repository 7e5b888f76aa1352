"""A runner that waits leads connections to the one that is active."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from runner.errors import HostError
from runner.tiers.kubernetes import cluster as cluster_module
from runner.tiers.kubernetes import forwarding as module
from runner.tiers.kubernetes.forwarding import Active, forwarding
from tests.unit.runner.tiers.test_cluster_requests import serving

HERE, THERE = "127.0.0.1", "127.0.0.2"


@asynccontextmanager
async def active() -> AsyncIterator[int]:
    """Answers each line with itself in capitals until the client has said all; the port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
        writer.write(b"END")
        writer.close()

    server = await asyncio.start_server(serve, THERE, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def there(_: str) -> str:
    return THERE


async def nowhere(_: str) -> str:
    return ""


async def test_both_directions_are_led_to_their_ends() -> None:
    async with active() as port, forwarding(HERE, port, there):
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(b"one\ntwo\n")
        assert await reader.readline() == b"ONE\n"
        writer.write_eof()
        assert await reader.read() == b"TWO\nEND"
        writer.close()


async def test_a_large_answer_arrives_whole() -> None:
    text = b"x" * 99 + b"\n"
    async with active() as port, forwarding(HERE, port, there):
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(text * 20_000)
        writer.write_eof()
        assert await reader.read() == text.upper() * 20_000 + b"END"
        writer.close()


async def test_without_an_active_runner_connections_are_closed() -> None:
    async with active() as port, forwarding(HERE, port, nowhere):
        reader, writer = await asyncio.open_connection(HERE, port)
        assert await reader.read() == b""
        writer.close()


async def test_an_active_runner_that_does_not_listen_closes_too() -> None:
    async with active() as port:
        pass
    async with forwarding(HERE, port, there):
        reader, writer = await asyncio.open_connection(HERE, port)
        assert await reader.read() == b""
        writer.close()


async def test_one_connection_too_many_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 2)
    async with active() as port, forwarding(HERE, port, there):
        held = [await asyncio.open_connection(HERE, port) for _ in range(2)]
        for reader, writer in held:
            writer.write(b"here\n")
            assert await reader.readline() == b"HERE\n"
        reader, writer = await asyncio.open_connection(HERE, port)
        assert await reader.read() == b""
        for _, each in [*held, (reader, writer)]:
            each.close()


async def test_the_port_is_free_as_soon_as_the_runner_is_active() -> None:
    async with active() as port:
        async with forwarding(HERE, port, there):
            reader, writer = await asyncio.open_connection(HERE, port)
            writer.write(b"open\n")
            assert await reader.readline() == b"OPEN\n"
        with socket.create_server((HERE, port)):
            pass
        assert await reader.read() == b""
        writer.close()


@asynccontextmanager
async def answering(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any],
) -> AsyncIterator[int]:
    """An active runner that does `serve` with each connection; the port."""
    server = await asyncio.start_server(serve, THERE, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_who_reads_nothing_does_not_keep_a_runner_from_becoming_active() -> None:
    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"x" * 2**16)
                await writer.drain()

    async with answering(flood) as port, asyncio.timeout(60):
        async with forwarding(HERE, port, there):
            reader, writer = await asyncio.open_connection(HERE, port, limit=1024)
            await asyncio.sleep(0.3)
        with contextlib.suppress(ConnectionError):
            while await reader.read(2**16):
                pass
        writer.close()


async def test_a_client_that_stays_after_the_answer_takes_up_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 1)
    monkeypatch.setattr(module, "LINGER_S", 0.1)

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    async with answering(once) as port, forwarding(HERE, port, there):
        for _ in range(3):
            reader, writer = await asyncio.open_connection(HERE, port)
            writer.write(b"hello\n")
            assert await reader.read() == b"hello\n"
            await asyncio.sleep(0.3)  # and the client does not close


async def test_a_client_that_goes_without_a_word_is_told_to_the_active_runner() -> None:
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(100):
                writer.write(b"here")
        gone.set()

    async with answering(wait) as port, forwarding(HERE, port, there), asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(b"hello")
        assert await reader.read(4) == b"here"
        no_farewell = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_farewell)
        writer.transport.abort()
        await gone.wait()


async def test_after_a_connection_that_fails_the_address_is_looked_up_again() -> None:
    told = []

    async def moving(failed: str) -> str:
        told.append(failed)
        return THERE if failed else "127.0.0.3"

    async with active() as port, forwarding(HERE, port, moving):
        reader, writer = await asyncio.open_connection(HERE, port)
        writer.write(b"one\n")
        assert await reader.readline() == b"ONE\n"
        writer.close()
    assert told == ["", "127.0.0.3"]


async def test_a_port_that_is_taken_is_an_error_with_a_fix() -> None:
    with socket.create_server((HERE, 0)) as other, pytest.raises(HostError) as refused:
        async with forwarding(HERE, other.getsockname()[1], there):
            pass
    assert "[serve] listen" in refused.value.resolution


class ApiServer:
    """Knows who holds the Lease and where the pods are, until it is `away`."""

    def __init__(self) -> None:
        self.holder = "one"
        self.pods = {"one": "10.0.0.1", "two": "10.0.0.2"}
        self.away = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.away:
            return web.Response(status=503, text="no backend")
        name = request.path.rpartition("/")[2]
        if "/leases/" in request.path:
            return web.json_response({"spec": {"holderIdentity": self.holder}})
        if name not in self.pods:
            return web.json_response({"reason": "NotFound"}, status=404)
        return web.json_response({"status": {"podIP": self.pods[name]}})


@pytest.fixture
async def looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ApiServer, Active]]:
    """What `three` hears of the others, without a memory of its own."""
    monkeypatch.setattr(cluster_module, "PATIENCE_S", 0.1)
    monkeypatch.setattr(module, "KNOWN_S", 0.0)
    server = ApiServer()
    async with serving(tmp_path, server.answer) as (_, cluster):
        yield server, Active(cluster, "three")


async def test_the_address_follows_the_lease(looked_up: tuple[ApiServer, Active]) -> None:
    server, found = looked_up
    assert await found.address() == "10.0.0.1"
    server.holder = "two"
    assert await found.address() == "10.0.0.2"
    for nobody in ("", "a pod that is gone", "three"):
        server.holder = nobody
        assert await found.address() == "", nobody


async def test_while_the_api_server_is_away_the_last_address_counts(
    looked_up: tuple[ApiServer, Active],
) -> None:
    server, found = looked_up
    assert await found.address() == "10.0.0.1"
    server.away = True
    assert await found.address() == "10.0.0.1"
    server.holder, server.away = "two", False
    assert await found.address() == "10.0.0.2"


async def test_only_a_failure_of_the_known_address_is_asked_about_sooner(
    looked_up: tuple[ApiServer, Active], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KNOWN_S", 600.0)
    monkeypatch.setattr(module, "FAILED_S", 0.0)
    server, found = looked_up
    assert await found.address() == "10.0.0.1"
    server.holder = "two"
    assert await found.address() == "10.0.0.1"
    assert await found.address("10.0.0.7") == "10.0.0.1"
    assert await found.address("10.0.0.1") == "10.0.0.2"

"""A runner that waits leads connections to the one that is active."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runner.tiers.kubernetes import forwarding as module
from runner.tiers.kubernetes.forwarding import forwarding

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


async def there() -> str:
    return THERE


async def nowhere() -> str:
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

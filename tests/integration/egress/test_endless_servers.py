"""What a server or a client says without end does not hold up the real program."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from wire.v1 import egress_pb2 as pb

from egress.outbound.dialing import INFORMATIONAL_MAX
from egress.proxy.tunnel import HELLO_MAX, HelloReader
from tests.support.egress.hellos import extension, hello, in_records
from tests.support.egress.program import Egress

INFORMATIONAL = b"HTTP/1.1 103 Early Hints\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def server(*says: bytes, again: bytes = b"") -> AsyncIterator[str]:
    """Says something to each request, and then `again` until the client has left."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.writelines(says)
                while again:
                    writer.write(again)
                    await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()


def get(target: str) -> str:
    return f"GET http://{target}/ HTTP/1.1\r\nHost: {target}\r\n\r\n"


@pytest.mark.parametrize(
    "again",
    [
        INFORMATIONAL,
        INFORMATIONAL * 2_000,
        b"HTTP/1.1 150 a\r\nb: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"x" * 65_536,
        b"a: " + b"b" * 30_000 + b"\r\n",
    ],
    ids=["informational", "many at once", "unknown", "status lines", "no line", "headers"],
)
async def test_a_head_without_end_is_an_error_and_holds_nobody_up(
    egress: Egress, again: bytes
) -> None:
    """Four of them at once, while somebody else asks for something."""
    begins = b"HTTP/1.1 200 OK\r\n" if again.startswith(b"a: ") else b""
    async with server(begins, again=again) as hostile, server(ANSWER) as honest:
        await egress.configure(shell=pb.EgressPolicy(allow=[hostile, honest]))
        hostile_ones = [asyncio.create_task(egress.say(get(hostile))) for _ in range(4)]
        async with asyncio.timeout(60):
            assert (await egress.say(get(honest))).body == b"hello"
            for each in hostile_ones:
                assert ((await each).status, (await each).refused) == (502, "cut")


@pytest.mark.parametrize(
    ("count", "status"), [(INFORMATIONAL_MAX, 200), (INFORMATIONAL_MAX + 1, 502)]
)
async def test_a_few_informational_answers_may_come_first(
    egress: Egress, count: int, status: int
) -> None:
    async with server(INFORMATIONAL * count, ANSWER) as target:
        await egress.configure(agent=pb.EgressPolicy(allow=[target]))
        for _ in range(2):  # each request has as many
            answer = await egress.ask(f"http://{target}/", host=target)
            assert answer.status == status


@pytest.mark.parametrize(
    ("begins", "status"),
    [
        (b"HTTP/1.1 200 \x1b[1mOK\r\n", 200),
        (b"HTTP/1.1 200 OK\r\nX-A: \x01\x1b\x7f\r\n", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n", 502),
    ],
    ids=["reason", "header", "transfer encoding"],
)
async def test_a_head_that_no_server_may_send_is_answered(
    egress: Egress, begins: bytes, status: int
) -> None:
    """Of control characters the client was not told, and what it read was not searched."""
    answer = b"5\r\nhello\r\n0\r\n\r\n" if status == 502 else b"Content-Length: 5\r\n\r\nhello"
    async with server(begins, b"\r\n" * (status == 502), answer) as target:
        await egress.configure(agent=pb.EgressPolicy(allow=[target]))
        assert (await egress.ask(f"http://{target}/", host=target)).status == status


async def test_an_answer_in_more_pieces_than_are_buffered_comes_whole(egress: Egress) -> None:
    """All of it has arrived while it is not read on, so that nothing follows which wakes it."""
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with server(chunked, b"2\r\nab\r\n" * 20_000, b"0\r\n\r\n") as target:
        await egress.configure(agent=pb.EgressPolicy(allow=[target]))
        assert (await egress.ask(f"http://{target}/", host=target)).body == b"ab" * 20_000


async def test_an_answer_whose_end_has_no_end_is_cut(egress: Egress) -> None:
    """Its trailers waited in the memory, and so did the client."""
    begins = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n"
    async with server(begins, *(b"a: " + b"b" * 30_000 + b"\r\n",) * 20) as target:
        await egress.configure(agent=pb.EgressPolicy(allow=[target]))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError, ValueError)):
            await egress.ask(f"http://{target}/", host=target)


async def test_a_server_that_answers_to_nothing_is_left(egress: Egress) -> None:
    """The next request would take such an answer for its own."""
    heard, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        await heard.wait()
        writer.write(ANSWER)
        await reader.read()
        left.set()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    target = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    await egress.configure(agent=pb.EgressPolicy(allow=[target]))
    assert (await egress.ask(f"http://{target}/", host=target)).status == 200
    heard.set()
    async with asyncio.timeout(60):
        await left.wait()
    listening.close()


@pytest.mark.parametrize(
    ("begins", "again"),
    [
        (b"GET / HTTP/1.1\r\n", b"a: " + b"b" * 12_000 + b"\r\n"),
        (b"0\r\n", b"a: " + b"b" * 12_000 + b"\r\n"),
        (b"1;", b"a" * 65_536),
    ],
    ids=["headers", "trailers", "an extension of a chunk"],
)
async def test_a_client_that_goes_on_before_it_is_answered_is_left(
    egress: Egress, begins: bytes, again: bytes
) -> None:
    """What it sends waited in the memory."""
    async with server() as target:
        await egress.configure(shell=pb.EgressPolicy(allow=[target]))
        reader, writer = await egress.at_shell_listener()
        coding = "" if begins.startswith(b"GET") else "Transfer-Encoding: chunked\r\n"
        writer.write(get(target)[:-2].encode() + coding.encode() + b"\r\n" + begins)
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                while not reader.at_eof():
                    writer.write(again)
                    await writer.drain()
        assert writer.transport.is_closing() or reader.at_eof()


@pytest.mark.parametrize("cut", [lambda data: [data], lambda data: list(map(bytes, zip(data)))])
def test_a_hello_is_read_in_linear_time_however_it_is_cut(
    cut: Callable[[bytes], list[bytes]],
) -> None:
    """As the largest one, in records of one byte: each byte was looked at again for each record."""
    large = hello("files.example.org", extra=extension(0x7777, bytes(10_000)))
    assert 6 * len(large) < HELLO_MAX
    reader = HelloReader()
    found = [reader.feed(piece) for piece in cut(in_records(large, *(1,) * len(large)))]
    assert found[-1] is not None
    assert found[-1].server_name == "files.example.org"
    assert found[:-1] == [None] * (len(found) - 1)
    larger = hello("files.example.org", extra=extension(0x7777, bytes(12_000)))
    with pytest.raises(ValueError, match="larger than"):
        HelloReader().feed(in_records(larger, *(1,) * len(larger)))

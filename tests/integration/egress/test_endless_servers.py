"""What a server or a client says without end does not hold up the real program."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from wire.v1 import egress_pb2 as pb

from egress.doors.client_hello import HELLO_MAX, HelloReader
from egress.outside.dialing import INFORMATIONAL_MAX
from tests.support.egress.hellos import extension, hello, in_records
from tests.support.egress.program import Egress

INFORMATIONAL = b"HTTP/1.1 103 Early Hints\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def server(*says: bytes, again: bytes = b"") -> AsyncIterator[str]:
    """Says something to each request, and then `again` until the client has left."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
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
        async with asyncio.timeout(30):
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


@pytest.mark.parametrize("cut", [lambda data: [data], lambda data: list(map(bytes, zip(data)))])
def test_a_hello_is_read_in_linear_time_however_it_is_cut(
    cut: Callable[[bytes], list[bytes]],
) -> None:
    """As the largest one, in records of one byte: each byte was looked at again for each record."""
    large = hello("files.example.org", extra=extension(0x7777, bytes(30_000)))
    assert len(large) < HELLO_MAX
    reader = HelloReader()
    found = [reader.feed(piece) for piece in cut(in_records(large, *(1,) * len(large)))]
    assert found[-1] is not None
    assert found[-1].server_name == "files.example.org"
    assert found[:-1] == [None] * (len(found) - 1)

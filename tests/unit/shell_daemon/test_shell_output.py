"""One output pipe: who makes it wait, who loses bytes, and what its end takes in."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from shell_daemon.streams import DRAIN_MAX_BYTES, OutputStream, RingBuffer


class Pipe:
    def __init__(self, capacity: int) -> None:
        self.changes = 0
        self.stream = OutputStream(RingBuffer(capacity), self._changed)
        read, self.write_end = os.pipe()
        os.set_blocking(self.write_end, False)
        self.stream.attach(read)

    def _changed(self) -> None:
        self.changes += 1

    def write(self, data: bytes) -> int:
        try:
            return os.write(self.write_end, data)
        except BlockingIOError:
            return 0

    def kept(self) -> bytes:
        with self.stream.cursor(0) as cursor:
            chunk = cursor.next(1 << 30)
        return chunk.data if chunk else b""


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    pipe = Pipe(100)
    yield pipe
    pipe.stream.close()
    os.close(pipe.write_end)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


async def test_without_a_reader_the_newest_bytes_stay(pipe: Pipe) -> None:
    pipe.write(b"a" * 90 + b"b" * 90)
    await settle()
    assert pipe.kept() == b"a" * 10 + b"b" * 90
    assert pipe.stream.total == 180
    assert pipe.changes == 1


async def test_small_pieces_are_joined(pipe: Pipe) -> None:
    for _ in range(1_000):
        pipe.write(b"b")
        await asyncio.sleep(0)
    pipe.stream.seal()
    assert (pipe.stream.total, pipe.changes < 300) == (1_000, True)


async def test_a_reader_makes_the_writer_wait_until_it_moves(pipe: Pipe) -> None:
    with pipe.stream.cursor(0) as cursor:
        pipe.write(b"0123456789" * 30)
        await settle()
        assert pipe.stream.total == 100
        chunk = cursor.next(40)
        assert chunk is not None
        cursor.advance(chunk)
        await settle()
        assert pipe.stream.total == 140
    await settle()
    assert pipe.stream.total == 300
    assert pipe.kept() == b"0123456789" * 10


async def test_the_slowest_reader_counts(pipe: Pipe) -> None:
    with pipe.stream.cursor(0), pipe.stream.cursor(0) as fast:
        pipe.write(b"x" * 300)
        await settle()
        chunk = fast.next(100)
        assert chunk is not None
        fast.advance(chunk)
        await settle()
        assert pipe.stream.total == 100
    await settle()
    assert pipe.stream.total == 300


async def test_the_end_takes_in_what_the_pipe_holds_and_drops_nothing_a_reader_needs(
    pipe: Pipe,
) -> None:
    with pipe.stream.cursor(0) as cursor:
        pipe.write(b"x" * 5000)
        await settle()
        assert pipe.stream.total == 100
        pipe.stream.seal()
        chunk = cursor.next(10_000)
        assert chunk is not None
        assert chunk.data == b"x" * 5000
    assert len(pipe.kept()) == 100


async def test_after_the_end_others_write_into_nothing_and_never_block(pipe: Pipe) -> None:
    pipe.write(b"counted")
    pipe.stream.seal()
    for _ in range(50):
        assert pipe.write(b"y" * 10_000) == 10_000
        await settle()
    assert pipe.stream.total == 7


async def test_the_end_is_bounded_even_where_somebody_else_keeps_writing(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as endless:
        endless.setattr(os, "read", lambda _descriptor, size: bytes(size))
        pipe.stream.seal()
    assert pipe.stream.total == DRAIN_MAX_BYTES


async def test_the_end_of_the_pipe_closes_it_once(pipe: Pipe) -> None:
    pipe.write(b"last")
    os.close(pipe.write_end)
    pipe.write_end = os.open("/dev/null", os.O_WRONLY)
    await settle()
    pipe.stream.seal()
    pipe.stream.close()
    pipe.stream.close()
    assert pipe.kept() == b"last"

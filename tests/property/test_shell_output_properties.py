"""The ring buffer against the whole stream, whatever is written and read."""

from hypothesis import given
from hypothesis import strategies as st

from shell_daemon.streams import Cursor, RingBuffer

writes = st.lists(st.binary(max_size=40), max_size=30)


@given(capacity=st.integers(1, 50), parts=writes)
def test_the_newest_bytes_are_kept_at_their_offsets(capacity: int, parts: list[bytes]) -> None:
    ring, whole = RingBuffer(capacity), b""
    for part in parts:
        ring.append(part)
        whole += part
        assert ring.end == len(whole)
        assert ring.start == max(0, len(whole) - capacity)
        for offset in range(ring.start, ring.end + 1):
            assert ring.read(offset, 7) == whole[offset : offset + 7]


@given(
    capacity=st.integers(1, 50),
    steps=st.lists(st.one_of(st.binary(max_size=40), st.integers(1, 60)), max_size=40),
    offset=st.integers(0, 60),
)
def test_a_cursor_reads_each_retained_byte_once_and_counts_the_rest(
    capacity: int, steps: list[bytes | int], offset: int
) -> None:
    ring, whole = RingBuffer(capacity), b""
    cursor = Cursor(ring, offset, moved=lambda: None)
    place = offset
    for step in [*steps, 10_000]:
        if isinstance(step, bytes):
            ring.append(step)
            whole += step
            continue
        before = ring.start
        chunk = cursor.next(step)
        if chunk is None:
            assert place >= len(whole)
            continue
        assert chunk.offset == max(before, place)
        assert chunk.data == whole[chunk.offset : chunk.offset + step]
        cursor.advance(chunk)
        place = chunk.offset + len(chunk.data)


@given(capacity=st.integers(1, 50), parts=writes, hold=st.integers(0, 200))
def test_bytes_that_a_reader_has_yet_to_see_are_never_dropped(
    capacity: int, parts: list[bytes], hold: int
) -> None:
    ring, whole = RingBuffer(capacity), b""
    for part in parts:
        held_from = max(ring.start, hold)
        ring.append(part, hold)
        whole += part
        assert ring.read(ring.start, len(whole)) == whole[ring.start :]
        assert ring.start <= held_from
    ring.trim()
    assert ring.read(ring.start, len(whole)) == whole[-capacity:]


@given(capacity=st.integers(1, 50), parts=writes, hold=st.integers(0, 60))
def test_who_keeps_to_the_room_keeps_to_the_capacity(
    capacity: int, parts: list[bytes], hold: int
) -> None:
    ring = RingBuffer(capacity)
    for part in parts:
        room = ring.room(hold)
        assert room is not None
        ring.append(part[:room], hold)
        assert ring.end - ring.start <= max(capacity, hold - ring.start)
        assert ring.end - max(hold, ring.start) <= capacity
    assert ring.room(None) is None

"""The envelope goes in, frames come out into the log, and both end with the connection."""

import socket
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.tiers.base import LaunchSpec
from runner.tiers.container.containers import Streams
from runner.workspace.mounts import Role


class Attached:
    """A client whose only container is the other end of a socket."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.closed = False

    def attach_socket(self, container: str, params: dict[str, int]) -> Any:
        assert params == {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
        return SimpleNamespace(_sock=self.ours, close=self.ours.close)

    def close(self) -> None:
        self.closed = True

    def say(self, data: bytes, stream: int = 1) -> None:
        self.theirs.sendall(struct.pack(">BxxxL", stream, len(data)) + data)

    def end(self) -> None:
        self.theirs.shutdown(socket.SHUT_WR)


@pytest.fixture
def spec(tmp_path: Path) -> LaunchSpec:
    return LaunchSpec(
        role=Role.AGENT,
        user_id="alice",
        home=tmp_path,
        launch_id="launch-1",
        command=("guest",),
        mounts=(),
        environment={},
        envelope=b"e" * 300_000,
        log_path=tmp_path / "guest.log",
        working_directory=Path("/"),
        owner=(1, 1),
    )


def test_both_streams_go_into_the_log_in_order(spec: LaunchSpec) -> None:
    attached = Attached()
    streams = Streams(attached, "id", spec)  # type: ignore[arg-type]
    attached.say(b"one\n")
    attached.say(b"two\n", stream=2)
    attached.say(b"")
    attached.say(b"three\n")
    attached.end()
    streams.finish()
    assert spec.log_path.read_bytes() == b"one\ntwo\nthree\n"
    assert attached.closed


def test_the_envelope_is_handed_over_while_the_guest_is_slow_and_talks(spec: LaunchSpec) -> None:
    attached = Attached()
    streams = Streams(attached, "id", spec)  # type: ignore[arg-type]
    streams.send_envelope()
    for _ in range(100):
        attached.say(b"x" * 10_000)
    received = b""
    while len(received) < len(spec.envelope):
        received += attached.theirs.recv(65_536)
    assert received == spec.envelope
    attached.end()
    streams.finish()
    assert spec.log_path.stat().st_size == 1_000_000


def test_closing_ends_the_guests_input(spec: LaunchSpec) -> None:
    attached = Attached()
    streams = Streams(attached, "id", spec)  # type: ignore[arg-type]
    streams.close()
    assert attached.theirs.recv(1) == b""


def test_a_guest_that_is_gone_takes_no_envelope(spec: LaunchSpec) -> None:
    attached = Attached()
    attached.theirs.close()
    streams = Streams(attached, "id", spec)  # type: ignore[arg-type]
    streams.send_envelope()
    streams.finish("the last line")
    assert '"message": "the last line"' in spec.log_path.read_text()


def test_a_flood_is_cut_once_and_read_on(spec: LaunchSpec) -> None:
    attached = Attached()
    streams = Streams(attached, "id", spec, log_bytes_max=1_000)  # type: ignore[arg-type]
    for _ in range(500):
        attached.say(b"x" * 999)
    attached.end()
    streams.finish()
    text = spec.log_path.read_text()
    assert text.startswith("x" * 1_000 + "\n{")
    assert text.count("the log is full") == 1
    assert len(text) < 1_500


def test_a_stream_that_breaks_off_is_kept_as_far_as_it_came(spec: LaunchSpec) -> None:
    attached = Attached()
    streams = Streams(attached, "id", spec)  # type: ignore[arg-type]
    attached.theirs.sendall(struct.pack(">BxxxL", 1, 100) + b"half")
    attached.end()
    streams.finish()
    assert spec.log_path.read_bytes() == b"half"

import contextlib
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire import envelope
from wire.errors import Code, WireError
from wire.limits import ENVELOPE_MAX_BYTES, ENVELOPE_VERSION
from wire.v1.bootstrap_pb2 import BootstrapEnvelope


def sample(**fields: object) -> BootstrapEnvelope:
    return BootstrapEnvelope(version=ENVELOPE_VERSION, user_id="alice", **fields)  # type: ignore[arg-type]


def test_round_trip_leaves_the_rest_of_the_stream() -> None:
    stream = io.BytesIO(envelope.encode(sample(token="secret")) + b"rest")
    assert envelope.read(stream).token == "secret"
    assert stream.read() == b"rest"


@given(cut=st.integers(min_value=0))
def test_every_truncation_is_refused(cut: int) -> None:
    framed = envelope.encode(sample(launch_id="x" * 50))
    with pytest.raises(WireError, match="bad bootstrap envelope") as raised:
        envelope.read(io.BytesIO(framed[: cut % len(framed)]))
    assert "truncated" in raised.value.details


def test_a_stream_that_arrives_in_single_bytes_is_read_whole() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(1, size or 0))

    assert envelope.read(Trickle(envelope.encode(sample()))).user_id == "alice"


def test_an_oversized_envelope_is_refused_before_it_is_read() -> None:
    stream = io.BytesIO((ENVELOPE_MAX_BYTES + 1).to_bytes(4, "big") + b"x" * 10)
    with pytest.raises(WireError) as raised:
        envelope.read(stream)
    assert "oversized" in raised.value.details
    assert stream.tell() == 4


def test_an_oversized_envelope_is_not_written() -> None:
    with pytest.raises(WireError):
        envelope.encode(sample(canary="x" * (ENVELOPE_MAX_BYTES + 1)))


@pytest.mark.parametrize("version", [0, ENVELOPE_VERSION - 1, ENVELOPE_VERSION + 1])
def test_another_version_is_refused_with_the_fix(version: int) -> None:
    framed = envelope.encode(BootstrapEnvelope(version=version))
    with pytest.raises(WireError) as raised:
        envelope.read(io.BytesIO(framed))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "runner restart" in raised.value.resolution


@given(body=st.binary(min_size=1, max_size=200))
def test_any_bytes_are_an_envelope_or_a_clear_error(body: bytes) -> None:
    framed = io.BytesIO(len(body).to_bytes(4, "big") + body)
    with contextlib.suppress(WireError):
        assert envelope.read(framed).version == ENVELOPE_VERSION


def test_secrets_arrive_and_are_not_shown() -> None:
    secrets = envelope.Secrets("k1", "k2", "k3", "k4", {"anthropic": "k5"})
    assert set(secrets.values()) == {"k1", "k2", "k3", "k4", "k5"}
    read = envelope.read(io.BytesIO(envelope.encode(sample(secrets=secrets.message()))))
    assert envelope.Secrets.of(read.secrets) == secrets
    assert not re.search("k[1-5]", repr(secrets) + str(secrets))

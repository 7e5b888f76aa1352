"""What becomes of a call whose caller is gone."""

import asyncio
import logging
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from runner.access.callers import Callers
from runner.access.relay import Relay
from runner.access.scopes import Scope
from runner.access.tokens import Tokens


class Context:
    """A call with a token. `write` fails as it does where the connection is gone."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.aborted = False

    def peer(self) -> str:
        return "unix:"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._secret}"),)

    async def read(self) -> bytes:
        return b""

    async def write(self, reply: bytes) -> None:
        raise grpc.aio.InternalError("SendMessageOperation")

    async def abort(self, *_: object) -> None:
        self.aborted = True


class Call:
    """A call of the agent, with one reply."""

    def __init__(self) -> None:
        self.cancelled = False

    async def read(self) -> bytes:
        return b"reply"

    def cancel(self) -> None:
        self.cancelled = True


class Agents:
    def __init__(self, call: Call) -> None:
        self._call = call

    async def channel(self, user_id: str) -> Any:
        return self

    def unary_stream(self, path: str) -> Any:
        return lambda request: self._call


async def test_a_caller_who_is_gone_in_the_middle_of_a_write_is_no_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(tmp_path)
    _, secret = tokens.create("alice", "laptop", frozenset(Scope), timedelta(hours=1))
    call, context = Call(), Context(secret)
    relay: Any = Relay(Callers(tokens, Agents(call)))  # type: ignore[arg-type]
    details = SimpleNamespace(method="/wire.v1.Gateway/ListNotes")
    with (
        caplog.at_level(logging.DEBUG, logger="runner.access"),
        pytest.raises(asyncio.CancelledError),
    ):
        await relay.service(details).stream_stream(None, context)
    assert call.cancelled
    assert not context.aborted
    assert "alice by access-laptop called ListNotes: left" in caplog.text
    assert "unexpected failure" not in caplog.text

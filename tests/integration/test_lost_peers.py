"""Guests on other machines that are gone without a word, as a machine that has lost its power."""

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from wire import endpoint, transport
from wire.identity import Party
from wire.v1 import shell_pb2, shell_pb2_grpc

from tests.support.guests.on_ports import on_ports

GUARD_S = 60


async def test_a_call_to_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"grpc.keepalive_time_ms": 1000}
    quick |= dict.fromkeys(("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"), 500)
    options = {**dict(transport.NOTICING_LOSS), **quick}
    monkeypatch.setattr(transport, "NOTICING_LOSS", tuple(options.items()))
    async with (
        asyncio.timeout(GUARD_S),
        on_ports(Party.SHELL, tmp_path) as guest,
        transport.open_channel(guest.peer(Party.AGENT)) as channel,
    ):
        start = shell_pb2.StartExecRequest(exec_id="c", command="echo begun; sleep 300")
        stub: Any = shell_pb2_grpc.ShellStub(channel)
        events = aiter(stub.Run(start))
        assert (await anext(events)).stdout.data == b"begun\n"
        guest.process.send_signal(signal.SIGSTOP)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await anext(events)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "too many" not in (raised.value.details() or "").lower()


def test_connections_without_grpc_are_probed_by_the_system() -> None:
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        endpoint.notice_loss(connection)
        found = [connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    idle, interval, probes, unanswered = found
    assert idle + interval * probes == endpoint.LOST_AFTER_S == unanswered / 1000

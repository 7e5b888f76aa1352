"""TLS without gRPC: both sides prove their roles, and only those of one authority are heard."""

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest
from wire import tls
from wire.identity import Identity, Party

from runner.host.authority import Authority
from tests.support import parties


async def _meet(socket: Path, server: Identity, client: Identity, expected: Party) -> str:
    """Connect and return the role that the server saw, which it sends as its only answer."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(tls.role_of(writer.get_extra_info("ssl_object")).encode())
        writer.close()

    context = tls.client_context(client)
    async with await asyncio.start_unix_server(answer, socket, ssl=tls.server_context(server)):
        reader, writer = await asyncio.open_unix_connection(
            str(socket), ssl=context, server_hostname=expected
        )
        try:
            return (await reader.read()).decode()
        finally:
            writer.close()


async def test_both_sides_know_each_other(tmp_path: Path) -> None:
    ours = parties.identity(Party.EGRESS), parties.identity(Party.SHELL)
    assert await _meet(tmp_path / "s", *ours, Party.EGRESS) == "shell"


async def test_a_server_of_another_role_is_left(tmp_path: Path) -> None:
    ours = parties.identity(Party.AGENT), parties.identity(Party.SHELL)
    with pytest.raises(ssl.SSLCertVerificationError, match="egress"):
        await _meet(tmp_path / "s", *ours, Party.EGRESS)


@pytest.mark.parametrize("side", [0, 1])
async def test_nobody_of_another_authority(tmp_path: Path, side: int) -> None:
    ours = [parties.identity(Party.EGRESS), parties.identity(Party.SHELL)]
    ours[side] = Authority.new().issue((Party.EGRESS, Party.SHELL)[side])
    with pytest.raises(ssl.SSLError):
        await _meet(tmp_path / "s", ours[0], ours[1], Party.EGRESS)


async def test_a_caller_without_certificate_is_not_heard(tmp_path: Path) -> None:
    heard: list[object] = []
    anyone = ssl.create_default_context(cadata=parties.AUTHORITY.public)
    anyone.verify_flags &= ~ssl.VERIFY_X509_STRICT
    server = tls.server_context(parties.identity(Party.EGRESS))
    async with await asyncio.start_unix_server(
        lambda *streams: heard.append(streams), tmp_path / "s", ssl=server
    ):
        reader, writer = await asyncio.open_unix_connection(
            str(tmp_path / "s"), ssl=anyone, server_hostname="egress"
        )
        with contextlib.suppress(ssl.SSLError):
            assert await reader.read() == b""
        writer.close()
    assert heard == []

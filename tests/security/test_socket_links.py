"""A guest puts a link in the place of its socket: a command of the operator then connects to some
other service of the host, and says nothing to it."""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.client.gateway import GatewayClient, GatewayLost
from tests.support import parties
from tests.support.scratch import SCRATCH

TOKEN = "the-token-of-this-launch-0123456789"
HELLO_MAX_BYTES = 2_000
_HANDSHAKE = b"\x16\x03"


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="sl-"))
    yield made
    shutil.rmtree(made)


@pytest.mark.attempt(
    "a link to a service of the host in the place of the gateway's socket",
    stopped_by="a client says nothing but whom it wants before that one has proven itself",
)
@pytest.mark.parametrize("answer", [b"", b"220 welcome\r\n", b"\x15\x03\x03\x00\x02\x02\x28"])
async def test_a_service_behind_a_link_is_told_nothing(directory: Path, answer: bytes) -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(65536))
        writer.write(answer)
        writer.write_eof()
        heard.extend(await reader.read())
        writer.close()

    service = await asyncio.start_unix_server(listen, directory / "service.sock")
    (directory / "agent.sock").symlink_to("service.sock")
    gateway = parties.gateway(f"unix:{directory}/agent.sock", TOKEN)
    with pytest.raises(GatewayLost):
        await GatewayClient.open(gateway, channel_name="what-is-said")
    service.close()
    hellos = heard.split(_HANDSHAKE)[1:]
    assert hellos
    assert heard.startswith(_HANDSHAKE)
    assert len(heard) < HELLO_MAX_BYTES * len(hellos)
    assert b"agent" in heard
    for said in (TOKEN.encode(), b"what-is-said", b"PRI * HTTP/2.0"):
        assert said not in heard

"""The authority vouches for named hosts alone, and TLS for them ends here."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.serialization import Encoding

from egress.interception.authority import Authority
from egress.interception.interception import Interception

HOST = "api.example.org"


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    body = await request.read()
    return web.Response(text=f"{request.method} {request.path_qs} {request.host} {len(body)}")


@asynccontextmanager
async def listener(interception: Interception, host: str = HOST) -> AsyncIterator[int]:
    """A port where each connection is taken for one to `host`."""
    server = web.Server(answer)
    served: set[asyncio.Task[None]] = set()

    async def serve(transport: asyncio.Transport) -> None:
        try:
            await interception.serve(transport, host, server)
        except OSError:
            transport.abort()

    class Listener(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            served.add(asyncio.create_task(serve(transport)))

    listening = await asyncio.get_running_loop().create_server(Listener, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1]
    listening.close()
    for task in served:
        task.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    await server.shutdown(1)


def trusting(interception: Interception) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=interception.authority_pem)


async def test_requests_to_a_named_host_are_read() -> None:
    interception = Interception({(HOST, 443), ("git.example.org", 8443)})
    assert interception.wants(HOST, 443)
    assert not interception.wants(HOST, 8443)
    assert interception.wants("git.example.org", 8443)
    assert not interception.wants("example.org", 443)
    async with listener(interception) as port, aiohttp.ClientSession() as session:
        for size in (0, 300_000):  # the second one on the same connection
            async with session.post(
                f"https://127.0.0.1:{port}/a?b=c",
                ssl=trusting(interception),
                server_hostname=HOST,
                data=b"x" * size,
                headers={"Host": HOST},
            ) as response:
                assert await response.text() == f"POST /a?b=c {HOST} {size}"


@pytest.mark.parametrize("name", ["other.example.org", "api.example.org.evil.example", None])
async def test_a_client_that_asks_for_another_name_is_not_served(name: str | None) -> None:
    interception = Interception({(HOST, 443)})
    context = ssl.create_default_context(cadata=interception.authority_pem)
    context.check_hostname = False
    async with listener(interception) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)


async def test_http_2_is_not_offered() -> None:
    interception = Interception({(HOST, 443)})
    context = trusting(interception)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with listener(interception) as port:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=HOST
        )
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()


def test_the_authority_goes_on_as_long_as_it_is_for_the_same_hosts() -> None:
    first = Interception({(HOST, 443)})
    again = Interception({(HOST, 8443)}, first)
    assert again.authority_pem == first.authority_pem
    more = Interception({(HOST, 443), ("git.example.org", 443)}, again)
    assert more.authority_pem != first.authority_pem
    none = Interception((), more)
    assert none.authority_pem == ""
    assert Interception({(HOST, 443)}, none).authority_pem


def verified(
    tmp_path: Path, authority: Authority, host: str, by: str = HOST
) -> subprocess.CompletedProcess[str]:
    """What OpenSSL says of a certificate that the authority's own key has signed."""
    trusted, leaf = tmp_path / "authority.pem", tmp_path / "leaf.pem"
    trusted.write_text(authority.pem)
    leaf.write_bytes(authority.issue(host, by).public_bytes(Encoding.PEM))
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver"]
    command += ["-CAfile", str(trusted), "-verify_hostname", host, str(leaf)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_authority_cannot_vouch_for_any_other_host(tmp_path: Path) -> None:
    """Even whoever has its key; also where one host lies below another one."""
    nested = f"v2.{HOST}"
    authority = Authority([HOST, nested])
    for host in (HOST, nested):
        good = verified(tmp_path, authority, host, by=host)
        assert good.returncode == 0, good.stderr
    for host in ("www.example.org", "example.org", "evil.example", "xapi.example.org"):
        bad = verified(tmp_path, authority, host)
        assert bad.returncode != 0
        assert "permitted subtree violation" in bad.stderr
    for host, by in (
        (f"www.{HOST}", HOST),
        (nested, HOST),
        (f"*.{HOST}", HOST),
        (f"a.{nested}", nested),
    ):
        bad = verified(tmp_path, authority, host, by)
        assert bad.returncode != 0
        assert "excluded subtree violation" in bad.stderr
    with pytest.raises(ValueError, match="not intercepted"):
        authority.context("evil.example")

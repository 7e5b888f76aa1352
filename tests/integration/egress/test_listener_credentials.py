"""Keys that commands use but do not have, in the real program with real clients."""

import asyncio
import base64
import gzip
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict
from wire.egress.forwarder import EgressAddress, Forwarder
from wire.egress.rules import new_placeholder
from wire.endpoint import Endpoint
from wire.identity import Party
from wire.v1 import egress_pb2 as pb

from tests.support import parties
from tests.support.egress.origins import Certificates, Origin, names, origin
from tests.support.egress.program import SHELL_TOKEN, Answer, Egress, head, said
from tests.support.internet.packages import Package
from tests.support.internet.repositories import Repositories

HOST = "api.example.org"
VALUE = "ghp_R3al/Value+0123456789"
PLACEHOLDER = new_placeholder("github")


def credential(port: int, place: str = "bearer", **changed: Any) -> pb.EgressCredential:
    given: dict[str, Any] = {
        "name": "github",
        "placeholder": PLACEHOLDER,
        "value": VALUE,
        "hosts": [f"{HOST}:{port}"],
        "place": place,
    }
    return pb.EgressCredential(**(given | changed))


async def repeat(request: web.BaseRequest) -> web.StreamResponse:
    """/gzip: compressed. /slow: piece by piece. Else: what arrived, in the body and in headers."""
    told = request.headers.get("authorization", "") + " " + request.raw_path
    body = await request.read()
    if request.path == "/gzip":
        coded = gzip.compress(told.encode())
        return web.Response(body=coded, headers={"Content-Encoding": "gzip"})
    if request.path == "/twice":
        twice = CIMultiDict([("Content-Encoding", "identity"), ("Content-Encoding", "gzip")])
        return web.Response(body=gzip.compress(told.encode()), headers=twice)
    if request.path == "/brotli":
        return web.Response(body=b"???", headers={"Content-Encoding": "br"})
    if request.path == "/slow":
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in ("one ", "two ", f"three {told[:14]}"):
            await response.write(piece.encode())
            await asyncio.wait_for(NEXT.acquire(), 30)
        await response.write(told[14:].encode())
        return response
    return web.Response(
        body=told.encode() + b" " + base64.b64encode(told.encode()) + b" " + body,
        headers={"Location": f"https://elsewhere.example/?{told}", "X-Told": told},
    )


NEXT = asyncio.Semaphore(0)


@dataclass
class World:
    """An egress program with a host outside whose requests it reads."""

    egress: Egress
    server: Origin
    configured: pb.EgressConfigured
    at: str

    @property
    def target(self) -> str:
        return f"{HOST}:{self.server.port}"

    async def streams(self, name: str = HOST) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection of a command to the host, as it takes it."""
        answer, (reader, writer) = await self.egress.tunnel(self.target)
        assert answer.status == 200
        context = ssl.create_default_context(cadata=self.configured.authority_pem)
        context.check_hostname = False
        await writer.start_tls(context, server_hostname=name)
        return reader, writer

    async def say(
        self, path: str, *headers: str, method: str = "GET", body: bytes = b"", host: str = ""
    ) -> Answer:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or self.target}", *headers]
        if body and not any("Transfer-Encoding" in each for each in headers):
            lines.append(f"Content-Length: {len(body)}")
        request = "\r\n".join([*lines, "", ""]).encode() + body
        return await said(await self.streams(), request)

    def told(self) -> str:
        """Everything that was recorded."""
        return f"{self.egress.begun} {self.egress.ended} {self.egress.questions}"


@pytest.fixture
async def world(egress: Egress, certificates: Certificates) -> AsyncIterator[World]:
    async with outside(egress, certificates) as made:
        yield made


@asynccontextmanager
async def outside(
    egress: Egress,
    certificates: Certificates,
    place: str = "bearer",
    name: str = HOST,
    answer: Any = repeat,
    allow: str = "{}",
) -> AsyncIterator[World]:
    """A host that commands may reach as `allow` says, where `{}` stands for it."""
    async with (
        origin(certificates.server(name), answer) as server,
        names({HOST: ["127.0.0.1"]}) as (at, _),
    ):
        configured = await egress.configure(
            shell=pb.EgressPolicy(allow=[allow.format(f"{HOST}:{server.port}")]),
            name_servers=[at],
            ca_pem=certificates.pem,
            credentials=[credential(server.port, place)],
        )
        yield World(egress, server, configured, at)


@pytest.mark.parametrize("change", [{"value": "another-Value"}, {"hosts": ["example.org"]}, {}])
async def test_what_goes_out_with_a_key_ends_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    """A change of something else ends nothing."""
    monkeypatch.setattr(sys.modules[__name__], "NEXT", asyncio.Semaphore(0))
    reader, writer = await world.streams()
    writer.write(f"GET /slow HTTP/1.1\r\nHost: {world.target}\r\n\r\n".encode())
    assert (await head(reader)).status == 200
    await world.egress.configure(
        shell=pb.EgressPolicy(allow=[world.target, "example.net"]),
        name_servers=[world.at],
        credentials=[credential(world.server.port, **change)],
    )
    for _ in range(0 if change else 3):
        NEXT.release()
    rest = b""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        rest = await asyncio.wait_for(reader.readuntil(b"/slow"), 30)
    ended = await world.egress.end_of(HOST) if change else None
    assert (b"/slow" in rest, ended and ended.outcome) == (not change, "cut" if change else None)
    writer.transport.abort()


async def test_the_value_goes_out_and_does_not_come_back(world: World) -> None:
    bearer = f"Authorization: Bearer {PLACEHOLDER}"
    answer = await world.say(
        "/repos?page=2", bearer, "Accept-Encoding: gzip, br", "Range: bytes=0-9"
    )
    (request,) = world.server.requests
    assert request.headers["authorization"] == f"Bearer {VALUE}"
    assert request.headers["accept-encoding"] == "identity"
    assert "range" not in request.headers
    assert request.raw_path == "/repos?page=2"
    assert answer.status == 200
    hidden = f"Bearer {'*' * len(VALUE)} /repos?page=2"
    assert answer.headers["x-told"] == hidden
    assert answer.headers["location"] == f"https://elsewhere.example/?{hidden}"
    assert answer.body.startswith(f"{hidden} ".encode())
    assert base64.b64encode(f"Bearer {VALUE}".encode())[12:30] not in answer.body
    compressed = await world.say("/gzip", bearer)
    assert compressed.body == f"Bearer {'*' * len(VALUE)} /gzip".encode()
    assert "content-encoding" not in compressed.headers
    for path in ("/brotli", "/twice"):
        unreadable = await world.say(path, bearer)
        assert (unreadable.status, unreadable.refused) == (502, "encoding")
    assert [each.path for each in world.egress.begun] == ["/repos", "/gzip", "/brotli", "/twice"]
    assert VALUE not in world.told()
    assert "oxydra-credential" not in world.told()
    assert "page" not in world.told()


async def test_an_answer_comes_as_it_is_sent(world: World) -> None:
    """Only what may begin the value waits for what follows."""
    reader, writer = await world.streams()
    lines = ("GET /slow HTTP/1.1", f"Host: {world.target}", f"Authorization: Bearer {PLACEHOLDER}")
    writer.write("\r\n".join([*lines, "", ""]).encode())
    assert (await head(reader)).status == 200
    for expected in ("one ", "two ", "three Bearer "):
        async with asyncio.timeout(60):
            assert int(await reader.readline(), 16) == len(expected)
            assert (await reader.readexactly(len(expected) + 2))[:-2] == expected.encode()
        NEXT.release()
    rest = await asyncio.wait_for(reader.readuntil(b"/slow"), 30)
    assert VALUE[8:].encode() not in rest
    assert b"*" * len(VALUE) in rest
    writer.transport.abort()


FIRST, SECOND = f"and {PLACEHOLDER[:25]}", PLACEHOLDER[25:]
CHUNKED = f"{len(FIRST):x}\r\n{FIRST}\r\n{len(SECOND):x}\r\n{SECOND}\r\n0\r\n\r\n"
BASIC = base64.b64encode(f"me:{PLACEHOLDER}".encode()).decode()


MISPLACED: list[tuple[str, list[str], bytes]] = [
    ("/", [f"X-Key: {PLACEHOLDER}"], b""),
    ("/", [f"Cookie: a={PLACEHOLDER}"], b""),
    ("/", [f"Authorization: Basic {BASIC}"], b""),
    ("/", [f"Authorization: Bearer {PLACEHOLDER}x"], b""),
    ("/", [f"Authorization: Bearer {new_placeholder('github')}"], b""),
    (f"/{PLACEHOLDER}", [], b""),
    (f"/a?key={PLACEHOLDER}", [], b""),
    (f"/a?key={PLACEHOLDER.replace('-', '%2D')}", [], b""),
    ("/", [], PLACEHOLDER.encode()),
    ("/", [], b"key=" + PLACEHOLDER.replace("o", "%6f").encode()),
    ("/", ["Transfer-Encoding: chunked"], CHUNKED.encode()),
    ("/", ["Content-Encoding: gzip"], gzip.compress(b"key " + PLACEHOLDER.encode())),
    ("/", ["Content-Encoding: br"], b"???"),
    (
        "/",
        ["Content-Encoding: identity", "Content-Encoding: gzip"],
        gzip.compress(PLACEHOLDER.encode()),
    ),
]


async def test_a_placeholder_elsewhere_stops_the_request(world: World) -> None:
    for path, headers, body in MISPLACED:
        answer = await world.say(path, *headers, method="POST", body=body)
        assert (answer.status, answer.refused) == (403, "credential"), (path, headers, body)
        assert b"credential" in answer.body
        assert "oxydra-credential" not in answer.body.decode()
    assert world.server.requests == []
    assert len(world.egress.begun) == len(MISPLACED)
    assert "oxydra-credential" not in world.told()
    assert VALUE not in world.told()


async def test_a_long_body_stops_where_the_placeholder_begins(world: World) -> None:
    """The server sees the beginning, and that it is not all."""
    body = bytes(300_000) + PLACEHOLDER.encode() + bytes(300_000)
    reader, writer = await world.streams()
    lines = ("POST / HTTP/1.1", f"Host: {world.target}", f"Content-Length: {len(body)}")
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    answer = await head(reader)
    assert (answer.status, answer.refused) == (403, "credential")
    ended = await world.egress.end_of(HOST)
    assert ended.outcome == "credential"
    assert ended.sent <= 300_000
    writer.transport.abort()


async def test_a_host_that_is_not_the_real_one_gets_nothing(
    egress: Egress, certificates: Certificates
) -> None:
    async with outside(egress, certificates, name="other.example.org") as world:
        answer = await world.say("/", f"Authorization: Bearer {PLACEHOLDER}")
        assert (answer.status, answer.refused) == (502, "untrusted")
        assert f"{world.target} does not prove who it is".encode() in answer.body
        assert world.server.requests == []


async def test_each_request_on_a_connection_is_decided(
    egress: Egress, certificates: Certificates
) -> None:
    """By path too; and for the host of the connection alone."""
    async with outside(egress, certificates) as world:
        world.configured = await egress.configure(
            shell=pb.EgressPolicy(allow=[f"GET https://{world.target}/public/*"]),
            name_servers=[world.at],
            ca_pem=certificates.pem,
            inspected=[world.target],
        )
        assert (await world.say("/public/a")).status == 200
        assert (await world.say("/private")).refused == "policy"
        assert (await world.say("/public/a", method="POST")).refused == "policy"
        assert (await world.say("/public/a", host="evil.example")).refused == "host"
        assert (await world.say("http://evil.example/", host="evil.example")).status == 400
        assert (await world.say("/public/a", "Upgrade: websocket")).refused == "upgrade"
        assert len(world.server.requests) == 1
        with pytest.raises((OSError, TypeError)):
            await world.streams("www.example.org")
        assert len(world.server.requests) == 1
        async with asyncio.timeout(60):
            while "it asks for another host" not in egress.begun[-1].reason:
                await asyncio.sleep(0.01)


async def test_the_authority_stays_as_long_as_the_hosts_do(world: World) -> None:
    given = {"name_servers": [world.at], "shell": pb.EgressPolicy(allow=[world.target])}
    first = world.configured.authority_pem
    port = world.server.port
    again = await world.egress.configure(credentials=[credential(port, value="x" * 9)], **given)
    assert again.authority_pem == first
    other = await world.egress.configure(inspected=[world.target, "b.example.org"], **given)
    assert other.authority_pem not in ("", first)
    assert (await world.egress.configure(**given)).authority_pem == ""


async def test_an_upstreams_key_does_not_come_back_to_the_agent(
    egress: Egress, certificates: Certificates
) -> None:
    async with origin(certificates.server("localhost"), repeat) as server:
        await egress.configure(
            upstreams=[
                pb.EgressUpstream(
                    name="openai",
                    url=f"https://localhost:{server.port}/v1",
                    headers={"Authorization": f"Bearer {VALUE}"},
                    ca_pem=certificates.pem,
                )
            ]
        )
        answer = await egress.ask("/openai/models")
        assert server.requests[0].headers["authorization"] == f"Bearer {VALUE}"
        assert answer.body.startswith(b"Bearer ***")
        assert VALUE not in answer.body.decode() + str(answer.headers)


@asynccontextmanager
async def commands(world: World, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """The environment of commands: a port of the forwarder, and whom to trust."""
    forwarder = Forwarder(parties.identity(Party.SHELL))
    forwarder.egress = EgressAddress(Endpoint(path=str(world.egress.shell_listener)), SHELL_TOKEN)
    port = forwarder.open("session-1", "turn-1", lambda _: None)
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(world.configured.authority_pem)
    trust = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT")
    yield {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GIT_TERMINAL_PROMPT": "0",
        "TOKEN": PLACEHOLDER,
        **dict.fromkeys(("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"), port.url),
        **dict.fromkeys(trust, str(bundle)),
    }
    port.close()


async def run(environment: dict[str, str], *command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode or 0, said.decode()


PYTHON = """
import os, sys, urllib.request
shown = {"Authorization": "Bearer " + os.environ["TOKEN"]}
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=shown)).read().decode())
"""


@pytest.mark.parametrize("client", ["curl", "python"])
async def test_ordinary_clients_use_a_key_that_they_do_not_have(
    world: World, client: str, tmp_path: Path
) -> None:
    url = f"https://{world.target}/repos"
    command = {
        "curl": ["curl", "-sS", "-H", f"Authorization: token {PLACEHOLDER}", url],
        "python": [sys.executable, "-c", PYTHON, url],
    }[client]
    async with commands(world, tmp_path) as environment:
        code, told = await run(environment, *command)
    assert code == 0, told
    (request,) = world.server.requests
    assert request.headers["authorization"].endswith(f" {VALUE}")
    assert "*" * len(VALUE) in told
    assert VALUE not in told


async def test_git_clones_and_pushes_with_a_placeholder(
    egress: Egress, certificates: Certificates, tmp_path: Path
) -> None:
    """Over HTTPS, with what it compresses: more references than fit into a short request."""
    repositories = Repositories(tmp_path, VALUE)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await repositories.answer(request, await request.read())

    only = "https://{}/notes.git/*"
    async with outside(egress, certificates, "basic", answer=answer, allow=only) as world:
        url = f"https://x-access-token:{PLACEHOLDER}@{world.target}/notes.git"
        clone = str(tmp_path / "clone")
        async with commands(world, tmp_path) as environment:
            code, told = await run(environment, "git", "clone", url, clone)
            assert code == 0, told
            assert (Path(clone) / "README").read_text().startswith("the notes of a private")
            code, told = await run(environment, "git", "-C", clone, "fetch", "--all")
            assert code == 0, told
            wrong = url.replace(PLACEHOLDER, new_placeholder("github"))
            code, told = await run(environment, "git", "ls-remote", wrong)
            assert code != 0
    assert VALUE not in (Path(clone) / ".git" / "config").read_text()
    assert VALUE not in f"{egress.begun}{egress.ended}"
    assert "oxydra-credential" not in f"{egress.begun}{egress.ended}"


async def test_pip_installs_from_a_private_index(
    egress: Egress, certificates: Certificates, tmp_path: Path
) -> None:
    package = Package.build("oxydra_private_example", "1.0")
    shown: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        shown.append(request.headers.get("authorization", ""))
        if shown[-1] != "Basic " + base64.b64encode(f"me:{VALUE}".encode()).decode():
            return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="index"'})
        if request.path.endswith(".whl"):
            return web.Response(body=package.wheel)
        page = f'<!DOCTYPE html><a href="/files/{package.file}">{package.file}</a>'
        return web.Response(text=page, content_type="text/html")

    only = "GET https://{}/*"
    async with outside(egress, certificates, "basic", answer=answer, allow=only) as world:
        index = f"https://me:{PLACEHOLDER}@{world.target}/simple"
        where = str(tmp_path / "installed")
        pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check")
        wanted = ("--index-url", index, "--no-deps", "--target", where, package.name)
        async with commands(world, tmp_path) as environment:
            code, told = await run(environment, *pip, *wanted)
    assert code == 0, told
    assert (Path(where) / f"{package.name}.py").is_file()
    assert VALUE not in told

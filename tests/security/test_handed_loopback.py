"""A server of this machine's loopback that is handed to the agent's egress: what a hostile egress
guest, or whoever else finds the socket, cannot make of it. What arrived is counted to the byte."""

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from wire.egress.loopback import LoopbackServer
from wire.identity import Identity, Party
from wire.providers import AT_THE_ROOT
from wire.tls import client_context

from runner.host import loopback
from runner.host.authority import Authority
from runner.host.loopback import CONNECTIONS_MAX, HostLoopback, socket_name
from runner.workspace.workspace import Workspace
from tests.support import parties

TOKEN = "the-token-of-egress"
GUARD_S = 30.0
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


@dataclass
class Recorder:
    """A server that keeps every byte, and answers a whole request unless it is `silent`."""

    port: int = 0
    connections: list[bytearray] = field(default_factory=list)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    silent: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(got := bytearray())
        self.opened.set()
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(65_536):
                got += piece
                if not self.silent and _is_whole(bytes(got)):
                    writer.write(OK)
                    break
        self.ended.set()
        writer.close()


def _is_whole(got: bytes) -> bool:
    head, _, body = got.partition(b"\r\n\r\n")
    if b"chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return b"\r\n\r\n" in got and len(body) >= int(length or 0)


@dataclass
class Handed:
    """One server that is handed over, with what it got."""

    host: HostLoopback
    server: LoopbackServer
    recorder: Recorder

    @property
    def place(self) -> Path:
        return self.host.workspace.host_sockets / socket_name(self.server)

    async def connect(
        self, identity: Identity | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = client_context(identity or parties.identity(Party.EGRESS))
        return await asyncio.open_unix_connection(
            self.place, ssl=context, server_hostname=Party.RUNNER
        )

    async def send(self, content: bytes, identity: Identity | None = None) -> bytes:
        """All that comes back for these bytes."""
        async with asyncio.timeout(GUARD_S):
            try:
                reader, writer = await self.connect(identity)
                writer.write(content)
                await writer.drain()
                return await reader.read()
            except (ConnectionError, ssl.SSLError):
                return b""

    def head(self, line: str = "GET /v1/models HTTP/1.1", *more: str, token: str = TOKEN) -> bytes:
        lines = [line, f"Host: 127.0.0.1:{self.recorder.port}", f"oxydra-token: {token}", *more]
        return "\r\n".join([*lines, "", ""]).encode()


@asynccontextmanager
async def handed_over(path: str = "/v1", *, provider: str = "ollama") -> AsyncIterator[Handed]:
    recorder = Recorder()
    listener = await asyncio.start_server(recorder.serve, "127.0.0.1", 0)
    recorder.port = listener.sockets[0].getsockname()[1]
    server = LoopbackServer("127.0.0.1", recorder.port, path, provider)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxl-") as root:
        host = HostLoopback(Workspace(Path(root), "alice"), parties.identity(Party.RUNNER), TOKEN)
        await host.serve({server})
        try:
            yield Handed(host, server, recorder)
        finally:
            await host.close()
            listener.close()


async def test_a_plain_request_is_passed_on_anew_and_its_answer_unread() -> None:
    async with handed_over() as handed:
        body = "POST /v1/chat/completions?a=b HTTP/1.1"
        sent = (
            handed.head(body, "Content-Length: 5", "Authorization: Bearer k", "X-A: 1") + b"hello"
        )
        assert await handed.send(sent) == OK
        (got,) = handed.recorder.connections
        head, _, rest = bytes(got).partition(b"\r\n\r\n")
        assert rest == b"hello"
        assert head.split(b"\r\n") == [
            b"POST /v1/chat/completions?a=b HTTP/1.1",
            f"host: 127.0.0.1:{handed.recorder.port}".encode(),
            b"content-length: 5",
            b"authorization: Bearer k",
            b"x-a: 1",
            b"connection: close",
        ]


@pytest.mark.parametrize(
    ("path", "provider"),
    [("/v1", "ollama"), ("/v1", "lmstudio"), ("/v2", "ollama"), ("/v1", "compatible")],
)
async def test_what_a_server_has_of_its_own_is_beside_its_v1_alone(
    path: str, provider: str
) -> None:
    own = AT_THE_ROOT.get(provider, ()) if path == "/v1" else ()
    lines = ["POST /api/v0/models", "GET /api/v0/models/m", *{*sum(AT_THE_ROOT.values(), ())}]
    async with handed_over(path, provider=provider) as handed:
        for line in lines:
            answer = await handed.send(handed.head(f"{line} HTTP/1.1"))
            assert (answer == OK) == (line in own)
        assert len(handed.recorder.connections) == len(own)


async def test_a_body_in_pieces_arrives_whole() -> None:
    async with handed_over() as handed:
        head = handed.head("POST /v1/x HTTP/1.1", "Transfer-Encoding: chunked")
        assert await handed.send(head + b"3\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: no\r\n\r\n") == OK
        (got,) = handed.recorder.connections
        assert got.endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
        assert b"Trailer" not in got


HOST = "the header Host"
REQUESTS = {
    "another path": ("GET /api/delete HTTP/1.1",),
    "the download of a model": ("POST /api/pull HTTP/1.1",),
    "the removal of a model": ("DELETE /api/delete HTTP/1.1",),
    "another method of a path at the root": ("DELETE /api/chat HTTP/1.1",),
    "a path below one at the root": ("POST /api/chat/x HTTP/1.1",),
    "a path upwards from one at the root": ("POST /api/chat/../pull HTTP/1.1",),
    "a path at the root, escaped": ("POST /api/%63hat HTTP/1.1",),
    "a path that only begins like it": ("GET /v1x HTTP/1.1",),
    "a path upwards": ("GET /v1/../api/tags HTTP/1.1",),
    "a path upwards, escaped": ("GET /v1/%2e%2e/api/tags HTTP/1.1",),
    "a path upwards, escaped twice": ("GET /v1/%252e%252e/api/tags HTTP/1.1",),
    "a path upwards by a backslash": ("GET /v1/..\\api HTTP/1.1",),
    "a path upwards with escaped slashes": ("GET /v1%2f..%2fapi HTTP/1.1",),
    "a path with a parameter": ("GET /v1/..;/api HTTP/1.1",),
    "a doubled slash": ("GET //v1/models HTTP/1.1",),
    "the server itself": ("OPTIONS * HTTP/1.1",),
    "an absolute address of another server": ("GET http://127.0.0.1:22/v1 HTTP/1.1",),
    "an absolute address of the same server": ("GET http://127.0.0.1/v1/models HTTP/1.1",),
    "CONNECT": ("CONNECT 127.0.0.1:22 HTTP/1.1",),
    "TRACE": ("TRACE /v1/models HTTP/1.1",),
    "PUT": ("PUT /v1/models HTTP/1.1",),
    "HTTP/1.0": ("GET /v1/models HTTP/1.0",),
    "an upgrade": ("GET /v1/models HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket"),
    "an upgrade to HTTP/2": ("GET /v1/models HTTP/1.1", "HTTP2-Settings: AAMAAABkAAQ"),
    "a header to be dropped on the way": ("GET /v1/models HTTP/1.1", "Connection: authorization"),
    "another path in a header": ("GET /v1/models HTTP/1.1", "X-Original-URL: /api/delete"),
    "another path in a header with _": ("GET /v1/models HTTP/1.1", "X_Original_URL: /api/delete"),
    "another method in a header": ("POST /v1/models HTTP/1.1", "X-HTTP-Method-Override: PUT"),
    "an expectation": ("POST /v1/x HTTP/1.1", "Expect: 100-continue", "Content-Length: 1"),
    "two lengths of a body": ("POST /v1/x HTTP/1.1", "Content-Length: 1", "Content-Length: 2"),
    "a length and pieces": (
        "POST /v1/x HTTP/1.1",
        "Content-Length: 1",
        "Transfer-Encoding: chunked",
    ),
    "another transfer encoding": ("POST /v1/x HTTP/1.1", "Transfer-Encoding: gzip, chunked"),
    "a second Host": ("GET /v1/models HTTP/1.1", "Host: localhost"),
    "a line feed alone": ("GET /v1/models HTTP/1.1", "X-A: 1\nX-Original-URL: /api"),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.attempt(
    "a hostile egress guest: a request that is not the operator's, to a server of the loopback",
    stopped_by="the runner's parser",
)
async def test_another_request_reaches_nothing(name: str) -> None:
    async with handed_over() as handed:
        answer = await handed.send(handed.head(*REQUESTS[name]))
        assert not answer.startswith(b"HTTP/1.1 200")
        # What is passed on is passed on without what was hidden in it.
        assert handed.recorder.connections == []


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:22", ""])
@pytest.mark.attempt(
    "a hostile egress guest: another name in Host to a server of the host's loopback",
    stopped_by="the runner's parser",
)
async def test_another_host_header_reaches_nothing(host: str) -> None:
    async with handed_over() as handed:
        lines = ["GET /v1/models HTTP/1.1", f"Host: {host}", f"oxydra-token: {TOKEN}", "", ""]
        assert (await handed.send("\r\n".join(lines).encode())).startswith(b"HTTP/1.1 403")
        assert handed.recorder.connections == []


@pytest.mark.attempt(
    "a hostile egress guest: a second request behind the first on one connection",
    stopped_by="the runner ends a connection at the first byte behind a request",
)
@pytest.mark.parametrize("body", ["", "Content-Length: 2", "Transfer-Encoding: chunked"])
async def test_a_second_request_is_not_smuggled(body: str) -> None:
    async with handed_over() as handed:
        handed.recorder.silent = True
        content = {"": b"", "Content-Length: 2": b"hi"}.get(body, b"2\r\nhi\r\n0\r\n\r\n")
        line = "POST /v1/x HTTP/1.1" if body else "GET /v1/models HTTP/1.1"
        first = handed.head(line, *([body] if body else [])) + content
        await handed.send(first + handed.head("DELETE /api/delete HTTP/1.1"))
        for got in handed.recorder.connections:
            assert b"api" not in got


@pytest.mark.parametrize("party", [each for each in Party if each is not Party.EGRESS])
@pytest.mark.attempt(
    "another guest of the user: the socket of a server of the host's loopback",
    stopped_by="no certificate of egress",
)
async def test_another_party_of_the_same_runner_is_not_heard(party: Party) -> None:
    async with handed_over() as handed:
        assert await handed.send(handed.head(), parties.identity(party)) == b""
        assert handed.recorder.connections == []


@pytest.mark.attempt(
    "another user's egress guest: the socket of a server of the host's loopback",
    stopped_by="no certificate of this runner's authority",
)
async def test_the_egress_of_another_runner_is_not_heard() -> None:
    async with handed_over() as handed:
        assert await handed.send(handed.head(), Authority.new().issue(Party.EGRESS)) == b""
        assert handed.recorder.connections == []


@pytest.mark.parametrize("token", ["", "another", TOKEN + "x"])
@pytest.mark.attempt(
    "commands' egress guest: the socket of a server of the host's loopback",
    stopped_by="it has not the token",
)
async def test_a_caller_without_the_token_is_not_heard(token: str) -> None:
    async with handed_over() as handed:
        assert await handed.send(handed.head(token=token)) == b""
        assert await handed.send(handed.head() + b"") == OK
        assert len(handed.recorder.connections) == 1


async def test_the_socket_belongs_to_the_guests_uid_alone() -> None:
    async with handed_over() as handed:
        found = handed.place.lstat()
        assert found.st_mode & 0o777 == 0o600
        assert (found.st_uid, found.st_gid) == handed.host.workspace.owner.ids
        assert handed.place.parent.lstat().st_mode & 0o777 == 0o700


async def test_more_connections_than_the_bound_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that have not yet proven who they are."""
    async with handed_over() as handed:
        waiting = []
        for _ in range(CONNECTIONS_MAX):
            waiting.append(await asyncio.open_unix_connection(handed.place))
        assert await handed.send(handed.head()) == b""
        for _, writer in waiting:
            writer.close()
        async with asyncio.timeout(GUARD_S):
            while await handed.send(handed.head()) != OK:
                await asyncio.sleep(0.01)


async def test_a_caller_that_says_nothing_is_left_alone_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loopback, "HEAD_S", 0.2)
    async with handed_over() as handed, asyncio.timeout(GUARD_S):
        plain, _ = await asyncio.open_unix_connection(handed.place)
        secured, _ = await handed.connect()
        assert await plain.read() == b""
        assert await secured.read() == b""


async def test_who_leaves_takes_the_request_with_it() -> None:
    async with handed_over() as handed, asyncio.timeout(GUARD_S):
        handed.recorder.silent = True
        _, writer = await handed.connect()
        writer.write(handed.head())
        await handed.recorder.opened.wait()
        writer.close()
        await handed.recorder.ended.wait()


async def test_what_is_withdrawn_ends_at_once_and_leaves_no_socket() -> None:
    async with handed_over() as handed, asyncio.timeout(GUARD_S):
        handed.recorder.silent = True
        reader, writer = await handed.connect()
        writer.write(handed.head())
        await handed.recorder.opened.wait()
        await handed.host.serve(())
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert not handed.place.exists()
        await handed.host.serve({handed.server})
        handed.recorder.silent = False
        assert await handed.send(handed.head()) == OK


async def test_a_server_that_does_not_run_is_named_by_the_runner_and_by_nobody_else() -> None:
    async with handed_over() as handed:
        unused = LoopbackServer("127.0.0.1", 1, "/v1")
        await handed.host.serve({unused})
        handed.server, handed.recorder.port = unused, 1
        (notice,) = await handed.host.silent()
        assert notice.endswith("cannot be reached: Connection refused; start that server")
        answer = await handed.send(handed.head())
        assert answer.startswith(b"HTTP/1.1 502")
        assert f"oxydra-token: {TOKEN}".encode() in answer
        assert answer.endswith(
            b"http://127.0.0.1:1/v1 of this machine cannot be reached: Connection refused"
        )


async def test_what_lies_in_the_sockets_place_is_moved_aside() -> None:
    async with handed_over() as handed:
        await handed.host.serve(())
        (handed.place / "deep").mkdir(parents=True)
        await handed.host.serve({handed.server})
        assert await handed.send(handed.head()) == OK

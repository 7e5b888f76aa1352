"""What pages of other sites, people without a login and clients of bad manners can not do with the
HTTP server.

Fake agents stand behind the real server, and what each of them was asked is known.
"""

import asyncio
import json
import logging
import re
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from wire.errors import WireError
from wire.identity import Party
from wire.v1 import gateway_pb2 as pb

from runner.access import callers, exchange
from runner.access.callers import REFUSALS_MAX
from runner.access.scopes import Scope
from runner.access.tokens import Tokens
from runner.host.authority import Authority
from runner.serve import connections
from runner.serve.guard import REPORTS_PATH
from runner.serve.login import links
from runner.serve.login.links import Links
from runner.serve.server import HttpServer
from tests.support.gateway.fake_gateway import LIVE, Event, FakeGateway, text
from tests.support.gateway.front import Front, open_front
from tests.support.gateway.http_front import PAGE, open_beside, open_http, operator, page
from tests.support.guests.embedders import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINK = "a link's secret has 256 random bits and works once, within five minutes"
HOST = "the server answers to its own names only"
ORIGIN = "what acts must come from a page of the server: Origin, Sec-Fetch-Site and X-Oxydra"
COOKIE = "a session's secret is made at login, kept as a hash, and ended by the server"
PROXY = "the header is believed from one address only"
BOUNDS = "heads and bodies of requests have bounds of size and time"
ROOM = "who waits longest goes, and never the new one; who is let in has room of their own"
FOLDERS = "files are served from three folders, by plain names"
TURN = {"turn_id": LIVE}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made:
        made.alice.sessions["s"] = pb.Session(session_id="s")
        (made.config.workspace_root / "alice").mkdir(mode=0o700)
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(front: Front) -> AsyncIterator[HttpServer]:
    async with open_http(front) as made:
        yield made


@pytest.fixture(autouse=True)
def fresh(front: Front) -> None:
    front.tokens.revoke("alice")
    for agent in (front.alice, front.bob):
        agent.turns.clear()
        agent.seen.clear()


def asked(front: Front) -> list[Any]:
    return [*front.alice.turns, *front.alice.seen, *front.bob.turns, *front.bob.seen]


async def waits(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
    yield text("begun")
    await asyncio.Event().wait()


async def last_line(reply: httpx.Response) -> dict[str, Any]:
    async with asyncio.timeout(60):
        *_, last = [line async for line in reply.aiter_lines()]
    return dict(json.loads(last))


async def save(client: httpx.AsyncClient, **headers: str) -> int:
    """The status of a request that would change something."""
    reply = await client.post("/api/users/alice/SaveNote", json={"text": "x"}, headers=headers)
    return reply.status_code


def set_cookie(reply: httpx.Response) -> str:
    return str(reply.headers.get("set-cookie", ""))


@pytest.mark.attempt("opening the link of somebody's login a second time", stopped_by=LINK)
async def test_a_link_works_once(front: Front, server: HttpServer) -> None:
    link = {"link": Links.locate(front.config).make("alice")}
    async with page(server) as first, page(server) as second:
        replies = await asyncio.gather(
            *(client.post("/api/login", json=link) for client in (first, second, first, second))
        )
    assert sorted(reply.status_code for reply in replies) == [200, 401, 401, 401]
    assert sum(bool(set_cookie(reply)) for reply in replies) == 1


@pytest.mark.attempt("logging in with a link that was left lying about", stopped_by=LINK)
async def test_an_old_link_is_no_good(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LINK_S", -1.0)
    link = Links.locate(front.config).make("alice")
    async with page(server) as client:
        reply = await client.post("/api/login", json={"link": link})
        assert (reply.status_code, ": runner serve --open" in reply.text) == (401, True)
        for wrong in ("", "../../tokens.json", "x" * 10_000, "\0", "é"):
            assert (await client.post("/api/login", json={"link": wrong})).status_code in (400, 401)


@pytest.mark.attempt(
    "pointing a name of one's own at the server, from a page (DNS rebinding)", stopped_by=HOST
)
async def test_another_name_leads_nowhere(front: Front, server: HttpServer) -> None:
    async with operator(front, server) as client:
        port = server.url.rpartition(":")[2]
        for host in (f"evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", f"127.0.0.1.:{port}"):
            for path in ("/", "/api/me", "/healthz"):
                reply = await client.get(path, headers={"Host": host})
                assert reply.status_code in (400, 421), (host, path)
        assert (await client.get("/api/me", headers={"Host": f"LOCALHOST:{port}"})).status_code in (
            200,
            401,
        )


@pytest.mark.attempt("sending a form or a request from a page of another site", stopped_by=ORIGIN)
async def test_a_page_of_another_site_cannot_act(front: Front, server: HttpServer) -> None:
    async with operator(front, server) as client:
        assert await save(client) == 200
        front.alice.seen.clear()
        assert await save(client, Origin="https://evil.example") == 403
        assert await save(client, Origin="null") == 403
        assert await save(client, Origin=server.url.replace("127.0.0.1", "localhost")) == 403
        assert await save(client, **{"Sec-Fetch-Site": "cross-site"}) == 403
        assert await save(client, **{"Sec-Fetch-Site": "same-site"}) == 403
        assert await save(client, **{"X-Oxydra": ""}) == 403
        own = {"X-Oxydra": client.headers.pop("X-Oxydra")}
        assert await save(client) == 403
        form = await client.post("/api/users/alice/SaveNote", data={"text": "x"})
        assert form.status_code == 403
        plain = {"Content-Type": "text/plain", **own}
        reply = await client.post("/api/users/alice/SaveNote", content="{}", headers=plain)
        assert reply.status_code == 415
        options = await client.options("/api/users/alice/SaveNote")
        assert options.status_code == 403
        assert not [name for name in options.headers if name.startswith("access-control")]
        framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        for path in ("/api/me", "/assets/src/main.js", "/"):
            assert (await client.get(path, headers=framed)).status_code == 403, path
    assert asked(front) == []


@pytest.mark.attempt("giving somebody a session of one's own before they log in", stopped_by=COOKIE)
async def test_a_cookie_from_before_the_login_is_no_session(
    front: Front, server: HttpServer
) -> None:
    name = f"oxydra-{server.url.rpartition(':')[2]}"
    async with page(server) as client:
        link = Links.locate(front.config).make("alice")
        reply = await client.post(
            "/api/login", json={"link": link}, headers={"Cookie": f"{name}=chosen"}
        )
        assert reply.status_code == 200
        assert "chosen" not in set_cookie(reply)
        reply = await client.get("/api/me", headers={"Cookie": f"{name}=chosen"})
        assert reply.status_code == 401


@pytest.mark.attempt(
    "using the cookie of a login, which browsers send to other ports of the host too",
    stopped_by="a second secret is kept where only pages of the server's own port read it",
)
async def test_a_cookie_alone_lets_nobody_in(front: Front, server: HttpServer) -> None:
    token = front.access("bob").token
    async with operator(front, server) as client, operator(front, server) as other:
        for page in (None, "", "1", other.headers["X-Oxydra"], next(iter(client.cookies.values()))):
            headers = {} if page is None else {"X-Oxydra": page}
            async with httpx.AsyncClient(base_url=server.url, cookies=client.cookies) as thief:
                for path in ("/api/me", "/api/users/alice/files/x", "/mcp"):
                    assert (await thief.get(path, headers=headers)).status_code == 401, page
                assert await save(thief, **headers) == (401 if page else 403)
                await thief.post("/api/logout", json={"everywhere": True}, headers=headers)
                thief.cookies.update(client.cookies)
                await thief.post("/api/login", json={"token": token}, headers=headers)
        assert (await client.get("/api/me")).status_code == 200
    assert asked(front) == []


@pytest.mark.parametrize(("ours", "other"), [("127.0.0.1", "::1"), ("[::1]", "127.0.0.1")])
@pytest.mark.attempt(
    "taking the server's port at the other address that `localhost` leads to",
    stopped_by="the server keeps its port at both; it does not start where somebody is",
)
async def test_a_name_that_leads_to_two_addresses_leads_to_one_server(
    front: Front, ours: str, other: str
) -> None:
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    async with open_beside(front, listen=f"{ours}:0") as beside:
        port = int(beside.server.url.rpartition(":")[2])
        with socket.socket(family) as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                thief.bind((other, port))
    with socket.create_server((other, 0), family=family) as there:
        port = there.getsockname()[1]
        with pytest.raises(WireError, match="where localhost leads too, is in use"):
            async with open_beside(front, listen=f"{ours}:{port}"):
                pass


async def test_a_server_that_starts_again_logs_nobody_out(front: Front) -> None:
    async with AsyncExitStack() as browsers:
        clients = []
        async with open_beside(front) as beside:
            _, token = Tokens(beside.root).create("alice", "x", frozenset(Scope), timedelta(days=1))
            for proof in ({"link": Links(beside.root).make("alice")}, {"token": token}):
                client = await browsers.enter_async_context(page(beside.server))
                assert (await client.post("/api/login", json=proof)).status_code == 200
                clients.append(client)
            config = front.config.model_copy(update={"workspace_root": beside.root})
            port = int(beside.server.url.rpartition(":")[2])
        listen = {"listen": f"127.0.0.1:{port}"}
        async with open_http(replace(front, config=config), **listen):
            told = [(await client.get("/api/me")).json() for client in clients]
            assert [each["operator"] for each in told] == [True, False]
            Tokens(config.workspace_root).revoke("alice", "x")
            codes = [(await client.get("/api/me")).status_code for client in clients]
            assert codes == [200, 401]


@pytest.mark.attempt("using a cookie that was copied, after the logout", stopped_by=COOKIE)
async def test_a_logout_ends_the_session_and_what_it_has_open(
    front: Front, server: HttpServer
) -> None:
    front.alice.script = waits
    async with operator(front, server) as client, page(server) as thief:
        thief.cookies, thief.headers["X-Oxydra"] = client.cookies, client.headers["X-Oxydra"]
        async with thief.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as stream:
            assert "begun" in await anext(stream.aiter_lines())
            reply = await client.post("/api/logout", json={})
            assert "Max-Age=0" in set_cookie(reply)
        async with operator(front, server) as again, operator(front, server, "bob") as elsewhere:
            thief.cookies, thief.headers["X-Oxydra"] = again.cookies, again.headers["X-Oxydra"]
            async with thief.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as stream:
                await again.post("/api/logout", json={"everywhere": True})
                assert (await last_line(stream))["error"]["code"] == "unauthenticated"
            for client in (thief, elsewhere):
                assert (await client.get("/api/me")).status_code == 401


@pytest.mark.attempt(
    "going on in a browser whose token was revoked", stopped_by="a session ends with its token"
)
async def test_a_revoked_token_ends_sessions_and_streams(front: Front, server: HttpServer) -> None:
    front.alice.script = waits
    token = front.access("alice", "lost").token
    async with page(server) as client:
        await client.post("/api/login", json={"token": token})
        async with client.stream("POST", "/api/users/alice/FollowTurn", json=TURN) as stream:
            front.tokens.revoke("alice", "lost")
            began = time.monotonic()
            error = (await last_line(stream))["error"]
        assert (error["code"], "revoked" in error["brief"]) == ("unauthenticated", True)
        assert time.monotonic() - began < 20
        assert (await client.get("/api/me")).status_code == 401


@pytest.mark.attempt(
    "reading a token, a link or a cookie in the server's logs, pages and files",
    stopped_by="of secrets only hashes are kept, and no message holds one",
)
async def test_no_log_no_page_and_no_file_holds_a_secret(
    front: Front, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    token = front.access("alice", "planted").token
    wrong = "oxa_" + "w" * 43
    link = Links.locate(front.config).make("alice")
    said = []
    with caplog.at_level(logging.DEBUG):
        async with page(server) as client:
            for proof in ({"token": token}, {"link": link}, {"link": link}, {"token": wrong}):
                reply = await client.post("/api/login", json=proof)
                said.append(reply.text)
            cookie = next(iter(client.cookies.values()))
            for path in ("/api/me", f"/api/{token}", f"/?x={token}", f"/assets/{token}.js"):
                reply = await client.get(path, headers={"Authorization": f"Bearer {wrong}"})
                assert reply.status_code != 500
            said.append((await client.get("/api/me")).text)
            report = {"csp-report": {"blocked-uri": f"{server.url}/#link={link}"}}
            await client.post(REPORTS_PATH, json=report)
    logs = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("runner"))
    for secret in (token, wrong, link, cookie):
        assert secret not in logs
        assert secret not in "".join(said)
        for file in front.directory.rglob("*"):
            assert not file.is_file() or secret.encode() not in file.read_bytes(), file


@pytest.mark.attempt(
    "trying tokens and links one after the other over HTTP",
    stopped_by="secrets have 256 random bits; who tries many is told to stop, and not logged",
)
async def test_who_tries_many_is_told_to_stop_and_locks_nobody_out(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_beside(front) as beside, page(beside.server) as client:
        day = timedelta(days=1)
        _, token = Tokens(beside.root).create("alice", "known", frozenset(Scope), day)
        codes = []
        for number in range(REFUSALS_MAX + 5):
            proof = {"token": f"oxa_{number}"} if number % 2 else {"link": f"{number}"}
            codes.append((await client.post("/api/login", json=proof)).status_code)
        assert codes[0] == 401
        assert codes[-1] == 429
        assert caplog.text.count("refused a call") <= REFUSALS_MAX
        assert (await client.post("/api/login", json={"token": token})).status_code == 200


@pytest.mark.attempt("naming oneself in the header of a reverse proxy", stopped_by=PROXY)
async def test_the_header_of_a_proxy_is_believed_from_the_proxy_only(front: Front) -> None:
    named = {"X-Remote-User": "alice"}
    place = front.directory / "proxy.sock"
    settings = {"user_header": "X-Remote-User", "url": "https://agents.example.org"}
    both = {"user_header_from": "socket", "listen_beside_proxy": True}
    async with open_beside(front, socket=place, **both, **settings) as beside:
        transport = httpx.AsyncHTTPTransport(uds=str(place))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://agents.example.org", headers=PAGE
        ) as proxy:
            me = (await proxy.get("/api/me", headers=named)).json()
            assert (me["user_id"], me["operator"], me["users"]) == ("alice", False, ["alice"])
            for wrong in ("nobody", "../alice", "", "ALICE"):
                headers = {"X-Remote-User": wrong}
                assert (await proxy.get("/api/me", headers=headers)).status_code == 403
            twice = [("X-Remote-User", "alice"), ("X-Remote-User", "bob")]
            assert (await proxy.get("/api/me", headers=twice)).status_code == 403
            proxy.headers.pop("X-Oxydra")
            assert await save(proxy, **named) == 403  # the proxy's login is no page of ours
        async with httpx.AsyncClient(base_url=beside.server.urls[0], headers=PAGE) as direct:
            reply = await direct.get("/api/me", headers=named)
            assert (reply.status_code, "accepted only from" in reply.text) == (403, True)
    async with (
        open_beside(front, user_header_from="127.0.0.9", **settings) as beside,
        httpx.AsyncClient(base_url=beside.server.urls[0], headers=PAGE) as direct,
    ):
        assert (await direct.get("/api/me", headers=named)).status_code == 403
    async with open_beside(front) as beside, page(beside.server) as direct:
        assert (await direct.get("/api/me", headers=named)).status_code == 401


@pytest.mark.attempt(
    "being taken for the reverse proxy, by a connection that is reset at once", stopped_by=PROXY
)
@pytest.mark.parametrize("over_tls", [False, True])
async def test_who_has_gone_is_not_the_proxy(over_tls: bool) -> None:
    async with open_front() as front, AsyncExitStack() as stack:
        (front.config.workspace_root / "alice").mkdir(mode=0o700)
        files, trusting = tls_files(front)
        server = await stack.enter_async_context(
            open_http(
                front,
                socket=front.directory / "proxy.sock",
                user_header="X-Remote-User",
                user_header_from="socket",
                listen_beside_proxy=True,
                **(files if over_tls else {}),
            )
        )
        name, _, port = host(server).rpartition(":")
        body = '{"text": "planted"}'
        for _ in range(40):
            _, writer = await asyncio.open_connection(
                name, int(port), ssl=trusting if over_tls else None
            )
            writer.write(
                f"POST /api/users/alice/SaveNote HTTP/1.1\r\nHost: {host(server)}\r\n"
                "X-Oxydra: 1\r\nX-Remote-User: alice\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            gone: socket.socket = writer.get_extra_info("socket")
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        async with operator(front, server, verify=trusting) as client:
            assert await save(client) == 200
        assert [note.text for note in front.alice.seen] == ["x"]


async def test_nobody_listens_beside_the_proxy_unasked(front: Front) -> None:
    proxy = {"user_header": "X-Remote-User", "user_header_from": "socket"}
    with pytest.raises(WireError, match="a reverse proxy says who calls") as raised:
        async with open_beside(front, socket=front.directory / "p.sock", **proxy):
            pass
    assert "listen_beside_proxy = true" in raised.value.resolution


@pytest.mark.attempt("reading files of the host below /assets", stopped_by=FOLDERS)
async def test_assets_lead_nowhere_else(server: HttpServer) -> None:
    async with page(server) as client:
        for path in (
            "/assets/../package.json",
            "/assets/src/../../pyproject.toml",
            "/assets/src/%2e%2e/%2e%2e/pyproject.toml",
            "/assets/src%2f..%2f..%2fpyproject.toml",
            "/assets//etc/passwd",
            "/assets/%2fetc%2fpasswd",
            "/assets/src/.hidden.js",
            "/assets/src/x%00.js",
            "/assets/node_modules/x/y.js",
            "/assets/package.json",
            "/assets/",
            "/assets",
            "/index.html/",
            "/api/users/alice/../bob/Hello",
        ):
            reply = await raw(server, f"GET {path} HTTP/1.1\r\nHost: {host(server)}\r\n\r\n")
            assert re.match(rb"HTTP/1.1 (404|405|400|403)", reply), (path, reply[:200])
            assert (await client.get(path)).status_code in (403, 404, 405), path


def host(server: HttpServer) -> str:
    return server.url.partition("://")[2]


async def raw(server: HttpServer, request: str | bytes) -> bytes:
    """The beginning of what is answered to bytes; empty if the server closes."""
    name, _, port = host(server).rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    try:
        writer.write(request.encode() if isinstance(request, str) else request)
        async with asyncio.timeout(60):
            return await reader.read(65_536)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.attempt("sending heads and bodies without an end", stopped_by=BOUNDS)
async def test_what_is_too_large_is_not_read(front: Front, server: HttpServer) -> None:
    line = f"GET /healthz HTTP/1.1\r\nHost: {host(server)}\r\n"
    for more in (f"X-Long: {'x' * 40_000}\r\n\r\n", "X-Many: x\r\n" * 5_000 + "\r\n"):
        assert re.match(rb"HTTP/1.1 4(00|31) ", await raw(server, line + more))
    act = f"Host: {host(server)}\r\nX-Oxydra: 1\r\nContent-Type: application/json\r\n"
    announced = f"{act}Content-Length: {exchange.SMALL + 1}\r\n\r\n"
    assert b" 413 " in await raw(server, f"POST /api/login HTTP/1.1\r\n{announced}")
    assert b" 401 " in await raw(server, f"POST /api/users/alice/Hello HTTP/1.1\r\n{announced}")
    endless = f"{act}Transfer-Encoding: chunked\r\n\r\n" + f"8000\r\n{'x' * 0x8000}\r\n" * 3
    assert b" 413 " in await raw(server, f"POST /api/login HTTP/1.1\r\n{endless}")
    tiny = f"{act}Transfer-Encoding: chunked\r\n\r\n" + "1\r\nx\r\n" * 2_000
    for path in ("GET /healthz", "POST /api/login", "POST /v1/responses"):
        assert b" 400 " in await raw(server, f"{path} HTTP/1.1\r\n{tiny}"), path
    short = "a:\r\n" * 1_000  # each line costs some hundred bytes while the request lasts
    assert b" 400 " in await raw(server, f"{line}{short}\r\n")
    assert asked(front) == []


@pytest.mark.attempt(
    "filling the log with requests that break off or end in nonsense", stopped_by=BOUNDS
)
async def test_a_request_that_breaks_off_is_no_fault_of_the_server(
    front: Front, server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    token = front.access("alice").token
    name, _, port = host(server).rpartition(":")
    for path in ("POST /v1/responses", "POST /mcp", "POST /api/users/alice/Hello", "GET /healthz"):
        for then in (b"", b"zz\r\n"):
            reader, writer = await asyncio.open_connection(name, int(port))
            head = f"{path} HTTP/1.1\r\nHost: {host(server)}\r\nAuthorization: Bearer {token}\r\n"
            head += "Transfer-Encoding: chunked\r\n\r\n"
            assert b" 400 " in await raw(server, f"{head}zz\r\n")
            writer.write(f"{head}1\r\nx\r\n".encode())
            if path == "GET /healthz":
                assert b" 200 " in await reader.read(4_096)
            else:
                await eventually(lambda: running_requests() == 1, "it is read")
            writer.write(then)
            writer.close()
            await eventually(lambda: running_requests() == 0, "it has ended")
    half = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with page(server) as client:
        for path in ("/api/users/alice/SearchNotes", "/v1/responses", "/mcp"):
            body = b'{"\\ud800": "x"}'
            assert (await client.post(path, content=body, headers=half)).status_code == 400, path
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def running_requests() -> int:
    return sum("run_asgi" in repr(task) for task in asyncio.all_tasks())


@pytest.mark.attempt("holding the server with connections that say little", stopped_by=BOUNDS)
async def test_slow_and_many_clients_are_cut_off(
    server: HttpServer, front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.3)
    monkeypatch.setattr(exchange, "PIECE_S", 0.3)
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    head = f"POST /api/login HTTP/1.1\r\nHost: {host(server)}\r\nX-Oxydra: 1\r\n"
    assert await raw(server, "") == b""
    assert await raw(server, "GET /healthz HTT") == b""
    body = "Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    assert b" 408 " in await raw(server, head + body)
    done = f"GET /healthz HTTP/1.1\r\nHost: {host(server)}\r\n\r\n"
    name, _, port = host(server).rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    writer.write(done.encode())
    assert b" 200 " in await reader.readuntil(b'{"status":"ok"}')
    writer.write(b"GET /heal")  # a second request on the same connection, without an end
    async with asyncio.timeout(60):
        assert await reader.read() == b""


@pytest.mark.attempt("keeping others out by holding many connections", stopped_by=ROOM)
@pytest.mark.parametrize("said", ["", "handshake", "head", "body"])
async def test_the_oldest_of_those_who_wait_goes_and_never_the_new_one(
    front: Front, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(connections, "WAITING_MAX", 8)
    files, trusting = tls_files(front)
    begun = await begun_handshake(trusting)
    async with open_beside(front, **files) as beside, AsyncExitStack() as stack:
        server, name = beside.server, "127.0.0.1"
        client = await stack.enter_async_context(page(server, verify=trusting))
        link = Links(beside.root).make("alice")
        assert (await client.post("/api/login", json={"link": link})).status_code == 200
        port = int(server.url.rpartition(":")[2])
        asked = f"POST {REPORTS_PATH} HTTP/1.1\r\nHost: {host(server)}\r\nContent-Length: 9\r\n"
        sent = {"": b"", "handshake": begun, "head": asked.encode()}.get(
            said, f"{asked}\r\n{{".encode()
        )
        readers = []
        for _ in range(20):
            tls = trusting if said in ("head", "body") else None
            reader, writer = await asyncio.open_connection(name, port, ssl=tls)
            stack.callback(writer.transport.abort)
            writer.write(sent)
            readers.append(reader)
        for reader in readers[:12]:
            with suppress(ConnectionError):
                async with asyncio.timeout(60):
                    while await reader.read(1024):
                        pass
        assert (await client.get("/api/me")).status_code == 200
        async with page(server, verify=trusting) as new:
            assert (await new.get("/healthz")).status_code == 200


@pytest.mark.attempt(
    "making others wait with requests that follow each other at once",
    stopped_by="who asks ahead, or is one of many strangers, has one answer and comes again",
)
async def test_a_stranger_that_asks_on_and_on_has_to_come_again(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"Host: {host(server)}\r\n"
    stranger = f"GET /healthz HTTP/1.1\r\n{name}\r\n"
    token = front.access("alice", "patient").token
    inside = f"GET /api/me HTTP/1.1\r\n{name}Authorization: Bearer {token}\r\n\r\n"
    assert (await raw(server, stranger * 3)).count(b" 200 ") == 1
    for large, answers in ((64, [(stranger, 2), (inside, 2)]), (-1, [(stranger, 1), (inside, 2)])):
        monkeypatch.setattr(connections, "LARGE", large)
        for asked, count in answers:
            address, _, port = host(server).rpartition(":")
            reader, writer = await asyncio.open_connection(address, int(port))
            answered = 0
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                async with asyncio.timeout(60):
                    while answered < 2:
                        writer.write(asked.encode())
                        head = await reader.readuntil(b"\r\n\r\n")
                        length = head.lower().partition(b"content-length: ")[2].split()[0]
                        await reader.readexactly(int(length))
                        answered += 1
            assert answered == count
            writer.close()


@pytest.mark.attempt(
    "sending the body of a refused request without end",
    stopped_by="of somebody who is not let in, nothing more is read",
)
async def test_a_refused_stranger_is_hung_up_on_and_not_read(server: HttpServer) -> None:
    address, _, port = host(server).rpartition(":")
    _, writer = await asyncio.open_connection(address, int(port))
    head = "POST /api/users/alice/ListNotes HTTP/1.1\r\nContent-Length: 1000000000000\r\n"
    writer.write(f"{head}Host: {host(server)}\r\n\r\n".encode())
    sent = 0
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            while True:
                writer.write(bytes(65_536))
                await writer.drain()
                sent += 65_536
    assert sent < 16 * 1024 * 1024  # buffers of both sides hold some
    writer.close()


async def begun_handshake(trusting: ssl.SSLContext) -> bytes:
    """What a client says first; half of it, so that nothing is answered."""
    out = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        trusting.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    hello = out.read()
    return hello[: len(hello) // 2]


async def test_who_is_let_in_has_room_of_their_own(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "ADMITTED_MAX", 2)
    front.alice.script = waits
    token = front.access("alice", "greedy").token
    kept = []
    async with AsyncExitStack() as stack:
        for _ in range(2):
            client = await stack.enter_async_context(page(server))
            assert (await client.post("/api/login", json={"token": token})).status_code == 200
            stream = await stack.enter_async_context(
                client.stream("POST", "/api/users/alice/FollowTurn", json=TURN)
            )
            kept.append(stream.aiter_lines())
            assert "begun" in await anext(kept[-1])
        third = await stack.enter_async_context(page(server))
        assert (await third.post("/api/login", json={"token": token})).status_code == 200
        assert (await third.get("/api/me")).status_code == 429
        other = await stack.enter_async_context(operator(front, server))
        assert (await other.get("/api/me")).status_code == 200


@pytest.mark.attempt(
    "having more calls at once by logging in many times", stopped_by="calls are counted by token"
)
async def test_many_logins_have_the_calls_of_one(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "CALLS_MAX", 3)
    front.alice.script = waits
    token = front.access("alice", "many").token
    kept, begun = [], []
    async with AsyncExitStack() as stack:
        for _ in range(5):
            client = await stack.enter_async_context(page(server))
            await client.post("/api/login", json={"token": token})
            stream = await stack.enter_async_context(
                client.stream("POST", "/api/users/alice/FollowTurn", json=TURN)
            )
            kept.append(stream.aiter_lines())
            begun.append("begun" in await anext(kept[-1]))
    assert begun == [True, True, True, False, False]


@pytest.mark.attempt("keeping the server busy with a body of very many values", stopped_by=BOUNDS)
@pytest.mark.parametrize(
    ("path", "beginning"),
    [
        ("/api/users/alice/ImportMemory", '{"data":['),
        ("/api/users/alice/SaveNote", '{"tags":['),
        ("/v1/responses", '{"model":"oxydra","input":['),
        ("/mcp", '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":['),
    ],
)
async def test_a_body_of_many_values_is_refused_before_it_costs(
    front: Front, server: HttpServer, path: str, beginning: str
) -> None:
    size = 200_000 if path.endswith("SaveNote") else 4_000_000
    body = beginning + "{}," * ((size - 100) // 3) + "{}]}"
    front.alice.seen.clear()
    token = front.access("alice", "busy").token
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    late: list[float] = []

    async def watch() -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            late.append(time.monotonic() - began)

    watching = asyncio.create_task(watch())
    async with page(server) as client:
        reply = await client.post(path, content=body, headers=headers)
    watching.cancel()
    assert (reply.status_code, "too many values" in reply.text) == (400, True)
    assert max(late, default=0) < 5  # it was 30
    assert front.alice.seen == []


@pytest.mark.attempt(
    "never reading what one has asked for", stopped_by="who reads nothing for a minute is cut off"
)
async def test_who_does_not_read_is_cut_off(
    front: Front, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.3)
    made = 0

    async def much(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
        nonlocal made
        while True:
            made += 1
            yield text("x" * 256 * 1024)

    front.alice.script = much
    token, left = front.access("alice", "lazy").token, len(front.alice.left)
    body = json.dumps(TURN)
    name, _, port = host(server).rpartition(":")
    _, writer = await asyncio.open_connection(name, int(port), limit=1024)
    writer.write(
        f"POST /api/users/alice/FollowTurn HTTP/1.1\r\nHost: {host(server)}\r\n"
        f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    async with asyncio.timeout(60):
        while len(front.alice.left) == left:
            await asyncio.sleep(0.05)
    writer.close()
    assert made < 400


async def test_every_answer_carries_the_policy(front: Front, server: HttpServer) -> None:
    async with operator(front, server) as client:
        for reply in (
            await client.get("/"),
            await client.get("/healthz"),
            await client.get("/api/me"),
            await client.get("/nothing"),
            await client.get("/api/me", headers={"Host": "evil.example"}),
            await client.post("/api/users/alice/Nothing", json={}),
        ):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "require-trusted-types-for 'script'" in policy
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["cross-origin-opener-policy"] == "same-origin"
            assert reply.headers["referrer-policy"] == "no-referrer"
            assert "server" not in reply.headers
        assert (await client.get("/api/me")).headers["cache-control"] == "no-store"
        before = (await client.get(REPORTS_PATH)).json()["reports"]
        await client.post(REPORTS_PATH, content=b"{", headers={"X-Oxydra": ""})
        assert (await client.get(REPORTS_PATH)).json()["reports"] == before + 1


def tls_files(front: Front) -> tuple[dict[str, Path], ssl.SSLContext]:
    """Settings with a certificate, and a client's that trusts it."""
    identity = Authority.new().issue(Party.ACCESS)
    pem, key = front.directory / "c.pem", front.directory / "k.pem"
    pem.write_text(identity.certificate)
    key.write_text(identity.key)
    key.chmod(0o600)
    trusting = ssl.create_default_context(cadata=identity.authority)
    trusting.check_hostname = False
    return {"certificate": pem, "key": key}, trusting


async def test_with_a_certificate_the_cookie_is_for_tls_alone(front: Front) -> None:
    files, trusting = tls_files(front)
    async with (
        open_beside(front, **files) as beside,
        httpx.AsyncClient(base_url=beside.server.url, headers=PAGE, verify=trusting) as client,
    ):
        assert beside.server.url.startswith("https://")
        link = Links(beside.root).make("alice")
        reply = await client.post("/api/login", json={"link": link})
        assert reply.status_code == 200
        port = beside.server.url.rpartition(":")[2]
        assert set_cookie(reply).startswith(f"__Host-oxydra-{port}=")
        assert set_cookie(reply).endswith("; Secure")
        client.headers["X-Oxydra"] = reply.json()["page"]
        assert (await client.get("/api/me")).json()["user_id"] == "alice"
        plain = beside.server.url.replace("https", "http")
        with pytest.raises(httpx.TransportError):
            await httpx.AsyncClient().get(f"{plain}/healthz")


@pytest.mark.attempt(
    "reading what is said on the way to another machine",
    stopped_by="without a certificate the server listens on addresses of this machine alone",
)
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"listen": "0.0.0.0:0"}, "without TLS"),
        ({"listen": "192.0.2.1:7480"}, "without TLS"),
        ({"listen": "localhost.example.org:7480"}, "without TLS"),
        ({"listen": ""}, "no address"),
        ({"listen": "127.0.0.1:1", "user_header_from": "nowhere", "user_header": "X-U"}, "address"),
    ],
)
async def test_nothing_is_served_in_clear_to_others(
    front: Front, settings: Mapping[str, Any], told: str
) -> None:
    with pytest.raises(WireError, match=told) as raised:
        async with open_beside(front, **settings):
            pass
    assert raised.value.resolution


async def test_a_second_server_is_refused_and_the_socket_is_private(front: Front) -> None:
    place = front.directory / "h.sock"
    async with open_beside(front, socket=place, listen="") as beside:
        assert place.stat().st_mode & 0o777 == 0o600
        config = front.config.model_copy(update={"workspace_root": beside.root})
        with pytest.raises(WireError, match="runs already"):
            async with open_http(replace(front, config=config)):
                pass
        transport = httpx.AsyncHTTPTransport(uds=str(place))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert not place.exists()


@pytest.mark.attempt(
    "acting beyond a token's scopes in the console",
    stopped_by="a table says for each method which scopes it needs",
)
async def test_a_login_with_few_scopes_can_do_little(front: Front, server: HttpServer) -> None:
    token = front.access("alice", "reader", Scope.MEMORY).token
    async with page(server) as client:
        await client.post("/api/login", json={"token": token})
        few = "StartTurn ListSessions ExportMemory SetMemoryToken CallTool safety"
        for method in few.split():
            reply = await client.post(f"/api/users/alice/{method}", json={})
            assert (method, reply.status_code) == (method, 403)
        assert (await client.post("/api/users/bob/ListNotes", json={})).status_code == 403
        assert (await client.post("/api/host/ListUsers", json={})).status_code == 403
    assert asked(front) == []

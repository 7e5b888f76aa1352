"""What the holder of an access token, and who has none, can not do.

Fake agents stand behind the real server, and what each of them was asked is known.
"""

import asyncio
import json
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest
import pytest_asyncio
from wire.errors import Code, WireError
from wire.identity import Party
from wire.limits import ALWAYS, TOKEN_METADATA_KEY
from wire.v1 import gateway_pb2 as pb
from wire.v1.gateway_pb2_grpc import GatewayStub

from runner.access import callers
from runner.access.callers import Caller, Callers
from runner.access.scopes import METHODS, Scope
from runner.client.access import AccessFile
from runner.config.models import Config
from runner.errors import ConfigError, HostError
from runner.host.authority import Authority
from runner.serve.server import HttpServer
from tests.support import parties
from tests.support.gateway.fake_gateway import LIVE, Event, FakeGateway, completed, echo, text
from tests.support.gateway.front import Front, open_front, refusal, stub_of
from tests.support.gateway.http_front import looking
from tests.support.ordinary_user import NOBODY

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "each call carries a token of 256 random bits, compared by its hash"
USER = "a token leads to the agent of its own user; no request names another"
OPERATOR = "others are not shown the offer, and the gateway does not take it from them"
SCOPE = "a table says for each method which scopes it needs"
TLS = "where access files lead, the server has no port without TLS"
CERTIFICATE = "an access file names the authority of the one server that gets the token"
KNOWN = "unknown access token"


def serving(config: Config) -> HttpServer:
    """The HTTP server; browsers' address is any free one."""
    serve = config.serve.model_copy(update={"listen": "127.0.0.1:0"})
    config = config.model_copy(update={"serve": serve})
    return HttpServer(config, looking(config))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def front() -> AsyncIterator[Front]:
    async with open_front() as made, serving(made.with_access):
        yield made


@pytest.fixture(autouse=True)
def fresh(front: Front) -> None:
    """No tokens, and agents that were asked nothing."""
    for user_id in ("alice", "bob"):
        front.tokens.revoke(user_id)
    for agent in (front.alice, front.bob):
        agent.turns.clear()
        agent.seen.clear()
        agent.left.clear()
        agent.sessions.clear()
        agent.sessions["s"] = pb.Session(session_id="s")
        agent.script = echo


def altered(access: AccessFile, **fields: Any) -> AccessFile:
    return access.model_copy(update=fields)


async def waits(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
    """A turn that goes on until its caller leaves."""
    yield text("begun")
    await asyncio.Event().wait()


async def begun(stub: Any) -> Any:
    """A stream of which a first piece has come."""
    call = stub.FollowTurn(pb.FollowTurnRequest(turn_id=LIVE))
    assert (await call.read()).text.text == "begun"
    return call


async def ended(call: Any) -> WireError:
    async with asyncio.timeout(60):
        return await refusal(call)


def http(access: AccessFile, **headers: str) -> httpx.AsyncClient:
    """The server as somebody calls it who writes requests by hand."""
    trusted = ssl.create_default_context(cadata=access.certificate)
    return httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(
            verify=trusted, uds=access.address.removeprefix("unix:")
        ),
        base_url=f"https://{access.server_name}",
        headers={"Authorization": f"Bearer {access.token}", **headers},
        timeout=60,
    )


def asked(agent: FakeGateway) -> list[Any]:
    return [*agent.turns, *agent.seen]


@pytest.mark.parametrize("tcp", [False, True])
async def test_who_has_a_token_is_let_in_as_its_user(front: Front, tcp: bool) -> None:
    access = front.access(tcp=tcp)
    async with stub_of(access) as stub:
        assert (await stub.Hello(pb.HelloRequest())).user_id == "alice"
        request = pb.StartTurnRequest(session_id="s", text="hi", turn_id=f"t-{tcp}", channel="cli")
        await stub.StartTurn(request)
        turn = stub.FollowTurn(pb.FollowTurnRequest(turn_id=f"t-{tcp}"))
        events = [event async for event in turn]
        await stub.SaveNote(pb.SaveNoteRequest(text="a note", channel="cli"))
    assert events[-1].completed.text == "you said: hi"
    assert front.alice.turns[0].channel == "access-laptop"
    assert front.alice.seen[0].channel == "access-laptop"
    assert asked(front.bob) == []


@pytest.mark.attempt("reaching another user's agent with one's own token", stopped_by=USER)
async def test_a_token_leads_to_no_other_user(front: Front) -> None:
    front.bob.holds("note-of-bob")
    front.bob.sessions["of-bob"] = pb.Session(session_id="of-bob")
    async with stub_of(front.access("alice")) as stub:
        for call in (
            stub.GetNote(pb.GetNoteRequest(note_id="note-of-bob")),
            stub.GetSession(pb.GetSessionRequest(session_id="of-bob")),
        ):
            assert (await refusal(call)).code is Code.NOT_FOUND
        assert not (await stub.ListNotes(pb.ListNotesRequest(limit=100))).notes
    assert asked(front.bob) == []


@pytest.mark.attempt("following or deciding on another user's turn", stopped_by=USER)
async def test_a_turn_outlives_who_left_and_belongs_to_its_user(front: Front) -> None:
    front.alice.script = waits
    async with stub_of(front.access("alice")) as stub:
        request = pb.StartTurnRequest(session_id="s", text="hi", turn_id="left", channel="cli")
        await stub.StartTurn(request)
        following = pb.FollowTurnRequest(turn_id="left")
        call = stub.FollowTurn(following)
        assert (await anext(aiter(call))).text.text == "begun"
        call.cancel()
    assert front.alice.turns[0].channel == "access-laptop"
    async with stub_of(front.access("bob")) as stub:
        assert (await refusal(stub.FollowTurn(following))).code is Code.NOT_FOUND
        assert not (await stub.ListTurns(pb.ListTurnsRequest())).turns
    async with stub_of(front.access("alice", "phone")) as stub:
        (turn,) = (await stub.ListTurns(pb.ListTurnsRequest(running_only=True))).turns
        assert (turn.turn_id, turn.state) == ("left", "running")
        assert (await anext(aiter(stub.FollowTurn(following)))).text.text == "begun"


@pytest.mark.attempt("keeping for good what only the operator may", stopped_by=OPERATOR)
async def test_always_is_offered_to_the_operator_alone(front: Front) -> None:
    async def asks(gateway: FakeGateway, _: pb.StartTurnRequest) -> AsyncIterator[Event]:
        event = gateway.approval_event("network", "{}")
        event.approval.offers[:] = ["here", ALWAYS]
        gateway.open_approvals[-1].offers[:] = ["here", ALWAYS]
        yield event
        await asyncio.Event().wait()

    async def offered(stub: Any, turn_id: str) -> list[list[str]]:
        await stub.StartTurn(pb.StartTurnRequest(session_id="s", text="hi", turn_id=turn_id))
        turn = stub.FollowTurn(pb.FollowTurnRequest(turn_id=turn_id))
        event = await anext(aiter(turn))
        listed = (await stub.ListApprovals(pb.ListApprovalsRequest())).approvals
        turn.cancel()
        approval_id = event.approval.approval_id
        await stub.Decide(pb.DecideRequest(approval_id=approval_id, approved=True, offer=2))
        return [[*each.offers] for each in (event.approval, listed[-1])]

    front.alice.script = asks
    async with stub_of(front.access("alice")) as stub:
        assert await offered(stub, "of-alice") == [["here"], ["here"]]
    async with Callers.locate(front.config) as all_callers:
        at_home = GatewayStub(all_callers.agent(Caller.at_terminal("alice", "console")))
        assert await offered(at_home, "at-home") == [["here", ALWAYS], ["here", ALWAYS]]
    assert [each.limited for each in front.alice.decisions] == [True, False]


@pytest.mark.attempt("calling a method for which the token has no scope", stopped_by=SCOPE)
async def test_a_method_beyond_the_scopes_never_reaches_the_agent(front: Front) -> None:
    for scope in Scope:
        access = front.access("alice", scope.value, scope)
        async with http(access) as client:
            for method in METHODS.values():
                if method.needed is not None and method.needed <= {scope}:
                    continue
                reply = await client.post(f"/api/users/alice/{method.name}", json={})
                error = reply.json()["error"]
                assert (reply.status_code, error["code"]) == (403, "permission_denied"), method.name
    assert asked(front.alice) == []


@pytest.mark.attempt(
    "calling what only the host may call, such as a new memory token", stopped_by=SCOPE
)
async def test_what_belongs_to_the_host_is_not_relayed(front: Front) -> None:
    async with stub_of(front.access()) as stub:
        error = await refusal(stub.SetMemoryToken(pb.SetMemoryTokenRequest(auth_token="x" * 20)))
    assert error.code is Code.PERMISSION_DENIED
    assert "account that runs the agents" in error.brief


@pytest.mark.attempt("calling with no token, or with nearly the right one", stopped_by=TOKEN)
async def test_an_unknown_token_is_refused(front: Front) -> None:
    right = front.access()
    record = front.tokens.all()[0]
    for token in (
        right.token[:-1],
        f"{right.token}x",
        right.token.swapcase(),
        record.digest,
        "oxa_",
    ):
        async with stub_of(altered(right, token=token)) as stub:
            error = await refusal(stub.Hello(pb.HelloRequest()))
            assert error.code is Code.UNAUTHENTICATED
            assert token == "oxa_" or token not in str(error)
    for headers in (
        {},
        {TOKEN_METADATA_KEY: right.token},
        {"Authorization": right.token},
        {"X-Oxydra": "1", "Cookie": f"__Host-oxydra-usual={right.token}"},
    ):
        async with http(right) as client:
            del client.headers["Authorization"]
            for path in ("/api/users/alice/Hello", "/api/login", "/mcp", "/v1/responses"):
                reply = await client.post(path, json={"token": right.token}, headers=headers)
                assert reply.status_code == 401, (path, headers)
    assert asked(front.alice) == []


@pytest.mark.attempt("using a token after its end", stopped_by="the end is part of the token")
async def test_a_token_ends_also_in_the_middle_of_a_stream(front: Front) -> None:
    front.alice.script = waits
    access = front.access(lifetime=timedelta(seconds=4))
    async with stub_of(access) as stub:
        error = await ended(await begun(stub))
        assert (error.code, error.brief) == (Code.UNAUTHENTICATED, "this access token has expired")
        error = await refusal(stub.Hello(pb.HelloRequest()))
    assert (error.code, error.brief) == (Code.UNAUTHENTICATED, "this access token has expired")
    assert "for another one" in error.resolution


@pytest.mark.attempt(
    "going on with a stream whose token was revoked, and coming back with that token",
    stopped_by="the server looks at the tokens before each call, and four times a second while "
    "calls run",
)
async def test_revocation_ends_what_is_open(front: Front) -> None:
    front.alice.script = waits
    revoked, kept = front.access(name="laptop"), front.access(name="phone")
    async with stub_of(revoked) as stub, stub_of(kept) as other:
        call, others = await begun(stub), await begun(other)
        front.tokens.revoke("alice", "laptop")
        error = await ended(call)
        assert (error.code, error.brief) == (Code.UNAUTHENTICATED, "this access token was revoked")
        assert (await refusal(stub.Hello(pb.HelloRequest()))).code is Code.UNAUTHENTICATED
        assert (await other.Hello(pb.HelloRequest())).user_id == "alice"
        others.cancel()
    async with stub_of(revoked) as stub:
        assert (await refusal(stub.Hello(pb.HelloRequest()))).code is Code.UNAUTHENTICATED


@pytest.mark.attempt(
    "being let in while the file of tokens is damaged",
    stopped_by="without a list that can be read nobody is let in, and open calls end",
)
async def test_a_damaged_file_lets_nobody_in(front: Front) -> None:
    front.alice.script = waits
    path = front.tokens.directory / "tokens.json"
    async with stub_of(front.access()) as stub:
        call = await begun(stub)
        whole = path.read_bytes()
        path.write_bytes(whole[:-10])
        try:
            assert (await ended(call)).code is Code.UNAUTHENTICATED
            error = await refusal(stub.Hello(pb.HelloRequest()))
            assert error.code is Code.UNAVAILABLE
            assert str(path) not in str(error)
            with pytest.raises(HostError, match="nobody is let in"):
                front.tokens.all()
        finally:
            path.write_bytes(whole)
        await stub.Hello(pb.HelloRequest())


@pytest.mark.attempt(
    "reading tokens in the logs or the files of the host",
    stopped_by="only the SHA-256 of a token is kept, and no message holds one",
)
async def test_no_log_and_no_file_holds_a_token(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    right = front.access()
    wrong = altered(right, token="oxa_" + "w" * 43)
    with caplog.at_level(logging.DEBUG, logger="runner"):
        for access in (right, wrong):
            async with stub_of(access) as stub:
                with suppress(WireError):
                    await stub.Hello(pb.HelloRequest())
                with suppress(WireError):
                    await stub.GetNote(pb.GetNoteRequest(note_id="none"))
    said = caplog.text
    assert "alice by access-laptop calls Hello" in said
    assert KNOWN in said
    for access in (right, wrong):
        assert access.token not in said
        assert access.token not in repr(access)
        for file in front.directory.rglob("*"):
            assert not file.is_file() or access.token.encode() not in file.read_bytes()


@pytest.mark.attempt(
    "trying tokens one after the other",
    stopped_by="a token has 256 random bits; see callers.Refusals",
)
async def test_who_tries_many_tokens_is_soon_not_even_logged(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    right = front.access()
    answers = []
    for number in range(callers.REFUSALS_MAX + 20):
        async with stub_of(altered(right, token=f"oxa_{number:043}")) as stub:
            answers.append((await refusal(stub.Hello(pb.HelloRequest()))).code)
    assert answers[-1] is Code.RESOURCE_EXHAUSTED
    assert set(answers) <= {Code.UNAUTHENTICATED, Code.RESOURCE_EXHAUSTED}
    assert caplog.text.count(KNOWN) <= callers.REFUSALS_MAX
    async with stub_of(right) as stub:  # nobody can lock out who shares an address with them
        assert (await stub.Hello(pb.HelloRequest())).user_id == "alice"


async def test_refusals_are_counted_by_address_and_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    refusals = callers.Refusals(clock=lambda: now[0])
    codes = [refusals.note("ipv4:192.0.2.1").code for _ in range(callers.REFUSALS_MAX + 1)]
    assert codes[-2:] == [Code.UNAUTHENTICATED, Code.RESOURCE_EXHAUSTED]
    assert refusals.note("ipv4:192.0.2.2").code is Code.UNAUTHENTICATED
    for number in range(200):
        assert refusals.note(f"ipv6:%5B2001:db8::{number}%5D").code is Code.UNAUTHENTICATED
    logged = caplog.text.count(KNOWN)
    assert callers.REFUSALS_MAX < logged <= 50
    now[0] += callers.REFUSALS_WITHIN_S + 1
    assert refusals.note("ipv4:192.0.2.1").code is Code.UNAUTHENTICATED
    assert caplog.text.count(KNOWN) == logged + 1


@pytest.mark.attempt("speaking to the server without TLS", stopped_by=TLS)
async def test_nothing_is_heard_without_tls(front: Front) -> None:
    for access in (front.access(name="a"), front.access(name="b", tcp=True)):
        path = access.address.removeprefix("unix:")
        if path == access.address:
            reader, writer = await asyncio.open_connection(*access.address.split(":"))
        else:
            reader, writer = await asyncio.open_unix_connection(path)
        writer.write(
            b"POST /api/users/alice/Hello HTTP/1.1\r\nHost: access\r\nContent-Length: 0\r\n"
            + f"Authorization: Bearer {access.token}\r\n\r\n".encode()
        )
        with suppress(ConnectionError):
            assert b"HTTP" not in await reader.read()
        writer.close()
    assert not front.alice.seen
    assert not {token.digest for token in front.tokens.all()} & set(front.tokens.last_used())


@pytest.mark.attempt("answering in the server's place to collect tokens", stopped_by=CERTIFICATE)
@pytest.mark.parametrize("plain", [True, False])
async def test_another_server_gets_no_token(front: Front, plain: bool) -> None:
    received = bytearray()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.extend(await reader.read(10_000))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    address = front.directory / "other.sock"
    tls = None
    if not plain:
        identity = Authority.new().issue(Party.ACCESS)
        (front.directory / "other.pem").write_text(identity.certificate + identity.key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(front.directory / "other.pem")
    access = altered(front.access(), address=f"unix:{address}")
    async with await asyncio.start_unix_server(collect, address, ssl=tls):
        with pytest.raises(WireError) as raised:
            await access.connect(channel_name="test")
    assert access.token.encode() not in received
    assert b"HTTP" not in received
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "somebody else answers" in raised.value.brief


@pytest.mark.attempt(
    "calling a guest's gateway with an access token",
    stopped_by="gateways hear certificates of their own runner, and tokens of their launch",
)
async def test_a_token_is_no_use_at_the_gateway_itself(front: Front) -> None:
    access = altered(front.access(), address=front.alice.endpoint, server_name="agent")
    for certificate in (access.certificate, parties.AUTHORITY.public):
        with pytest.raises(WireError):
            await altered(access, certificate=certificate).connect(channel_name="test")
    assert asked(front.alice) == []


@pytest.mark.attempt("sending a message that is too large", stopped_by="bodies have bounds")
async def test_a_message_that_is_too_large_ends_its_call_only(front: Front) -> None:
    async with http(front.access()) as client:
        saved = "x" * 300_000
        with suppress(httpx.TransportError):  # the connection may end before the answer is read
            reply = await client.post("/api/users/alice/SaveNote", json={"text": saved})
            assert reply.status_code == 413
    async with stub_of(front.access(name="phone")) as stub:
        error = await refusal(stub.SaveNote(pb.SaveNoteRequest(text=saved)))
        assert (error.code, "SaveNote is too large" in error.brief) == (Code.INVALID_ARGUMENT, True)
        assert (await stub.Hello(pb.HelloRequest())).user_id == "alice"
    assert asked(front.alice) == []


@pytest.mark.attempt("sending headers without an end", stopped_by="a head has 16 KiB")
async def test_headers_that_are_too_large_end_their_call_only(front: Front) -> None:
    async with http(front.access()) as client:
        long = {"X-Long": "v" * 20_000}
        reply = await client.post("/api/users/alice/Hello", json={}, headers=long)
        assert reply.status_code in (400, 431)
        assert (await client.post("/api/users/alice/Hello", json={})).status_code == 200


@pytest.mark.attempt(
    "letting a page of a browser speak where access files lead", stopped_by="no page speaks there"
)
async def test_no_page_speaks_where_access_files_lead(front: Front) -> None:
    access = front.access()
    for headers in ({"Origin": "https://access"}, {"Sec-Fetch-Site": "same-origin"}):
        async with http(access, **headers) as client:
            reply = await client.post("/api/users/alice/Hello", json={})
            assert (reply.status_code, "another site" in reply.text) == (403, True)
    assert asked(front.alice) == []


@pytest.mark.attempt(
    "holding the server with many calls", stopped_by=f"{callers.CALLS_MAX} calls of a token at once"
)
async def test_a_token_has_so_many_calls_at_once(front: Front) -> None:
    front.alice.script = waits
    async with stub_of(front.access()) as stub, stub_of(front.access(name="phone")) as other:
        calls = [await begun(stub) for _ in range(callers.CALLS_MAX)]
        assert (await refusal(stub.Hello(pb.HelloRequest()))).code is Code.RESOURCE_EXHAUSTED
        await other.Hello(pb.HelloRequest())
        for call in calls:
            call.cancel()
        async with asyncio.timeout(60):
            while len(front.alice.left) < callers.CALLS_MAX:
                await asyncio.sleep(0.01)
        await stub.Hello(pb.HelloRequest())


async def test_who_does_not_read_slows_the_agent(front: Front) -> None:
    made = 0
    size, pieces = 256 * 1024, 400

    async def much(gateway: FakeGateway, request: pb.StartTurnRequest) -> AsyncIterator[Event]:
        nonlocal made
        for _ in range(pieces):
            made += 1
            yield text("x" * size)
        yield completed("done")

    front.alice.script = much
    async with stub_of(front.access()) as stub:
        events = aiter(stub.FollowTurn(pb.FollowTurnRequest(turn_id=LIVE)))
        await anext(events)
        before = -1
        while made != before:
            before = made
            await asyncio.sleep(0.3)
        assert made < pieces // 2
        assert len([event async for event in events]) == pieces


async def refused(stub: Any) -> bool:
    try:
        await stub.Hello(pb.HelloRequest())
    except WireError:
        return True
    return False


async def test_a_guest_or_a_host_that_was_started_again_is_found(front: Front) -> None:
    async with stub_of(front.access()) as stub:
        await stub.Hello(pb.HelloRequest())
        await front.alice.stop()
        assert (await refusal(stub.Hello(pb.HelloRequest()))).code is Code.UNAVAILABLE
        await front.alice.start()
        async with asyncio.timeout(60):
            while await refused(stub):
                await asyncio.sleep(0.05)
        await front.hosts["alice"].stop()
        error = await refusal(stub.Hello(pb.HelloRequest()))
        assert error.code is Code.FAILED_PRECONDITION
        assert "runner --user alice start" in error.resolution
        await front.hosts["alice"].start()
        await stub.Hello(pb.HelloRequest())


@pytest.mark.root
@pytest.mark.attempt(
    "connecting to the socket from an account outside its group",
    stopped_by="the socket is open to its account and to one group",
)
async def test_the_socket_is_for_its_group(front: Front) -> None:
    """As another account: first as its own socket, then with the group."""
    front.directory.chmod(0o711)
    place = front.directory / "a.sock"
    assert place.stat().st_mode & 0o777 == 0o600

    def connects(group: int) -> bool:
        groups = os.getgroups()
        os.setgroups([])
        os.setegid(group)
        os.seteuid(NOBODY)
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(place))
            return True
        except PermissionError:
            return False
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)

    assert not connects(NOBODY)
    settings = front.with_access.access.model_copy(
        update={"socket": front.directory / "g.sock", "socket_group": "daemon", "listen": ""}
    )
    place = front.directory / "g.sock"
    (front.directory / "other").mkdir(mode=0o700)
    config = front.config.model_copy(
        update={"access": settings, "workspace_root": front.directory / "other"}
    )
    async with serving(config):
        assert place.stat().st_mode & 0o777 == 0o660
        assert connects(place.stat().st_gid)
        assert not connects(NOBODY)
    assert not place.exists()


async def test_a_second_server_and_a_bad_place_are_refused(front: Front) -> None:
    def changed(**settings: Any) -> Config:
        access = front.with_access.access.model_copy(update=settings)
        return front.config.model_copy(update={"access": access})

    async def fails(config: Config) -> WireError:
        with pytest.raises(WireError) as raised:
            async with serving(config):
                pass
        return raised.value

    assert "runs already" in (await fails(front.with_access)).brief
    own = front.directory / "own"
    own.mkdir(mode=0o700)
    alone = {"workspace_root": own}
    file = front.directory / "a-file"
    file.write_text("precious")
    error = await fails(changed(socket=file, listen="").model_copy(update=alone))
    assert "another file is there" in error.details
    assert file.read_text() == "precious"
    error = await fails(changed(listen="").model_copy(update=alone))
    assert error.details == f"its pid is {os.getpid()}"
    error = await fails(changed(socket=None).model_copy(update=alone))
    assert f"cannot listen on {front.listen}" in error.brief
    error = await fails(
        changed(socket=own / "x.sock", listen="", socket_group="nobody-has-this").model_copy(
            update=alone
        )
    )
    assert "there is no group nobody-has-this" in error.brief
    assert not (own / "x.sock").exists()


async def test_an_access_file_that_others_can_read_is_not_used(front: Front) -> None:
    path = front.directory / "laptop.json"
    path.write_text(front.access().model_dump_json())
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read") as raised:
        AccessFile.read(path)
    assert f"chmod 600 {path}" in raised.value.resolution
    path.chmod(0o600)
    assert AccessFile.read(path).user_id == "alice"
    for spoilt in (
        {"address": ""},
        {"address": "a:99999"},
        {"token": "oxa_a\r\nX: b"},
        {"server_name": "a b"},
    ):
        path.write_text(json.dumps(json.loads(front.access(name="n").model_dump_json()) | spoilt))
        front.tokens.revoke("alice", "n")
        with pytest.raises(ConfigError, match="is not an access file") as raised:
            AccessFile.read(path)
        assert raised.value.details == f"not as expected: {next(iter(spoilt))}"
    nowhere = altered(front.access(name="n"), address="[::::]:1")
    with pytest.raises(WireError, match="names no address"):
        nowhere.open_channel()
    path.unlink()
    with pytest.raises(ConfigError, match="cannot read"):
        AccessFile.read(path)


async def test_a_certificate_of_the_operators_own(front: Front) -> None:
    """Its key must be private, and clients check the name of the address."""
    directory = front.directory / "tls"
    directory.mkdir(mode=0o700)
    authority = Authority.new()
    identity = authority.issue(Party.ACCESS)
    certificate, key = directory / "server.pem", directory / "key.pem"
    certificate.write_text(identity.certificate)
    key.write_text(identity.key)
    key.chmod(0o644)
    settings = front.with_access.access.model_copy(
        update={
            "socket": directory / "a.sock",
            "listen": "",
            "certificate": certificate,
            "key": key,
        }
    )
    config = front.config.model_copy(update={"access": settings, "workspace_root": directory / "w"})
    (directory / "w").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="every account can read the key"):
        async with serving(config):
            pass
    key.chmod(0o600)
    async with serving(config):
        access = altered(
            front.access(), address=f"unix:{directory}/a.sock", certificate=authority.public
        )
        with pytest.raises(WireError) as raised:  # the token is of other users, the server is right
            await access.connect(channel_name="test")
        assert raised.value.code is Code.UNAUTHENTICATED
        with pytest.raises(WireError, match="somebody else answers"):
            await altered(access, server_name="another").connect(channel_name="test")

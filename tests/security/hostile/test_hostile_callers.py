"""Calling gateway, shell and control with too little: a token that is none or another's, an
identity of another role or authority, or none at all."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest
from wire.boundary import mark_of
from wire.endpoint import Endpoint
from wire.identity import Identity, Party, Peer
from wire.limits import TOKEN_METADATA_KEY
from wire.transport import open_channel, unix_endpoint
from wire.v1 import (
    control_pb2,
    control_pb2_grpc,
    gateway_pb2,
    gateway_pb2_grpc,
    shell_pb2,
    shell_pb2_grpc,
)

from runner.host.runtime import Runtime
from tests.support import parties
from tests.support.attempts import attempt, rows
from tests.support.boundary.two_hosts import TwoHosts, UserHost

pytestmark = pytest.mark.asyncio(loop_scope="session")

TOKEN = "every call carries the random token of its launch"
ROLE = "each server lists the roles that it serves"
AUTHORITY = "each runner issues certificates of its own, and hears no others"
REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED", "UNAVAILABLE")
FIRST_CALLS: dict[Party, tuple[Any, str, Any]] = {
    Party.AGENT: (gateway_pb2_grpc.GatewayStub, "Hello", gateway_pb2.HelloRequest()),
    Party.SHELL: (shell_pb2_grpc.ShellStub, "Hello", shell_pb2.ShellHelloRequest()),
    Party.RUNNER: (control_pb2_grpc.RunnerControlStub, "Status", control_pb2.StatusRequest()),
}


@dataclass(frozen=True)
class Servers:
    """One user's servers, each as those see it who may call it."""

    gateway: Peer
    shell: Peer
    control: Peer

    @classmethod
    async def of(cls, user: UserHost) -> "Servers":
        runtime = Runtime.locate(user.host.config, user.host.user_id)
        token = runtime.token.read_text().strip()
        own = Identity.from_pem(runtime.identity.read_text())
        endpoint = unix_endpoint(runtime.socket)
        control = Peer(endpoint, Party.RUNNER, token, own)
        return cls(replace(await user.host.gateway(), identity=own), user.shell_as_agent, control)


@dataclass(frozen=True)
class Caller:
    """Who calls a server of alice's: what they have, as they make it of both users'."""

    name: str
    has: Callable[[Servers, Servers], Peer]
    stopped_by: str


def presenting(peer: Peer, identity: Identity) -> Peer:
    """A server that is believed to be who it is, called with another certificate."""
    return replace(peer, identity=replace(identity, authority=peer.identity.authority))


CALLERS = [
    Caller("calling the gateway without a token", lambda a, _: replace(a.gateway, token=""), TOKEN),
    Caller(
        "calling the gateway with a guessed token",
        lambda a, _: replace(a.gateway, token="x" * 64),
        TOKEN,
    ),
    Caller(
        "calling the gateway with the mark of its token, which the self-test is told",
        lambda a, _: replace(a.gateway, token=mark_of(a.gateway.token)),
        "the mark of a token says nothing about the rest",
    ),
    Caller(
        "calling the gateway with all of its token but the last letter",
        lambda a, _: replace(a.gateway, token=a.gateway.token[:-1]),
        "tokens are compared whole, in a time that says nothing",
    ),
    Caller(
        "calling the gateway with its token in other letters",
        lambda a, _: replace(a.gateway, token=a.gateway.token.swapcase()),
        TOKEN,
    ),
    Caller(
        "calling the gateway with its token and more",
        lambda a, _: replace(a.gateway, token=f"{a.gateway.token}x"),
        TOKEN,
    ),
    Caller(
        "calling the gateway with the token of the shell",
        lambda a, _: replace(a.gateway, token=a.shell.token),
        TOKEN,
    ),
    Caller(
        "calling the gateway with the token of the control socket",
        lambda a, _: replace(a.gateway, token=a.control.token),
        TOKEN,
    ),
    Caller(
        "calling the gateway with another user's token",
        lambda a, b: replace(a.gateway, token=b.gateway.token),
        TOKEN,
    ),
    Caller(
        "calling the gateway with its token and another user's certificate",
        lambda a, b: presenting(a.gateway, b.gateway.identity),
        AUTHORITY,
    ),
    Caller(
        "calling the gateway with its token and a certificate that one has issued oneself",
        lambda a, _: presenting(a.gateway, parties.identity(Party.CLI)),
        AUTHORITY,
    ),
    Caller("calling the shell without a token", lambda a, _: replace(a.shell, token=""), TOKEN),
    Caller(
        "calling the shell with the token of the gateway",
        lambda a, _: replace(a.shell, token=a.gateway.token),
        TOKEN,
    ),
    Caller(
        "calling the shell with a certificate of commands, which are not to go past the agent",
        lambda a, _: presenting(a.shell, a.control.identity),
        ROLE,
    ),
    Caller(
        "calling the shell with a runner's certificate that one has issued oneself",
        lambda a, _: presenting(a.shell, parties.identity(Party.RUNNER)),
        AUTHORITY,
    ),
    Caller(
        "calling the control socket without a token",
        lambda a, _: replace(a.control, token=""),
        TOKEN,
    ),
    Caller(
        "calling the control socket with the token of the gateway",
        lambda a, _: replace(a.control, token=a.gateway.token),
        TOKEN,
    ),
    Caller(
        "calling the control socket with its token and the agent's certificate",
        lambda a, _: presenting(a.control, a.shell.identity),
        ROLE,
    ),
    Caller(
        "calling the control socket with its token and another user's certificate",
        lambda a, b: presenting(a.control, b.control.identity),
        AUTHORITY,
    ),
    Caller(
        "calling the control socket with another user's token",
        lambda a, b: replace(a.control, token=b.control.token),
        TOKEN,
    ),
]


async def status_of(channel: grpc.aio.Channel, party: Party, *metadata: tuple[str, str]) -> str:
    """How the first call to a server ends: a gRPC status, or "OK"."""
    stub, method, request = FIRST_CALLS[party]
    async with channel:
        try:
            await getattr(stub(channel), method)(request, metadata=metadata, timeout=10)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return "OK"


async def test_who_is_entitled_is_answered(place: TwoHosts) -> None:
    """So that the others are refused for what they lack."""
    alice = await Servers.of(place.alice)
    for peer in (alice.gateway, alice.shell, alice.control):
        assert await status_of(open_channel(peer), peer.party) == "OK"


@pytest.mark.parametrize("caller", rows(CALLERS))
async def test_who_lacks_something_is_refused(place: TwoHosts, caller: Caller) -> None:
    peer = caller.has(await Servers.of(place.alice), await Servers.of(place.bob))
    assert await status_of(open_channel(peer), peer.party) in REFUSALS


@dataclass(frozen=True)
class Way:
    """Another way than ours to call the server of a party."""

    name: str
    party: Party
    open: Callable[[Peer], grpc.aio.Channel]
    stopped_by: str = "mutual TLS: who has no certificate of this runner is not heard"
    metadata: Callable[[Peer], tuple[str, str]] = lambda peer: (TOKEN_METADATA_KEY, peer.token)


def plainly(peer: Peer) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(Endpoint.of_target(peer.endpoint).for_grpc)


def without_certificate(peer: Peer) -> grpc.aio.Channel:
    return grpc.aio.secure_channel(
        Endpoint.of_target(peer.endpoint).for_grpc,
        grpc.ssl_channel_credentials(peer.identity.authority.encode()),
        options=[("grpc.ssl_target_name_override", peer.party.value)],
    )


def with_certificate(peer: Peer) -> grpc.aio.Channel:
    """The token is not sent where it belongs."""
    return open_channel(replace(peer, token=""))


WAYS = [
    Way("calling the gateway without TLS", Party.AGENT, plainly),
    Way("calling the shell without TLS", Party.SHELL, plainly),
    Way("calling the control socket without TLS", Party.RUNNER, plainly),
    Way("calling the gateway by TLS without a certificate", Party.AGENT, without_certificate),
    Way("calling the shell by TLS without a certificate", Party.SHELL, without_certificate),
    Way(
        "calling the control socket by TLS without a certificate", Party.RUNNER, without_certificate
    ),
    Way(
        "calling the gateway with its token as a bearer",
        Party.AGENT,
        with_certificate,
        TOKEN,
        lambda peer: ("authorization", f"Bearer {peer.token}"),
    ),
    Way(
        "calling the gateway with its token beside an empty one",
        Party.AGENT,
        with_certificate,
        TOKEN,
        lambda peer: (f"{TOKEN_METADATA_KEY}-2", peer.token),
    ),
]


@pytest.mark.parametrize("way", rows(WAYS))
async def test_who_comes_another_way_is_refused(place: TwoHosts, way: Way) -> None:
    alice = await Servers.of(place.alice)
    peers = {Party.AGENT: alice.gateway, Party.SHELL: alice.shell, Party.RUNNER: alice.control}
    peer = peers[way.party]
    assert await status_of(way.open(peer), way.party, way.metadata(peer)) in REFUSALS


NOT_THERE = "an agent has the memory of its own user only"
OTHERS = [
    attempt("reading another user's note by its id", "GetNote", stopped_by=NOT_THERE),
    attempt("changing another user's note by its id", "EditNote", stopped_by=NOT_THERE),
    attempt("deleting another user's note by its id", "DeleteNote", stopped_by=NOT_THERE),
    attempt("reading another user's session by its id", "GetSession", stopped_by=NOT_THERE),
    attempt("renaming another user's session", "RenameSession", stopped_by=NOT_THERE),
    attempt("archiving another user's session", "ArchiveSession", stopped_by=NOT_THERE),
    attempt("forgetting another user's session", "ForgetSession", stopped_by=NOT_THERE),
    attempt("going on with another user's session", "StartTurn", stopped_by=NOT_THERE),
]


@pytest.mark.parametrize("method", OTHERS)
async def test_nothing_of_another_user_is_there(place: TwoHosts, method: str) -> None:
    """Also for who may do all that is alice's."""
    session = await place.bob.gateway.CreateSession(
        gateway_pb2.CreateSessionRequest(title="bob's plans")
    )
    query = gateway_pb2.SearchNotesRequest(query=place.bob.secrets["memory"], top_k=1)
    (note,) = (await place.bob.gateway.SearchNotes(query)).notes
    named = {
        "GetNote": gateway_pb2.GetNoteRequest(note_id=note.note_id),
        "EditNote": gateway_pb2.EditNoteRequest(note_id=note.note_id, text="mine"),
        "DeleteNote": gateway_pb2.DeleteNoteRequest(note_id=note.note_id),
        "GetSession": gateway_pb2.GetSessionRequest(session_id=session.session_id),
        "RenameSession": gateway_pb2.RenameSessionRequest(
            session_id=session.session_id, title="mine"
        ),
        "ArchiveSession": gateway_pb2.ArchiveSessionRequest(
            session_id=session.session_id, archived=True
        ),
        "ForgetSession": gateway_pb2.ForgetSessionRequest(session_id=session.session_id),
        "StartTurn": gateway_pb2.StartTurnRequest(session_id=session.session_id, text="go on"),
    }
    try:
        answer = getattr(place.alice.gateway, method)(named[method])
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await answer
        assert refused.value.code() in (
            grpc.StatusCode.NOT_FOUND,
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
        )
        (after,) = (await place.bob.gateway.SearchNotes(query)).notes
        assert after == note
        request = gateway_pb2.GetSessionRequest(session_id=session.session_id)
        assert (await place.bob.gateway.GetSession(request)).session == session
    finally:
        forget = gateway_pb2.ForgetSessionRequest(session_id=session.session_id)
        await place.bob.gateway.ForgetSession(forget)


async def test_after_that_both_are_there(place: TwoHosts) -> None:
    await place.assert_unharmed()

"""Identities for tests that play a party themselves: all of one authority."""

from functools import cache

from wire.identity import Identity, Party, Peer
from wire.transport import Server
from wire.v1 import bootstrap_pb2

from runner.host.authority import Authority

AUTHORITY = Authority.new()


@cache
def identity(party: Party, launch_id: str = "") -> Identity:
    """What `party` proves itself with."""
    return AUTHORITY.issue(party, launch_id)


def peer(
    endpoint: str, party: Party, token: str, caller: Party = Party.RUNNER, launch_id: str = ""
) -> Peer:
    """The server `party`, for a test that calls it as `caller`."""
    return Peer(endpoint, party, token, identity(caller), launch_id)


def gateway(endpoint: str, token: str) -> Peer:
    """An agent's gateway, for a test that calls it as a command does."""
    return peer(endpoint, Party.AGENT, token, Party.CLI)


def shell(endpoint: str, token: str, caller: Party = Party.AGENT) -> Peer:
    """A shell daemon, for a test that calls it as the agent does."""
    return peer(endpoint, Party.SHELL, token, caller)


def embedder(endpoint: str, token: str) -> Peer:
    """An embedder, for a test that calls it as the agent does."""
    return peer(endpoint, Party.EMBEDDER, token, Party.AGENT)


def link(endpoint: str, token: str, launch_id: str = "") -> bootstrap_pb2.Link:
    """Another guest, as an agent's envelope names it."""
    return bootstrap_pb2.Link(
        endpoint=endpoint,
        token=token,
        identity=identity(Party.AGENT).message(),
        launch_id=launch_id,
    )


def linked(made: bootstrap_pb2.Link, party: Party) -> Peer:
    """The guest that a link names, as the agent sees it."""
    return Peer(made.endpoint, party, made.token, Identity.of(made.identity), made.launch_id)


def server(endpoint: str, token: str, party: Party, *, sealed: bool = False) -> Server:
    """A server of `party`, which answers every role but its own."""
    return Server(endpoint, token, identity(party), set(Party) - {party}, sealed=sealed)

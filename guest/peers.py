"""The guests beside this one: where they are can change while this one serves."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from wire.endpoint import NOWHERE
from wire.errors import WireError
from wire.identity import Party, Peer
from wire.limits import SECRET_MIN_CHARS
from wire.tls import own_name
from wire.v1 import bootstrap_pb2
from wire.v1 import gateway_pb2 as pb

from guest.config import bad_field, link_of

log = logging.getLogger(__name__)


class PeerClient(Protocol):
    @property
    def peer(self) -> Peer:
        """Where that one is."""

    def move(self, peer: Peer) -> None:
        """Go there with what begins from now on."""


class PeerAddresses:
    """What the runner says of them.

    Args:
        peers: Clients of those with which this guest was started.
        learn: Is told each new token, which nobody must be shown.
    """

    def __init__(self, peers: Mapping[Party, PeerClient], learn: Callable[[str], None]) -> None:
        self._peers = peers
        self._learn = learn

    def set(self, request: pb.SetPeersRequest) -> None:
        """Go where the links say. One that says the same as before changes nothing, and one of a
        guest without which this one was started is ignored.

        Raises `WireError` (INVALID_ARGUMENT) that names a bad field; then nothing has changed.
        """
        moves = []
        named = {field.name: link for field, link in request.ListFields()}
        for party in (Party.SHELL, Party.EGRESS, Party.EMBEDDER):
            if (link := named.get(party.value)) is None:
                continue
            if (room := self._peers.get(party)) is None:
                log.info("this guest was started without %s, and goes on so", party)
                continue
            peer = _peer(party, link, room.peer)
            if _same(peer) != _same(room.peer):
                moves.append((room, peer))
        for room, peer in moves:
            if len(peer.token) >= SECRET_MIN_CHARS:
                self._learn(peer.token)
            room.move(peer)
            log.info("the %s guest is %s now", peer.party, peer.launch_id or peer.endpoint)


def _peer(party: Party, link: bootstrap_pb2.Link, before: Peer) -> Peer:
    peer = link_of(party, link).peer
    if peer is None:
        return replace(before, endpoint=NOWHERE, launch_id="")
    try:
        own_name(peer.identity)
    except WireError as error:
        raise bad_field(f"{party}.identity", error.details, "a usable one") from None
    return peer


def _same(peer: Peer) -> tuple[str, ...]:
    """What identifies a peer; its certificate is issued anew each time."""
    return peer.endpoint, peer.launch_id, peer.token, peer.identity.authority

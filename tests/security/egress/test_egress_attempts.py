"""What commands, and code in the agent's guest, try in order to get out, at the real listener.

Each attempt is made inside both guests. What counts is what arrives at the servers of the internet:
nothing, but for what a row says. What the client is told must say why.
"""

import re
from dataclasses import dataclass, field

import pytest

from tests.security.egress.conftest import BAD_NAMES
from tests.support.attempts import one_of_each_kind, rows
from tests.support.internet.arrivals import Arrivals
from tests.support.internet.guests import CROWD, Guests, Room

pytestmark = pytest.mark.asyncio(loop_scope="session")

POLICY = "the policy: what no rule allows does not leave, and is not resolved either"
SPELLING = "a host has one spelling; any other is refused"
ADDRESS = "every address that a name resolves to is checked, and a checked one is connected to"
HELLO = "the name in the ClientHello must be the one of the CONNECT"
PARSER = "requests are read by one strict parser, and written anew"
PROXY = "a proxy takes whole http:// addresses and CONNECT"
NETWORK = "there is no network: no interface but loopback, no route"
PATHS = "a path has one spelling before it is compared"
_CONNECTED = ("packet WEB:443 tcp",)
_READ = (*_CONNECTED, r"(question|handshake) api\.example\.org .*")
ROOMS: tuple[Room, ...] = ("shell", "agent")
READ_BY_ONE_PARSER = ["shell", pytest.param("agent", marks=pytest.mark.long)]
"""What the listener makes of a request is the same code for both guests."""


@dataclass(frozen=True)
class Try:
    """One attempt by its name in the attacker's program. `told` is what the client must be told at
    least; `arrives` what may arrive, as a pattern, WEB standing for the server's address."""

    attempt: str
    name: str
    told: str
    stopped_by: str
    arrives: tuple[str, ...] = field(default=())


def _refused(status: str, reason: str) -> str:
    return rf"HTTP/1\.[01] {status}.*oxydra-refused: {reason}"


_DENIED = _refused("403", "policy")
_UNREAD = _refused("4..", "request")
_ENDED = r"^HTTP/1.1 200[^\n]*\r\n\r\n(?!HTTP|this is)|^HTTP/1.1 4.."

TRIES = (
    Try("unlisted", "a host that a rule denies", _DENIED, POLICY),
    Try("secret_in_a_name", "a secret in a name that is looked up", _DENIED, POLICY),
    *(
        Try(f"spelled_{how}", f"an address, {how.replace('_', ' ')}", told, by)
        for how, told, by in (
            ("address", _DENIED, POLICY),
            ("decimal", _UNREAD, SPELLING),
            ("octal", _UNREAD, SPELLING),
            ("hexadecimal", _UNREAD, SPELLING),
            ("short", _UNREAD, SPELLING),
            ("mapped", _UNREAD, SPELLING),
            ("dotted", _refused("403", "policy"), SPELLING),
            ("full_width", _UNREAD, SPELLING),
        )
    ),
    *(
        Try(f"place_{where}", f"the address of {what}", _DENIED, POLICY)
        for where, what in (
            ("loopback", "this machine"),
            ("loopback6", "this machine, in IPv6"),
            ("unspecified", "any machine"),
            ("private", "a machine in the private network"),
            ("metadata", "the cloud's metadata service"),
            ("link_local", "a neighbour on the cable"),
            ("multicast", "a group"),
        )
    ),
    *(
        Try(f"named_{where}", f"an allowed name of {what}", _refused("403", "address"), ADDRESS)
        for where, what in (
            ("loopback", "this machine"),
            ("loopback6", "this machine, in IPv6"),
            ("mapped", "this machine, mapped into IPv6"),
            ("private", "a private address"),
            ("metadata", "the cloud's metadata service"),
            ("mixed", "a public and a private address"),
        )
    ),
    Try("other_sni", "TLS for another name than the tunnel's", _ENDED, HELLO, _CONNECTED),
    Try("other_sni_in_pieces", "the same, byte by byte in tiny records", _ENDED, HELLO, _CONNECTED),
    Try("no_sni", "TLS for no name", _ENDED, HELLO, _CONNECTED),
    Try("two_names", "TLS for two names", _ENDED, HELLO, _CONNECTED),
    Try("encrypted_hello", "TLS for an encrypted name", _ENDED, HELLO, _CONNECTED),
    Try("endless_hello", "a ClientHello without an end", _ENDED, HELLO, _CONNECTED),
    Try("plain_in_tunnel", "plain HTTP in a tunnel", _ENDED, HELLO, _CONNECTED),
    Try("ssh_in_tunnel", "SSH in a tunnel", _ENDED, HELLO, _CONNECTED),
    Try("connect_in_tunnel", "a CONNECT in a tunnel", _ENDED, HELLO, _CONNECTED),
    Try("other_port", "another port of an allowed host", _DENIED, POLICY),
    Try("port_in_host", "another port in an absolute address", _DENIED, POLICY),
    Try("proxy_chain", "another proxy", _DENIED, POLICY),
    Try("relay", "a relay in the guest", _DENIED, POLICY),
    Try(
        "redirect",
        "a redirect of an allowed host to another",
        rf"HTTP/1.1 302.*{_DENIED}",
        "redirects are not followed: who asks again is decided again",
        ("packet WEB:80 tcp", "request files.example.org GET .*/redirect.*"),
    ),
    Try("other_host", "a Host that is not the address's", _refused("403", "host"), PARSER),
    Try("two_hosts", "two Hosts", _UNREAD, PARSER),
    Try("length_and_chunks", "a length and chunks", _UNREAD, PARSER),
    Try("two_lengths", "two lengths", _UNREAD, PARSER),
    Try("odd_length", "a length with a sign", _UNREAD, PARSER),
    Try("odd_chunks", "a transfer coding that is none", _UNREAD, PARSER),
    Try("folded", "a header over two lines", _UNREAD, PARSER),
    Try("space_before_colon", "a space before the colon", _UNREAD, PARSER),
    Try("bare_line_feed", "a bare line feed", _UNREAD, PARSER),
    Try("bare_carriage_return", "a bare carriage return", _UNREAD, PARSER),
    Try("nul_in_header", "a NUL in a header", _UNREAD, PARSER),
    Try("chunk_extension", "a line feed in a chunk's extension", _UNREAD, PARSER),
    Try("odd_method", "a method that is none", _UNREAD, PARSER),
    Try("userinfo", "a user name before the host", _UNREAD, PARSER),
    Try("fragment", "a fragment before the host", _UNREAD, PARSER),
    Try("backslash", "a backslash before the host", _UNREAD, PARSER),
    Try("other_schemes", "ftp, file, ws and other schemes", _UNREAD, PROXY),
    Try("secure_absolute", "https in an absolute address", _UNREAD, PROXY),
    Try("relative", "an address without a host", _refused("4..", "(request|upstream)"), PROXY),
    Try("trace", "TRACE", _UNREAD, PROXY),
    Try("websocket", "an upgrade to a WebSocket", _refused("403", "upgrade"), PARSER),
    Try("http2_upgrade", "an upgrade to HTTP/2", _refused("403", "upgrade"), PARSER),
    Try("http2_preface", "HTTP/2 from the start", _UNREAD, PARSER),
    Try("long_head", "a header of 200 kB", _UNREAD, "a head has 32 KiB at most"),
    Try("many_headers", "5,000 headers", _UNREAD, "a head has 32 KiB at most"),
    Try("long_target", "an address of 100 kB", _UNREAD, "a head has 32 KiB at most"),
    Try("slow_client", "a head that never ends", "^ended: ", "a head has 15 seconds"),
    *(
        Try(what, f"at a host whose requests are read: {name}", r"HTTP/1\.[01] 4..", by, arrives)
        for what, name, by, arrives in (
            ("no_path", "paths that no rule allows, in eight spellings", PATHS, _READ),
            ("no_method", "a method that no rule allows", PATHS, _READ),
            ("other_host_within", "another Host", PARSER, _READ),
            ("absolute_within", "an absolute address of another host", PARSER, _READ),
            ("websocket_within", "a WebSocket", PARSER, _READ),
        )
    ),
    Try(
        "past_egress",
        "the listener itself, without its certificate",
        r"^(?!.*HTTP/1.1 200)",
        "mutual TLS, and a token",
    ),
)
PAST_EGRESS = (
    Try("tcp", "TCP past egress", "^(?!it was sent)", NETWORK),
    Try("tcp_metadata", "TCP to the metadata address", "(?i)unreachable|refused|no route", NETWORK),
    Try("tcp_host", "TCP to the host", "^(?!it was sent)", NETWORK),
    Try("dns", "DNS past egress, over UDP and TCP", "^(?!it was sent)", NETWORK),
    Try("quic", "QUIC past egress", "^(?!it was sent)", NETWORK),
    Try("ping", "ICMP past egress", "^(?!it was sent)", NETWORK),
    Try("packet", "a packet past the kernel's own", "^(?!it was sent)", NETWORK),
    Try("resolver", "the system's resolver", "gaierror", NETWORK),
)


_ASKED = "|".join((r"files\.example\.org", r"rebind-\w+\.example\.org", *BAD_NAMES))
_KNOWN = rf"packet NAMES:[0-9]+ (udp|tcp)|question ({_ASKED}) .*"
_LATE = "packet NAMES nobody waits for udp from [0-9]+"
"""A name server's answer came after who had asked had given up; the kernel says so."""
_OF_OTHERS = "packet 169.254.169.254:.*"
"""Other tests of this machine knock there too. Who got through has sent a request."""


def uninvited(seen: Arrivals, place: Guests, arrives: tuple[str, ...]) -> list[str]:
    """What arrived that a row does not name. Names that rules allow may be asked for."""
    pattern = "|".join((_KNOWN, _LATE, _OF_OTHERS, *arrives))
    for name, address in (("NAMES", place.net.name_server), ("WEB", place.net.web)):
        pattern = pattern.replace(name, re.escape(address))
    arrived = [f"{each.kind} {each.to} {each.what}" for each in seen.all]
    return [each for each in arrived if not re.fullmatch(pattern, each)]


@pytest.mark.parametrize("room", READ_BY_ONE_PARSER)
@pytest.mark.parametrize("row", one_of_each_kind(TRIES))
async def test_nothing_leaves_but_by_egress(place: Guests, room: Room, row: Try) -> None:
    """What the listener itself decides, tests/integration/egress tries too, without guests."""
    await nothing_leaves(place, room, row)


@pytest.mark.stopped_in("process", "micro_vm")
@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("row", rows(PAST_EGRESS))
async def test_nothing_leaves_past_egress(place: Guests, room: Room, row: Try) -> None:
    await nothing_leaves(place, room, row)


async def nothing_leaves(place: Guests, room: Room, row: Try) -> None:
    """Make an attempt in a guest; nothing arrives that its row does not name."""
    with place.net.arrivals.during() as seen:
        told = await place.told(room, row.attempt)

    arrived = uninvited(seen, place, row.arrives)
    assert not arrived, f"{arrived}\n{told}"
    assert re.search(row.told, told, re.DOTALL), told


@pytest.mark.parametrize("room", ROOMS)
async def test_what_is_allowed_leaves(place: Guests, room: Room) -> None:
    """Else the attempts would prove nothing."""
    with place.net.arrivals.during() as seen:
        assert "this is files.example.org/hello" in await place.told(room, "plain")
        assert "HTTP/1.1 200" in await place.told(room, "tunnel")

    assert seen.of("request", "files.example.org")
    assert seen.of("handshake", "files.example.org")


async def test_what_is_allowed_at_a_host_whose_requests_are_read_leaves(place: Guests) -> None:
    with place.net.arrivals.during() as seen:
        assert "HTTP/1.1 200" in await place.told("shell", "readable")

    (request,) = seen.of("request")
    assert request.what == "GET https://api.example.org/public/x"


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.attempt(
    f"{CROWD} connections at once", stopped_by="connections are counted, for each guest by itself"
)
async def test_a_crowd_at_the_listener_holds_nobody_up(place: Guests, room: Room) -> None:
    assert int((await place.told(room, "crowd")).split()[0]) > CROWD // 2
    for other in ROOMS:
        assert "this is files.example.org/hello" in await place.told(other, "plain")


@pytest.mark.parametrize("room", READ_BY_ONE_PARSER)
@pytest.mark.attempt("a name that resolves to something else the second time", stopped_by=ADDRESS)
async def test_a_name_that_rebinds_leads_nowhere_else(place: Guests, room: Room) -> None:
    place.net.names.forget()
    with place.net.arrivals.during() as seen:
        told = await place.told(room, "rebinding")

    assert f"this is rebind-{room}.example.org/0" in told
    assert not [each for each in seen.all if place.net.network.private in each.to]

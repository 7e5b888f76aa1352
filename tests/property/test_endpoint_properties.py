"""Whatever an endpoint is, nothing beyond this machine is reached without knowing the launch."""

import re
from contextlib import suppress
from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from wire.endpoint import Endpoint
from wire.errors import WireError
from wire.identity import Party, Peer
from wire.transport import open_channel

from tests.support import parties

_HERE = re.compile(r"unix:/[^\0]*|tcp:(127\.0\.0\.1|\[::1\]):[0-9]+", re.DOTALL)
_HOSTS = st.one_of(
    st.ip_addresses().map(lambda each: f"[{each}]" if each.version == 6 else str(each)),
    st.sampled_from(
        ["127.0.0.1", "[::1]", "localhost", "*", "127.0.0.1.", "127.1", "[::ffff:7f00:1]"]
    ),
    st.from_regex(r"[a-z0-9.*\[\]:%-]{0,20}", fullmatch=True),
)
_ENDPOINTS = st.one_of(
    st.text(),
    st.builds("tcp:{}:{}".format, _HOSTS, st.integers(0, 70_000)),
    st.builds("{}:{}".format, st.sampled_from(["unix", "tcp", "dns", "ipv4", "TCP"]), st.text()),
)


@given(_ENDPOINTS)
def test_without_a_launch_only_what_is_here(text: str) -> None:
    with suppress(WireError):
        endpoint = Endpoint.of_target(text)
        assert _HERE.fullmatch(text)
        assert endpoint.path or ip_address(endpoint.host).is_loopback
    with suppress(WireError):
        Endpoint.of_listener(text)
        assert _HERE.fullmatch(text)


@given(_ENDPOINTS)
def test_with_a_launch_grpc_is_told_the_same_place(text: str) -> None:
    with suppress(WireError):
        endpoint = Endpoint.of_target(text, "a-launch")
        told = endpoint.for_grpc
        assert told == text or told.removeprefix("dns:///") == text.removeprefix("tcp:")
        assert endpoint.path or 0 < endpoint.port < 65536


@given(_ENDPOINTS.filter(lambda text: not _HERE.fullmatch(text)))
async def test_no_channel_is_opened(text: str) -> None:
    peer = Peer(text, Party.AGENT, "token", parties.identity(Party.RUNNER))
    try:
        channel = open_channel(peer)
    except WireError:
        return
    await channel.close()
    raise AssertionError(text)

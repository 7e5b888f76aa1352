"""Endpoints: what is one, and where one may connect and listen."""

import asyncio
import socket
from pathlib import Path

import pytest
from wire import transport
from wire.endpoint import NOWHERE, Endpoint
from wire.errors import Code, WireError
from wire.identity import Party, launch_of, name_of, party_of

from tests.support import parties
from tests.support.guests.on_ports import ELSEWHERE, LAUNCH
from tests.support.ports import free_port


@pytest.mark.parametrize(
    ("text", "grpc"),
    [
        ("unix:/run/a b/s.sock", "unix:/run/a b/s.sock"),
        ("tcp:127.0.0.1:1", "127.0.0.1:1"),
        ("tcp:[::1]:65535", "[::1]:65535"),
        ("tcp:10.0.0.1:7001", "10.0.0.1:7001"),
        ("tcp:[fd00::2]:7001", "[fd00::2]:7001"),
        ("tcp:a-1.b.svc:80", "dns:///a-1.b.svc:80"),
        ("tcp:unix:80", "dns:///unix:80"),
        ("tcp:dns:80", "dns:///dns:80"),
    ],
)
def test_targets_as_grpc_is_told_them(text: str, grpc: str) -> None:
    assert Endpoint.of_target(text, LAUNCH).for_grpc == grpc


@pytest.mark.parametrize(
    "text",
    [
        *("", "unix:", "unix:relative", "unix:/a\0b", "http://x", "10.0.0.1:80", "tcp:10.0.0.1"),
        *("tcp::80", "tcp:*:80", "tcp:0.0.0.0:80", "tcp:[::]:80", "tcp:::1:80", "tcp:[10.0.0.1]:1"),
        *("tcp:10.0.0.1:0", "tcp:10.0.0.1:65536", "tcp:10.0.0.1:080", "tcp:10.0.0.1:١"),
        *("tcp:127.1:80", "tcp:2130706433:80", "tcp:0x7f.1:80", "tcp:010.0.0.1:80"),
        *("tcp:[fe80::1%eth0]:80", "tcp:a..b:80", "tcp:-a:80", "tcp:a_b:80", "tcp:a/b:80"),
        *("tcp:a,b:80", "tcp:a@b:80", "tcp:a b:80", "tcp:a:80\n", f"tcp:{'a' * 64}:80"),
    ],
)
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(WireError, match="bad endpoint") as raised:
        Endpoint.of_target(text, LAUNCH)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.details


@pytest.mark.parametrize("text", ["tcp:*:7001", "tcp:10.0.0.1:7001", f"tcp:{ELSEWHERE}:1"])
async def test_a_server_that_others_reach_proves_its_launch(text: str) -> None:
    with pytest.raises(WireError, match="the certificate names no launch"):
        transport.Server(text, "t", parties.identity(Party.AGENT), {Party.CLI})
    transport.Server(text, "t", parties.identity(Party.AGENT, LAUNCH), {Party.CLI})


def test_an_argument_names_a_path_or_a_port() -> None:
    assert transport.listener("/run/s.sock") == "unix:/run/s.sock"
    assert transport.listener("tcp:*:7001") == "tcp:*:7001"
    for bad in ("relative", "tcp:*", "tcp:*:x", "unix:/run/s.sock", "/" + "x" * 107):
        with pytest.raises(WireError):
            transport.listener(bad)


@pytest.mark.parametrize("party", list(Party))
def test_names_lead_back_to_parties(party: Party) -> None:
    assert name_of(party) == party.value
    assert (party_of(party.value), launch_of(party.value)) == (party, "")
    name = name_of(party, LAUNCH)
    assert (party_of(name), launch_of(name)) == (party, LAUNCH)


@pytest.mark.parametrize("name", ["", ".agent", "agents", "Agent", "*", "*.agent", "agent-1"])
def test_other_names_are_nobodys(name: str) -> None:
    assert party_of(name) is None


@pytest.mark.parametrize("launch_id", ["A", "a.b", "*", "a" * 64, "-a", "a-", "ä", "a\n", " "])
def test_a_launch_that_no_certificate_can_name(launch_id: str) -> None:
    with pytest.raises(WireError, match="bad launch_id"):
        name_of(Party.AGENT, launch_id)


async def met(endpoint: Endpoint, *places: str) -> None:
    """Whoever connects to one of `places` is accepted by who listens at the endpoint."""
    with endpoint.listen(8) as listener:
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        for place in places:
            with await Endpoint.of(place).connect():
                connection, _ = await loop.sock_accept(listener)
                connection.close()


@pytest.mark.parametrize("both", [True, False])
async def test_all_addresses_are_listened_at(monkeypatch: pytest.MonkeyPatch, both: bool) -> None:
    if not both:
        monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port = free_port()
    places = [f"tcp:127.0.0.1:{port}", f"tcp:{ELSEWHERE}:{port}", f"tcp:localhost:{port}"]
    if both and socket.has_dualstack_ipv6():
        places.append(f"tcp:[::1]:{port}")
    await met(Endpoint.of(f"tcp:*:{port}"), *places)


async def test_one_address_or_path_is_listened_at(tmp_path: Path) -> None:
    port = free_port()
    place = f"tcp:127.0.0.1:{port}"
    await met(Endpoint.of(place), place)
    with Endpoint.of(place).listen(1), pytest.raises(ConnectionRefusedError):
        await Endpoint.of(f"tcp:{ELSEWHERE}:{port}").connect()
    path = Endpoint(path=str(tmp_path / "s.sock"))
    for _ in range(2):
        await met(path, f"unix:{tmp_path}/s.sock")
    path.remove()
    path.remove()
    with pytest.raises(FileNotFoundError):
        await path.connect()


async def test_nobody_can_be_nowhere() -> None:
    nowhere = Endpoint.of_target(NOWHERE)
    with pytest.raises(OSError):
        nowhere.listen(1)
    with pytest.raises(OSError):
        await nowhere.connect()

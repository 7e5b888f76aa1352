"""What can be reached, judged against the policy."""

import os
import socket

import pytest

from shell_daemon.probe import network
from shell_daemon.probe.network import Target
from shell_daemon.probe.world import BoundaryHit
from tests.support.boundary.probed_guest import ProbedGuest


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What becomes of connections, by address; all others are unreachable."""
    outcomes: dict[str, str] = {}

    def connect(targets: list[Target]) -> dict[Target, str]:
        return {target: outcomes.get(target.address, "unreachable") for target in targets}

    monkeypatch.setattr(network, "connect", connect)
    monkeypatch.setattr(network, "can_send", lambda _address: False)
    return outcomes


def test_no_network_passes(guest: ProbedGuest, reached: dict[str, str]) -> None:
    assert network.network(guest.look()).startswith("none")


def test_a_refusal_on_its_own_loopback_is_its_own_affair(
    guest: ProbedGuest, reached: dict[str, str]
) -> None:
    reached["127.0.0.1"] = "refused"
    assert network.network(guest.look(listener_port=1234))


@pytest.mark.parametrize("policy", ["none", "outbound"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "192.0.2.7"])
def test_the_hosts_loopback_is_a_hit_wherever_it_shows(
    guest: ProbedGuest, reached: dict[str, str], address: str, policy: str
) -> None:
    reached[address] = "connected"
    world = guest.look(listener_port=1234, network=policy, host_addresses=("192.0.2.7",))
    with pytest.raises(BoundaryHit, match=r"the host's 127\.0\.0\.1 can be reached at"):
        network.network(world)


def test_the_gateway_may_lead_to_the_hosts_loopback(
    guest: ProbedGuest, reached: dict[str, str]
) -> None:
    guest.write("net/route", "Iface Dest Gateway Flags\neth0 00000000 010011AC 0003 0\n")
    reached["172.17.0.1"] = "connected"
    with pytest.raises(BoundaryHit, match=r"reached at 172\.17\.0\.1"):
        network.network(guest.look(listener_port=1234, network="outbound"))


@pytest.mark.parametrize("outcome", ["connected", "refused"])
@pytest.mark.parametrize("address", ["1.1.1.1", "169.254.169.254", "192.0.2.7"])
def test_without_a_network_an_answer_is_a_hit_even_a_refusal(
    guest: ProbedGuest, reached: dict[str, str], address: str, outcome: str
) -> None:
    reached[address] = outcome
    world = guest.look(listener_port=1234, host_addresses=("192.0.2.7",))
    with pytest.raises(BoundaryHit, match=address):
        network.network(world)


def test_with_a_way_out_the_outside_is_no_hit(guest: ProbedGuest, reached: dict[str, str]) -> None:
    guest.write("net/dev", "a\nb\n lo: 0\n eth0: 0\n")
    reached["192.0.2.7"] = "refused"
    world = guest.look(network="outbound", listener_port=1, host_addresses=("192.0.2.7",))
    assert network.network(world)


def test_an_interface_is_a_hit(guest: ProbedGuest, reached: dict[str, str]) -> None:
    guest.write("net/dev", "a\nb\n lo: 0\n eth0: 0\n")
    with pytest.raises(BoundaryHit, match=r"^there are network interfaces: eth0$"):
        network.network(guest.look())


@pytest.mark.parametrize("name", ["net/route", "net/ipv6_route"])
def test_a_route_is_a_hit(guest: ProbedGuest, reached: dict[str, str], name: str) -> None:
    guest.write(name, "Iface\neth0 00000000 010011AC 0001 0 eth0\n")
    with pytest.raises(BoundaryHit, match=r"^there are routes$"):
        network.network(guest.look())


def test_routes_of_the_loopback_are_none(guest: ProbedGuest, reached: dict[str, str]) -> None:
    guest.write("net/ipv6_route", f"{'0' * 32} 80 00 00 00 00 00 00 00200200 lo\n")
    assert network.network(guest.look())


def test_a_name_server_is_a_hit(
    guest: ProbedGuest, reached: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "can_send", lambda address: address == "8.8.8.8")
    with pytest.raises(BoundaryHit, match=r"^name server 8\.8\.8\.8 can be asked$"):
        network.network(guest.look())


def test_the_metadata_address_is_a_hit_also_with_a_way_out(
    guest: ProbedGuest, reached: dict[str, str]
) -> None:
    reached["169.254.169.254"] = "refused"
    assert network.metadata_address(guest.look(network="outbound"))
    reached["169.254.169.254"] = "connected"
    with pytest.raises(BoundaryHit, match=r"169\.254\.169\.254 answers"):
        network.metadata_address(guest.look(network="outbound"))


def test_connections_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        open_port = Target("127.0.0.1", server.getsockname()[1])
        closed_port = Target("127.0.0.1", bound.getsockname()[1])
        outcomes = network.connect([open_port, closed_port])
    assert outcomes == {open_port: "connected", closed_port: "refused"}


def test_an_address_that_never_answers_is_given_up() -> None:
    """A listener whose queue is full takes no further connection and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        target = Target("127.0.0.1", server.getsockname()[1])
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex((target.address, target.port))
        assert network.connect([target], patience=0.2) == {target: "silent"}
        for client in waiting:
            client.close()


def test_an_abstract_socket_of_the_guest_is_no_hit(guest: ProbedGuest) -> None:
    name = f"oxydra-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        guest.write("net/unix", f"Num …\n0: 2 0 0 1 1 9 @{name}\n")
        assert "1 abstract" in network.unix_sockets(guest.look())


def test_a_listener_without_a_process_in_here_is_outside(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "is_served_outside", lambda address: address == "\0runner")
    with pytest.raises(BoundaryHit, match="abstract socket runner is served from outside"):
        network.unix_sockets(guest.look(listener_name="runner"))

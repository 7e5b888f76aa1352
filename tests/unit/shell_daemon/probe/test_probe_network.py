"""What can be reached from a shell guest."""

import os
import socket

import pytest
from wire.network_probe import WAYS, Route, Spec

from shell_daemon.probe import network
from shell_daemon.probe.world import BoundaryHit
from tests.support.boundary.probed_guest import ProbedGuest


def _open(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[Spec]:
    """Leave these ways open; returns what is asked about them."""
    asked: list[Spec] = []

    def try_all(spec: Spec, proc: object) -> list[Route]:
        asked.append(spec)
        return [Route(name, name not in names, f"{name} leads out") for name in WAYS]

    monkeypatch.setattr(network, "try_all", try_all)
    return asked


def test_a_guest_whose_ways_are_shut(guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _open(monkeypatch)
    told = Spec(1234, "runner", ("192.0.2.7",), "/egress/http.sock")
    world = guest.look(
        listener_port=told.listener_port,
        listener_name=told.listener_name,
        host_addresses=told.host_addresses,
        egress_listener=told.egress_listener,
    )
    assert network.network(world) == f"none; {len(WAYS)} ways out are shut"
    assert network.metadata_address(world) == "out of reach"
    assert asked == [told]


def test_a_network_is_a_hit(guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch) -> None:
    _open(monkeypatch)
    with pytest.raises(BoundaryHit, match="given it a network"):
        network.network(guest.look(network="outbound"))


@pytest.mark.parametrize("way", WAYS)
def test_one_open_way_is_a_hit(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    _open(monkeypatch, way)
    with pytest.raises(BoundaryHit, match=f"^{way} leads out$"):
        network.network(guest.look())


def test_the_metadata_address_is_a_hit_of_its_own(
    guest: ProbedGuest, monkeypatch: pytest.MonkeyPatch
) -> None:
    _open(monkeypatch, "metadata")
    with pytest.raises(BoundaryHit, match="metadata"):
        network.metadata_address(guest.look())


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

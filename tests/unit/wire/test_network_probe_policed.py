"""The ways out of a guest that has a network, in which only policies keep it from anything."""

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from wire import network_probe, tls
from wire.identity import Party
from wire.network_probe import POLICED, WAYS, Spec, Target, try_all

from tests.support import parties
from tests.support.boundary.listener import answer_once

API = Target("10.96.0.1", 443, "the API server")
_WORLD = """
import socket, subprocess, sys, threading, time
for address in ("1.1.1.1", "8.8.8.8", "10.96.0.10"):
    subprocess.run(["ip", "address", "add", address, "dev", "lo"], check=True)
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
open("/proc/sys/net/ipv4/ping_group_range", "w").write("0 0")
for rule in sys.argv[2:]:
    subprocess.run(["iptables", *rule.split()], check=True)

def answer(server):
    while True:
        question = server.recvfrom(2048)
        time.sleep(0.5)
        server.sendto(*question)

for place in (("1.1.1.1", 443), ("8.8.8.8", 53), ("10.96.0.10", 53)):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(place)
    threading.Thread(target=answer, args=(server,), daemon=True).start()
listener = socket.create_server(("10.96.0.10", 443))
import json
from wire.network_probe import Spec, try_all
print(json.dumps({way.name: way.found for way in try_all(Spec.from_json(sys.argv[1].encode()))}))
"""
"""A network of its own, in which public addresses answer, though datagrams slowly; rules of a
firewall are arguments."""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A kernel with an interface and a way to a node."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text("a\nb\n lo: 0\n eth0: 0\n")
    route = "Iface Dest Gateway Flags\neth0 00000000 010011AC 0003 0\n"
    (tmp_path / "net/route").write_text(route)
    routes = [_route("fd00::1", "00000003"), _route("fe80::1", "00000003"), _route("::", "1")]
    (tmp_path / "net/ipv6_route").write_text("".join(routes))
    return tmp_path


def _route(gateway: str, flags: str) -> str:
    address = socket.inet_pton(socket.AF_INET6, gateway).hex()
    return f"{'0' * 32} 00 {'0' * 32} 00 {address} 00000400 1 0 {flags} eth0\n"


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], str]:
    """What becomes of connections; all others are silent. Routes lead everywhere."""
    outcomes: dict[tuple[str, int], str] = {}

    def connect(targets: list[Target], patience: float) -> dict[Target, str]:
        assert patience >= 2
        return {target: outcomes.get(target[:2], "silent") for target in targets}

    monkeypatch.setattr(network_probe, "connect", connect)
    monkeypatch.setattr(network_probe, "has_route", lambda *_: True)
    monkeypatch.setattr(network_probe.Datagrams, "send_of", lambda *_: None)
    monkeypatch.setattr(network_probe.Resolution, "found", lambda _: "")
    return outcomes


def _found(proc: Path, listener: str = "") -> dict[str, str]:
    ways = try_all(Spec(policed=True, forbidden=(API,), egress_listener=listener), proc)
    assert tuple(way.name for way in ways) == WAYS
    return {way.name: way.found for way in ways}


def test_routes_and_interfaces_are_no_way_out(
    proc: Path, reached: dict[tuple[str, int], str]
) -> None:
    found = _found(proc)
    assert [name for name in (*POLICED, "interfaces") if found[name]] == []


@pytest.mark.parametrize("outcome", ["connected", "refused"])
@pytest.mark.parametrize(
    ("place", "found"),
    [
        (("10.96.0.1", 443), "10.96.0.1 can be reached at port 443 (the API server)"),
        (("172.17.0.1", 10250), "172.17.0.1 can be reached at port 10250 (the node, its kubelet)"),
        (("172.17.0.1", 22), "172.17.0.1 can be reached at port 22 (the node, its SSH)"),
        (("fd00::1", 22), "fd00::1 can be reached at port 22 (the node, its SSH)"),
        (("fe80::1%eth0", 22), "fe80::1%eth0 can be reached at port 22 (the node, its SSH)"),
    ],
)
def test_who_answers_was_reached(
    proc: Path,
    reached: dict[tuple[str, int], str],
    place: tuple[str, int],
    found: str,
    outcome: str,
) -> None:
    reached[place] = outcome
    assert _found(proc)["peers"] == found


def test_the_runner_listens_at_its_addresses(
    proc: Path, reached: dict[tuple[str, int], str]
) -> None:
    spec = Spec(1234, host_addresses=("10.0.0.9",), policed=True, forbidden=(API,))
    found = {way.name: way.found for way in try_all(spec, proc)}
    assert found["loopback"] == ""
    reached["10.0.0.9", 1234] = "connected"
    found = {way.name: way.found for way in try_all(spec, proc)}
    assert found["loopback"] == "the runner can be reached at 10.0.0.9"


def test_a_public_name_server_is_tried_by_tcp(
    proc: Path, reached: dict[tuple[str, int], str]
) -> None:
    reached["8.8.8.8", 53] = "connected"
    assert _found(proc)["dns"] == "8.8.8.8 can be reached at port 53"


def test_connections_by_descriptors_that_select_does_not_know() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as held:
            for _ in range(1100):
                held.callback(os.close, os.dup(server.fileno()))
            target = Target("127.0.0.1", server.getsockname()[1])
            assert network_probe.connect([target]) == {target: "connected"}
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_a_filter_rejects_was_not_reached(
    proc: Path, reached: dict[tuple[str, int], str]
) -> None:
    reached[API[:2]] = "rejected"
    reached["1.1.1.1", 443] = "rejected"
    assert {name: _found(proc)[name] for name in ("peers", "ipv4")} == {"peers": "", "ipv4": ""}


def test_without_policies_a_rejection_is_an_answer(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest without a network has no filter that could give it."""

    def connect(targets: list[Target], _patience: float) -> dict[Target, str]:
        return dict.fromkeys(targets, "rejected")

    monkeypatch.setattr(network_probe, "connect", connect)
    ways = {way.name: way for way in try_all(Spec(1234, host_addresses=("192.0.2.7",)), proc)}
    assert not ways["ipv4"].shut
    assert "192.0.2.7" in ways["loopback"].found


@pytest.fixture
def listener() -> Iterator[Callable[[ssl.SSLContext], str]]:
    """Start a listener at a port with a TLS context, which answers whatever is sent."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start(context: ssl.SSLContext) -> str:
            answer_once(listener, context)
            return f"tcp:127.0.0.1:{listener.getsockname()[1]}"

        yield start


def test_a_listener_at_a_port_hears_nobody_without_a_certificate(
    proc: Path,
    reached: dict[tuple[str, int], str],
    listener: Callable[[ssl.SSLContext], str],
) -> None:
    context = tls.server_context(parties.identity(Party.EGRESS))
    endpoint = listener(context)
    assert _found(proc, listener=endpoint)["egress_listener"] == ""
    context.verify_mode = ssl.CERT_NONE
    assert "without a certificate" in _found(proc, listener=listener(context))["egress_listener"]


def _inside(*rules: str) -> dict[str, str]:
    """What is found in a network of its own with these rules of its firewall."""
    names = Target("10.96.0.10", 53, "the cluster's DNS")
    listening = Target("10.96.0.10", 443, "the API server")
    spec = Spec(policed=True, forbidden=(names, listening)).to_json().decode()
    command = [*("unshare", "--net", "--"), sys.executable, "-c", _WORLD, spec, *rules]
    ran = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(ran.stdout)
    return {name: found[name] for name in POLICED if found[name]}


@pytest.mark.root
def test_everything_that_answers_is_found() -> None:
    assert _inside() == {
        "ipv4": "1.1.1.1 can be reached at port 443",
        "dns": "name server 8.8.8.8 answers; name server 10.96.0.10 answers; "
        "8.8.8.8 can be reached at port 53",
        "quic": "QUIC servers answer: 1.1.1.1",
        "icmp": "1.1.1.1, 10.96.0.10 answers to ICMP",
        "peers": "10.96.0.10 can be reached at port 53 (the cluster's DNS); "
        "10.96.0.10 can be reached at port 443 (the API server)",
    }


@pytest.mark.root
@pytest.mark.parametrize("verdict", ["DROP", "REJECT"])
def test_nothing_is_found_where_a_filter_stops_all(verdict: str) -> None:
    told = "-A INPUT -p icmp --icmp-type destination-unreachable -j ACCEPT"
    assert _inside(told, f"-A INPUT -j {verdict}") == {}


@pytest.mark.root
def test_datagrams_are_found_where_connections_are_dropped() -> None:
    assert _inside("-A INPUT -p tcp -j DROP").keys() == {"dns", "quic", "icmp"}


@pytest.mark.root
def test_a_filter_that_makes_up_resets_is_not_believed() -> None:
    found = _inside("-A INPUT -p tcp --syn -j REJECT --reject-with tcp-reset")
    assert "10.96.0.10 can be reached at port 443" in found["peers"]

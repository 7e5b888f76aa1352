"""Each way out of a guest is found where it is open, and shut where it is not."""

import errno
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire import network_probe, tls
from wire.identity import Party
from wire.network_probe import WAYS, Route, Spec, Target, try_all

from tests.support import parties
from tests.support.boundary.listener import answer_once

_INSIDE = """
import json, sys
from wire.network_probe import Spec, try_all
print(json.dumps(try_all(Spec.from_json(sys.argv[1].encode()))))
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A kernel without interfaces and routes."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/dev").write_text("a\nb\n lo: 0\n")
    (tmp_path / "net/route").write_text("Iface\n")
    return tmp_path


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What becomes of connections and datagrams, by address; all others are unreachable."""
    outcomes: dict[str, str] = {}

    def connect(targets: list[Target], _patience: float) -> dict[Target, str]:
        return {target: outcomes.get(target.address, "unreachable") for target in targets}

    monkeypatch.setattr(network_probe, "connect", connect)
    monkeypatch.setattr(
        network_probe, "has_route", lambda address, port, *kind: f"{address}:{port}" in outcomes
    )
    return outcomes


def _found(proc: Path, **spec: object) -> dict[str, str]:
    """What every way leads to that does not ask this machine itself."""
    ways = try_all(Spec(**spec), proc)  # type: ignore[arg-type]
    assert tuple(way.name for way in ways) == WAYS
    assert all(way.shut is not bool(way.found) for way in ways)
    return {way.name: way.found for way in ways}


@pytest.mark.parametrize("outcome", ["connected", "refused"])
@pytest.mark.parametrize(
    ("way", "address"),
    [
        ("ipv4", "1.1.1.1"),
        ("ipv6", "2606:4700:4700::1111"),
        ("metadata", "169.254.169.254"),
        ("metadata", "fd00:ec2::254"),
        ("loopback", "192.0.2.7"),
    ],
)
def test_an_answer_is_a_way_out_even_a_refusal(
    proc: Path, reached: dict[str, str], way: str, address: str, outcome: str
) -> None:
    spec = {"listener_port": 1234, "host_addresses": ("192.0.2.7",)}
    assert _found(proc, **spec)[way] == ""
    reached[address] = outcome
    assert address in _found(proc, **spec)[way]


def test_a_refusal_on_its_own_loopback_is_its_own_affair(
    proc: Path, reached: dict[str, str]
) -> None:
    reached["127.0.0.1"] = "refused"
    assert _found(proc, listener_port=1234)["loopback"] == ""
    reached["127.0.0.1"] = "connected"
    assert "reached at 127.0.0.1" in _found(proc, listener_port=1234)["loopback"]


def test_the_gateway_may_lead_to_the_hosts_loopback(proc: Path, reached: dict[str, str]) -> None:
    (proc / "net/route").write_text("Iface Dest Gateway Flags\neth0 00000000 010011AC 0003 0\n")
    reached["172.17.0.1"] = "connected"
    assert "172.17.0.1" in _found(proc, listener_port=1234)["loopback"]


@pytest.mark.parametrize(
    ("way", "sent"),
    [
        ("dns", "8.8.8.8:53"),
        ("dns", "2001:4860:4860::8888:53"),
        ("quic", "1.1.1.1:443"),
        ("quic", "2606:4700:4700::1111:443"),
        ("icmp", "1.1.1.1:0"),
        ("icmp", "2606:4700:4700::1111:0"),
    ],
)
def test_a_route_for_datagrams_is_a_way_out(
    proc: Path, reached: dict[str, str], way: str, sent: str
) -> None:
    assert _found(proc)[way] == ""
    reached[sent] = "sent"
    assert _found(proc)[way] != ""


def test_interfaces_and_routes(proc: Path, reached: dict[str, str]) -> None:
    assert _found(proc)["interfaces"] == ""
    (proc / "net/ipv6_route").write_text(f"{'0' * 32} 80 00 00 00 00 00 00 00200200 lo\n")
    assert _found(proc)["interfaces"] == ""
    (proc / "net/ipv6_route").write_text("fd00 80 00 00 00 00 00 00 00000001 eth0\n")
    assert _found(proc)["interfaces"] == "there are routes"
    (proc / "net/ipv6_route").unlink()
    (proc / "net/route").write_text("Iface\neth0 00000000 00000000 0001 0\n")
    assert _found(proc)["interfaces"] == "there are routes"
    (proc / "net/dev").write_text("a\nb\n lo: 0\n eth0: 0\n")
    assert _found(proc)["interfaces"].startswith("there are network interfaces: eth0")


def test_interfaces_are_of_no_use_without_sockets(
    proc: Path, reached: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (proc / "net/dev").write_text("a\nb\n lo: 0\n eth0: 0\n")
    made = socket.socket

    def refuse(family: int = -1, *rest: int, **named: object) -> socket.socket:
        if family in (socket.AF_INET, socket.AF_INET6):
            raise PermissionError(errno.EPERM, "refused")
        return made(family, *rest)

    monkeypatch.setattr(socket, "socket", refuse)
    assert _found(proc)["interfaces"] == ""


def test_what_cannot_be_tried_is_not_shut(proc: Path, reached: dict[str, str]) -> None:
    (proc / "net/dev").unlink()
    assert _found(proc)["interfaces"].startswith("could not be tried")
    (proc / "net/route").unlink()
    assert all(each.startswith("could not be tried") for each in _found(proc).values())


def test_without_descriptors_nothing_is_shut(
    proc: Path, reached: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(socket, "socket", full)
    found = _found(proc, listener_name="x", egress_listener="/egress/http.sock")
    assert found["interfaces"].startswith("could not be tried")
    assert found["vsock"].startswith("could not be tried")
    assert found["egress_listener"].startswith("could not be tried")


def test_the_resolver(proc: Path, reached: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    assert "example.com" in _found(proc)["resolver"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: threading.Event().wait())
    assert _found(proc)["resolver"] == ""


def test_an_abstract_socket_of_the_host(proc: Path, reached: dict[str, str]) -> None:
    name = f"oxydra-test-{os.getpid()}"
    assert _found(proc, listener_name=name)["abstract"] == ""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        assert _found(proc, listener_name=name)["abstract"] != ""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[ssl.SSLContext], str]]:
    """Start a listener with a TLS context, which answers whatever is sent; returns its path."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "http.sock"))
        listener.listen()

        def start(context: ssl.SSLContext) -> str:
            answer_once(listener, context)
            return str(tmp_path / "http.sock")

        yield start


def test_a_listener_that_asks_for_certificates(
    proc: Path, reached: dict[str, str], serve: Callable[[ssl.SSLContext], str]
) -> None:
    context = tls.server_context(parties.identity(Party.EGRESS))
    assert _found(proc, egress_listener=serve(context))["egress_listener"] == ""


def test_a_listener_that_hears_anybody(
    proc: Path, reached: dict[str, str], serve: Callable[[ssl.SSLContext], str]
) -> None:
    context = tls.server_context(parties.identity(Party.EGRESS))
    context.verify_mode = ssl.CERT_NONE
    assert (
        "without a certificate" in _found(proc, egress_listener=serve(context))["egress_listener"]
    )


def test_no_listener_is_shut(proc: Path, reached: dict[str, str]) -> None:
    assert _found(proc, egress_listener="/no/such/http.sock")["egress_listener"] == ""


@pytest.mark.root
def test_a_network_namespace_of_its_own_shuts_what_this_machine_has_open() -> None:
    """Inside one, only a machine's hypervisor may still answer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        spec = Spec(server.getsockname()[1], host_addresses=("192.0.2.7",)).to_json().decode()
        inside = [*("unshare", "--net", "--"), sys.executable, "-c", _INSIDE, spec]
        ran = subprocess.run(inside, stdout=subprocess.PIPE, check=True)
        here = {way.name: way for way in try_all(Spec.from_json(spec.encode()))}
    ways = [Route(*way) for way in json.loads(ran.stdout)]
    assert [way for way in ways if not way.shut and way.name != "vsock"] == []
    assert not here["interfaces"].shut
    assert not here["loopback"].shut


def test_a_specification_crosses_as_json() -> None:
    spec = Spec(1, "x", ("192.0.2.7",), "/egress/http.sock")
    assert Spec.from_json(spec.to_json()) == spec
    for content in (b"", b"[]", b"{}", b'{"x": 1, "host_addresses": []}'):
        with pytest.raises(ValueError):
            Spec.from_json(content)


def test_connections_are_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        open_port = Target("127.0.0.1", server.getsockname()[1])
        closed_port = Target("127.0.0.1", bound.getsockname()[1])
        outcomes = network_probe.connect([open_port, closed_port])
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
        assert network_probe.connect([target], patience=0.2) == {target: "silent"}
        for client in waiting:
            client.close()

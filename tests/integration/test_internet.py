"""The small internet that tests of the egress guest use is what they take it for."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version

import pytest

from tests.support.internet.internet import Internet, internet
from tests.support.internet.sites import CLOUD_KEY

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("internet")]


@pytest.fixture(scope="module")
def net() -> Iterator[Internet]:
    with internet() as made:
        yield made


def curl(net: Internet, host: str, url: str, *words: str) -> str:
    """What a client of this host is answered that has asked the names for `host`."""
    address = (net.names.addresses(host) or [host])[0]
    known = ("--resolve", f"{host}:443:{address}", "--resolve", f"{host}:80:{address}")
    done = subprocess.run(
        ["curl", "-sS", "--max-time", "10", "--cacert", net.ca_file, *known, *words, url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_servers_have_certificates_of_their_names_and_tell_what_they_got(net: Internet) -> None:
    with net.arrivals.during() as seen:
        said = curl(net, "www.example.net", "https://www.example.net/echo", "-H", "x-mark: here")

    assert ["x-mark", "here"] in json.loads(said)["headers"]
    assert [each.to for each in seen.of("handshake")] == ["www.example.net"]
    (request,) = seen.of("request")
    assert request.what == "GET https://www.example.net/echo"
    assert request.holds("here")


def test_what_arrived_is_of_its_moment_however_late_it_is_noted(net: Internet) -> None:
    busy = threading.Event()

    async def hold_up() -> None:
        busy.set()
        threading.Event().wait(0.5)

    for within in (False, True):
        busy.clear()
        holding = threading.Thread(target=lambda: net.run(hold_up()))
        holding.start()
        busy.wait(10)
        if not within:
            socket.create_connection((net.web, 80), 5).close()
        with net.arrivals.during() as seen:
            if within:
                socket.create_connection((net.web, 80), 5).close()
        holding.join()
        assert bool(seen.of("packet", f"{net.web}:80")) is within


def test_the_metadata_and_private_addresses_are_really_there(net: Internet) -> None:
    assert curl(net, "metadata.example.org", "http://metadata.example.org/") == CLOUD_KEY
    assert "this is" in curl(net, "private.example.org", "https://private.example.org/")


def test_each_packet_is_seen_whatever_it_is(net: Internet) -> None:
    program = (
        "import socket, sys\n"
        "def send(kind, protocol, address, what):\n"
        "    s = socket.socket(socket.AF_INET, kind, protocol)\n"
        "    s.sendto(what, address)\n"
        "to = sys.argv[1]\n"
        "send(socket.SOCK_DGRAM, 0, (to, 443), b'quic')\n"
        "send(socket.SOCK_RAW, socket.IPPROTO_ICMP, (to, 0), b'\\x08\\0\\xf7\\xff\\0\\0\\0\\0')\n"
        "late = bytes(9) + b'\\x11' + bytes(10) + b'\\0\\x35' + bytes(6)\n"
        "send(socket.SOCK_RAW, socket.IPPROTO_ICMP, (to, 0), b'\\x03\\x03' + bytes(6) + late)\n"
        "send(socket.SOCK_RAW, 47, (to, 0), b'tunnel')\n"
    )
    with net.arrivals.during() as seen:
        subprocess.run([sys.executable, "-c", program, net.raw], check=True)
        net.arrivals.wait_for(lambda each: each.what == "protocol 47")

    assert {(each.to, each.what) for each in seen.of("packet")} >= {
        (f"{net.raw}:443", "udp"),
        (net.raw, "icmp"),
        (net.raw, "nobody waits for udp from 53"),
        (net.raw, "protocol 47"),
    }


@pytest.mark.docker
def test_a_container_with_a_way_out_reaches_it(net: Internet) -> None:
    image = f"oxydra-shell:{version('oxydra')}"
    known = ("--resolve", f"files.example.org:80:{net.web}")
    command = ("curl", "-sS", "--max-time", "10", *known, "http://files.example.org/")
    done = subprocess.run(
        ["docker", "run", "--rm", "--entrypoint", command[0], image, *command[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "this is files.example.org/\n", done.stderr

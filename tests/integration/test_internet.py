"""The small internet that tests of the egress guest use is what they take it for."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.internet.internet import PROXY_USER, Internet, internet
from tests.support.internet.sites import CLOUD_KEY, RELEASE_NOTES

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


def test_names_are_answered_over_udp_and_rebind_at_the_second_question(net: Internet) -> None:
    program = (
        "import socket, struct, sys\n"
        "def ask(name):\n"
        "    labels = b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + b'\\0'\n"
        "    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n"
        "    question = b'ab' + struct.pack('>5H', 256, 1, 0, 0, 0) + labels + b'\\0\\1\\0\\1'\n"
        "    s.sendto(question, (sys.argv[1], 53)); said = s.recv(512)\n"
        "    print(said[3] & 15, socket.inet_ntoa(said[-4:]) if said[7] else '')\n"
        "for name in sys.argv[2:]: ask(name)\n"
    )
    names = ("metadata.example.org", "rebind-1.example.org", "rebind-1.example.org", "no.such")
    done = subprocess.run(
        [sys.executable, "-c", program, net.name_server, *names],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == [
        "0 169.254.169.254",
        f"0 {net.web}",
        f"0 {net.network.private}",
        "3 ",
    ]


def test_the_metadata_and_private_addresses_are_really_there(net: Internet) -> None:
    assert curl(net, "metadata.example.org", "http://metadata.example.org/") == CLOUD_KEY
    assert "this is" in curl(net, "private.example.org", "https://private.example.org/")


def test_another_proxy_carries_on_for_those_who_know_its_password(net: Internet) -> None:
    proxied = ("-x", net.proxy, "--proxy-user", PROXY_USER)

    assert curl(net, "www.example.net", "https://www.example.net/", *proxied).startswith("this is")
    refused = curl(
        net, "www.example.net", "http://www.example.net/", "-x", net.proxy, "-w", "%{http_code}"
    )
    assert refused == "407"


def test_git_clones_with_the_token_only(net: Internet, tmp_path: Path) -> None:
    def clone(token: str, to: Path) -> subprocess.CompletedProcess[str]:
        known = f"http.curloptResolve=git.example.org:443:{net.web}"
        url = f"https://somebody:{token}@git.example.org/notes.git"
        return subprocess.run(
            ["git", "-c", known, "-c", f"http.sslCAInfo={net.ca_file}", "clone", url, to],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "GIT_TERMINAL_PROMPT": "0"},
            check=False,
        )

    assert clone("wrong", tmp_path / "no").returncode != 0
    assert clone(net.git.token, tmp_path / "yes").returncode == 0
    assert (tmp_path / "yes" / "README").read_text() == "the notes of a private repository\n"


def test_release_notes_are_those_of_this_repository(net: Internet) -> None:
    host = "raw.githubusercontent.com"
    said = curl(net, host, f"https://{host}/oxydra/oxydra/main/CHANGELOG.md")
    assert said == RELEASE_NOTES


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


def test_two_do_not_meet_and_nothing_is_left(net: Internet) -> None:
    with internet() as other:
        assert other.network.number != net.network.number
        assert "this is" in curl(other, "www.example.org", "https://www.example.org/")
        left = Path("/run/netns") / other.network.name
        assert left.exists()
    assert not left.exists()
    assert "this is" in curl(net, "www.example.org", "https://www.example.org/")

"""Addresses of servers on the runner's loopback: which are accepted, and what belongs to one."""

import pytest
from wire.egress.loopback import LoopbackServer, handed, is_loopback


@pytest.mark.parametrize(
    ("text", "shown", "authority"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1", "127.0.0.1:11434"),
        ("http://LOCALHOST:1234/v1/", "http://localhost:1234/v1", "localhost:1234"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("http://models.localhost/v1", "http://models.localhost:80/v1", "models.localhost:80"),
    ],
)
def test_an_address_of_this_machine(text: str, shown: str, authority: str) -> None:
    server = LoopbackServer.of(text)
    assert str(server) == shown
    assert LoopbackServer.of(shown) == server
    assert server.authorities[0] == authority


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:11434",
        "https://127.0.0.1:11434/v1",
        "http://0.0.0.0:11434/v1",
        "http://192.168.1.5:11434/v1",
        "http://localhost.example.org/v1",
        "http://localhost@example.org/v1",
        "http://user:word@localhost/v1",
        "http://localhost/v1?a=b",
        "http://localhost/v1#a",
        "http://localhost/v1/../x",
        "http://localhost/%76%31",
        "http://localhost//v1",
        "http://localhost:0x50/v1",
        "http://localhost:99999/v1",
        "http://127.1/v1",
        "unix:/run/docker.sock",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        LoopbackServer.of(text)


def test_what_belongs_to_a_server() -> None:
    known = ["http://127.0.0.1:11434/v1", "http://localhost:8080"]
    assert str(handed("http://127.0.0.1:11434/v1", known)) == known[0]
    assert str(handed("http://127.0.0.1:11434/v1/deeper/", known)) == known[0]
    assert str(handed("http://localhost:8080/any/path", known)) == known[1]
    for other in (
        "http://127.0.0.1:11434/v10",
        "http://127.0.0.1:11434",
        "http://127.0.0.1:2375/v1",
        "http://localhost:11434/v1",
        "https://127.0.0.1:11434/v1",
        "https://api.example.org/v1",
        "",
    ):
        assert handed(other, known) is None


def test_which_hosts_are_the_machine_itself() -> None:
    for host in ("localhost", "a.localhost", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0"):
        assert is_loopback(host)
    for host in ("", "example.org", "localhost.example.org", "192.168.1.5"):
        assert not is_loopback(host)

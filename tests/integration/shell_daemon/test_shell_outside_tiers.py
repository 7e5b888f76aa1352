"""How commands get out in each tier: egress is where they see it, and programs find the proxy."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from wire.settings import ContainerSettings
from wire.v1 import shell_pb2

from runner.config.models import Config
from runner.tiers.drivers import driver_for
from tests.support.guests import engine
from tests.support.guests.egress_listener import FakeEgress, fake_egress
from tests.support.guests.shell_backends import (
    Backend,
    Guest,
    in_bubblewrap,
    in_container,
    in_tier,
)

pytestmark = pytest.mark.xdist_group("shell-outside")

PROGRAMS = {
    "curl": "curl -sS https://files.example.org/",
    "git": "git ls-remote https://files.example.org/a.git",
    "pip": "python3 -m pip download -q --no-input --retries 0 requests",
    "python": (
        "python3 -c \"import urllib.request as r; r.urlopen('https://files.example.org/')\""
    ),
    "apt": "/usr/lib/apt/apt-helper download-file https://files.example.org/a /tmp/a",
}
"""By what they are; those that are not in a guest are passed over there."""


def in_gvisor() -> AbstractAsyncContextManager[Guest]:
    container = ContainerSettings(runtime="runsc")
    config = Config(tier="micro_vm", container=container)
    return in_tier(driver_for(config), engine.owner(), config)


@pytest.fixture(
    params=[
        pytest.param(in_bubblewrap, id="bubblewrap", marks=pytest.mark.bubblewrap),
        pytest.param(in_container, id="container", marks=pytest.mark.docker),
        pytest.param(in_gvisor, id="gvisor", marks=pytest.mark.runsc),
    ]
)
def tier(request: pytest.FixtureRequest) -> Backend:
    entered: Backend = request.param
    return entered


def _directory(guest: Guest) -> Path:
    """Where the listener's socket is on the host."""
    return guest.shared.parent / "ipc/shell-out"


async def _set(guest: Guest, listener: FakeEgress, authority: str = "") -> None:
    """Let commands out at the listener, which is elsewhere for them."""
    listener.socket.chmod(0o666)
    request = listener.request(authority_pem=authority)
    request.door = "unix:/egress/http.sock"
    await guest.api.call("SetEgress", request)


asked: list[str] = []
"""The first lines of requests."""


async def _refused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    asked.append(head.split(b"\r\n")[0].decode())
    writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def test_a_command_reaches_the_listener_of_its_tier(tier: Backend) -> None:
    async with tier() as guest, fake_egress(_directory(guest)) as listener:
        before = await guest.run("before", "env | grep -ic proxy; exit 0")
        assert before.stdout == b"0\n"
        await _set(
            guest, listener, "-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n"
        )
        said = await guest.run(
            "a", "curl -sS http://a.example/; tail -n 2 $SSL_CERT_FILE", session_id="s", turn_id="t"
        )
        assert said.stdout.startswith(b"hello"), said.stderr
        assert said.stdout.endswith(b"ours\n-----END CERTIFICATE-----\n")
        assert [greeting.split()[2:] for greeting in listener.greetings] == [["s", "t"]]
        await guest.api.call("SetEgress", shell_pb2.SetEgressRequest())
        gone = await guest.run("b", "curl -sS --max-time 10 http://a.example/")
        assert gone.exit.exit_code != 0


async def test_usual_programs_use_the_proxy(tier: Backend) -> None:
    asked.clear()
    async with tier() as guest, fake_egress(_directory(guest), _refused) as listener:
        await _set(guest, listener)
        for name, command in PROGRAMS.items():
            there = await guest.run(f"has-{name}", f"command -v {command.split()[0]}")
            if there.exit.exit_code != 0:
                continue
            asked.clear()
            ran = await guest.run(name, command, timeout_ms=60_000)
            assert ran.exit.exit_code != 0
            host = "pypi.org" if name == "pip" else "files.example.org"
            assert f"CONNECT {host}:443 HTTP/1.1" in [
                line.replace("HTTP/1.0", "HTTP/1.1") for line in asked
            ], f"{name}: {asked} {ran.stderr!r}"

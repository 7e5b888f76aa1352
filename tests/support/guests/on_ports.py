"""Guests as they run in pods: on ports, with certificates of their launch, for as long as a lease.

Of loopback, whose other addresses are none that anybody may connect to without knowing the launch.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from wire import envelope
from wire.identity import Party, Peer
from wire.transport import check_health, open_channel

from tests.support import parties
from tests.support.ports import free_port
from tests.support.settings import envelope_for

ELSEWHERE = "127.0.0.2"
"""Beyond this machine, as far as endpoints are concerned."""
TOKEN = "launch-token-0123456789"
LAUNCH = "4c1a-of-this-launch"
_MODULES = {
    Party.AGENT: "guest.app",
    Party.SHELL: "shell_daemon.server",
    Party.EGRESS: "egress.server",
    Party.EMBEDDER: "guest.embedding.server",
}


def elsewhere(port: int) -> str:
    """The endpoint of a port there."""
    return f"tcp:{ELSEWHERE}:{port}"


@dataclass
class OnPorts:
    """A running guest. `ports`: where it serves, and the listeners of egress after that."""

    party: Party
    launch_id: str
    process: asyncio.subprocess.Process
    ports: Sequence[int] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return elsewhere(self.ports[0])

    def peer(self, caller: Party = Party.RUNNER, token: str = TOKEN) -> Peer:
        return parties.peer(self.endpoint, self.party, token, caller, self.launch_id)

    async def answers(self, caller: Party = Party.RUNNER) -> bool:
        """Whether it says so, to `caller`."""
        async with open_channel(self.peer(caller)) as channel:
            return await check_health(channel)


@asynccontextmanager
async def on_ports(
    party: Party, directory: Path, *arguments: str, launch_id: str = LAUNCH
) -> AsyncIterator[OnPorts]:
    """A guest with `arguments`, once it serves."""
    ports = [free_port() for _ in range(3)]
    places = [f"tcp:*:{port}" for port in ports]
    identity = parties.identity(party, launch_id)
    given = envelope.service(TOKEN, identity)
    options: list[str] = ["--socket", places[0]]
    match party:
        case Party.AGENT:
            options = []
            told = envelope_for(directory)
            for name in ("internal", "shared", "tmp", "vault", "ipc"):
                (directory / name).mkdir(exist_ok=True)
            told.tier, told.token, told.gateway = "kubernetes", TOKEN, places[0]
            told.identity.CopyFrom(identity.message())
            given = envelope.encode(told)
        case Party.SHELL:
            for name in ("shared", "tmp", "run"):
                (directory / name).mkdir(exist_ok=True)
                options += [f"--root-{name}", str(directory / name)]
        case Party.EGRESS:
            options += ["--agent-listener", places[1], "--shell-listener", places[2]]
        case _:
            options += ["--backend", "hashing"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", _MODULES[party], "--bootstrap-stdin", *options, *arguments),
        stdin=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    guest = OnPorts(party, launch_id, process, ports)
    try:
        async with asyncio.timeout(60):
            while not await guest.answers():
                assert process.returncode is None
                await asyncio.sleep(0.02)
        yield guest
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()

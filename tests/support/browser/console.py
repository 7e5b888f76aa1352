"""The web console of a household: a running server, agents behind it, and links that let in."""

import os
import shutil
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psutil

from tests.support.commands.household import Household
from tests.support.ports import free_port
from tests.support.servers import mcp_server

USERS = ("alice", "bob")
_START_S = 60.0


class Console:
    """Alice's agent has a provider that plays a script, if there is one, and asks before it runs a
    command or calls her MCP server `ledger`; bob's is the offline model.

    Attributes:
        url: Where the server is.
    """

    def __init__(self, household: Household, model_at: str) -> None:
        self.household = household
        self._tokens = 0
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        household.environment["OXYDRA_SERVE__LISTEN"] = f"127.0.0.1:{port}"
        place = household.path / "home" / "config" / "oxydra" / "runner.toml"
        place.parent.mkdir(parents=True)
        place.write_text(_settings(model_at, household.path / "access.sock"))
        place.chmod(0o600)
        for user in USERS:
            (household.workspaces / user).mkdir(parents=True, mode=0o700)
        shared = household.workspaces / "alice" / "shared"
        shared.mkdir(mode=0o700)
        shutil.copy(mcp_server.__file__, shared / "server.py")

    @classmethod
    def fresh(cls, household: Household) -> Self:
        """A console of a host that nobody has set up: no settings, no users, no agent."""
        made = cls.__new__(cls)
        made.household = household
        port = free_port()
        made.url = f"http://127.0.0.1:{port}"
        household.environment["OXYDRA_SERVE__LISTEN"] = f"127.0.0.1:{port}"
        return made

    def link(self, user: str = "alice") -> str:
        """An address that lets the operator in, once, and begins with `user`."""
        return self.household.works("--user", user, "serve", "--open").strip()

    def token(self, user: str, *scopes: str) -> str:
        """A new access token of `user`."""
        given = [word for scope in scopes for word in ("--scope", scope)]
        self._tokens += 1
        name = f"browser-{self._tokens}"
        made = self.household.works("--user", user, "access", "create", name, *given)
        return made.strip()

    def serve(self) -> None:
        """Start the server, and wait until it answers."""
        self._server = self.household.begin("serve")
        deadline = time.monotonic() + _START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5):
                    return
            except OSError:
                assert self._server.poll() is None, self._server.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def stop_serving(self) -> None:
        self._server.send_signal(signal.SIGTERM)
        self._server.communicate(timeout=60)

    def kill_agent(self, user: str) -> None:
        """End `user`'s agent guest at once; its host starts another."""
        place = str(self.household.workspaces / user)
        for pid in self.household.guest_pids("guest.app"):
            if any(place in word for word in _words_of(pid)):
                os.kill(pid, signal.SIGKILL)


@contextmanager
def served(model_at: str = "") -> Iterator[Console]:
    """A console with the agents of alice and bob. `model_at`: the address of alice's provider."""
    household = Household()
    try:
        console = Console(household, model_at)
        household.works("start", "--all", "--detach")
        console.serve()
        yield console
        console.stop_serving()
    finally:
        household.run("stop", "--all")
        household.remove()


def _settings(model_at: str, socket_path: Path) -> str:
    provider = f'provider = "openai"\nmodel = "m"\nbase_url = "{model_at}"' if model_at else ""
    return f"""
[embedder]
backend = "hashing"

[access]
socket = "{socket_path}"

[users.alice.agent]
{provider}

[users.alice.tools]
approval = "ask"

[users.alice.mcp.servers.ledger]
command = "python3"
args = ["/shared/server.py", "taking"]

[users.alice.egress.shell]
ask = true
"""


def _words_of(pid: int) -> list[str]:
    process = psutil.Process(pid)
    return [*process.cmdline(), process.cwd(), *process.environ().values()]

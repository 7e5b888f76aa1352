"""The attempts of a hostile command, made by an MCP server in a guest of its own, and what there is
to win there alone: what other servers and commands have."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from tests.security.hostile.test_hostile_files import ATTEMPTS as FILES
from tests.security.hostile.test_hostile_kernel import DEVICES, MOUNTS, NAMESPACES, RIGHTS
from tests.security.hostile.test_hostile_machine import FILES as PROGRAMS_AND_FILES
from tests.security.hostile.test_hostile_machine import MACHINE, SELF
from tests.security.hostile.test_hostile_neighbours import NETWORK, PROCESSES, PROGRAMS, SOCKETS
from tests.support.attempts import rows
from tests.support.boundary.two_hosts import (
    SERVER_KEY_NAME,
    TRIED,
    Attempt,
    TwoHosts,
    UserHost,
    bash,
    denied,
    judged,
    python,
    two_hosts,
)
from tests.support.guests.shell_backends import Guest, Ran
from tests.support.tiers import every_tier
from tests.support.tools.tool_guests import Tools, server

pytestmark = pytest.mark.asyncio(loop_scope="session")

SERVERS = {
    "hostile": server(isolated=True),
    "other": server(secret_env={"LOADED": SERVER_KEY_NAME}, shared="downloads"),
}
NOT_MOUNTED = "the mount table: a tool guest has directories of its own, and no others"
APART = "each tool guest has namespaces, an identity and a token of its own"


_MAKE = """
import subprocess
made = subprocess.run(["bash", "/cache/attempt"], stdin=subprocess.DEVNULL, capture_output=True)
open("/cache/said", "wb").write(made.stdout + made.stderr)
"""


class InServer(Guest):
    """A hostile MCP server, whose tool the agent calls. What it does writes its output where no
    agent cuts it short or hides what it must not hold."""

    def __init__(self, host: UserHost) -> None:
        super().__init__(host.shell.api, host.workspace / "tools" / "hostile")
        self.tools = Tools(host.host, host.gateway)

    async def run(self, exec_id: str, command: str, **fields: Any) -> Ran:
        attempt = self.shared.with_name("cache") / "attempt"
        attempt.write_text(command)
        attempt.chmod(0o644)
        told = await self.tools.run("hostile", f"python3 -c '{_MAKE}'")
        said = attempt.with_name("said").read_bytes()
        return Ran(said, told.encode())


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=every_tier("hostile-tool-guests")
)
async def inside(request: pytest.FixtureRequest) -> AsyncIterator[TwoHosts]:
    """Attempts are made by the MCP server `hostile` of alice."""
    async with two_hosts(request.param, servers=SERVERS) as place:
        alice, own = place.alice, ("tools/hostile", "ipc", "logs")
        tools = Tools(alice.host, alice.gateway)
        await asyncio.gather(*(tools.run(each, "true") for each in SERVERS))
        for what, directory in (
            ("commands' files", "shared"),
            ("commands' caches", "cache"),
            ("another server's files", "tools/other/tmp"),
        ):
            place.secrets[f"alice's {what}"] = mark = f"beside-mark-{secrets.token_hex(8)}"
            (alice.workspace / directory / "notes.txt").write_text(mark)
        place.alice, place.own = replace(alice, shell=InServer(alice)), own
        await place.remember()
        yield place
        await place.assert_unharmed()


def by_server(one: Attempt) -> Attempt:
    """The same from a tool guest, which has `/cache` to write in, and no `/shared`."""
    command = re.sub(r"(?<![\w@])/shared", "/cache", one.command)
    return replace(one, name=f"by an MCP server: {one.name}", command=command)


@pytest.mark.stopped_in("process")
@pytest.mark.parametrize("one", rows(map(by_server, (*FILES, *SOCKETS))))
async def test_a_server_finds_no_more_than_a_command(inside: TwoHosts, one: Attempt) -> None:
    await judged(inside, one)


OTHERS = (
    *(*MOUNTS, *NAMESPACES, *DEVICES, *RIGHTS),
    *(*PROGRAMS_AND_FILES, *MACHINE, *SELF),
    *(*NETWORK, *PROCESSES, *PROGRAMS),
)


@pytest.mark.parametrize("one", rows(map(by_server, OTHERS)))
async def test_a_server_may_no_more_than_a_command(inside: TwoHosts, one: Attempt) -> None:
    """In each tier it is confined as the shell guest is, whose attempts each run makes there."""
    await judged(inside, one)


PLACES = (
    *("/shared", "/skills", "/vault", "/tools", "/.oxydra"),
    *("@ALICE@/shared", "@ALICE@/cache", "@ALICE@/tools", "@ALICE@/ipc", "@RUNTIME@"),
    *("/cache/../shared", "/cache/../../other", "/tmp/../../other", "/ipc/../other"),
)
BESIDE = [
    Attempt(
        "by an MCP server: directories of other servers, of commands and of the agent",
        bash(f"""
            for place in {" ".join(PLACES)}; do
                for root in '' /proc/[0-9]*/root /proc/[0-9]*/cwd; do
                    cat $root$place/notes.txt $root$place/tmp/notes.txt 2>/dev/null
                    ls $root$place 2>/dev/null && won $root$place
                    echo planted > $root$place/planted 2>/dev/null && won planted $root$place
                done
                ln -sfn $place /cache/way; cat /cache/way/notes.txt /cache/way/tmp/notes.txt 2>&1
            done; rm /cache/way
        """),
        stopped_by=NOT_MOUNTED,
    ),
    Attempt(
        "by an MCP server: sockets of other servers, of commands, agent, egress and runner",
        python("""
            import glob
            names = ["/tools/other/shell.sock", "/shell/shell.sock", "/agent/http.sock",
                "@ALICE@/ipc/tools/other/shell.sock", "@ALICE@/ipc/shell/shell.sock",
                "@ALICE@/ipc/agent/agent.sock", "@ALICE@/ipc/egress/egress.sock",
                "@ALICE@/ipc/agent-out/http.sock", "@ALICE@/ipc/shell-out/http.sock",
                "@ALICE@/tools/other/shell-out/http.sock", "@ALICE@/tools/other/out/egress.sock",
                "@ALICE@/tools/hostile/out/egress.sock", "../other/shell.sock"]
            names += glob.glob("@RUNTIME@/**", recursive=True)
            os.chdir("/ipc")
            for name in names + [f"/proc/{pid}/root{name}" for pid in pids() for name in names]:
                with socket.socket(socket.AF_UNIX) as way:
                    way.settimeout(2)
                    if refused(way.connect, name)[1] is None: won(name)
        """),
        stopped_by=NOT_MOUNTED,
    ),
    Attempt(
        "by an MCP server: the secret that another server has in its environment",
        bash("""
            env; cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n' |
                grep -a LOADED= && won LOADED; true
        """),
        stopped_by=APART,
    ),
]


@pytest.mark.stopped_in("process")
@pytest.mark.parametrize("one", rows(BESIDE))
async def test_a_server_reaches_no_other_one(inside: TwoHosts, one: Attempt) -> None:
    await judged(inside, one)


@pytest.mark.stopped_in("process")
@pytest.mark.attempt(
    "a command that looks for files, sockets and secrets of MCP servers with guests of their own",
    stopped_by="directories of tool guests are no rows of the shell guest's",
)
async def test_a_command_reaches_no_server(inside: TwoHosts) -> None:
    look = bash("""
        for place in /tools @ALICE@/tools @ALICE@/ipc/tools /shared/../tools /ipc/../tools; do
            for root in '' /proc/[0-9]*/root; do
                cat $root$place/other/tmp/notes.txt 2>/dev/null
                ls $root$place 2>/dev/null && won $root$place
            done
        done
        env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' | grep -a LOADED= && won LOADED
    """)
    shell = Guest(inside.alice.shell.api, inside.alice.workspace)
    ran = await shell.run("hostile-command", inside.filled(look))
    assert TRIED.encode() in ran.stdout
    denied(inside, (ran.stdout + ran.stderr).decode(errors="backslashreplace"))

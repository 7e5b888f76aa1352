"""Egress dies in the middle of things, and is told something else in the middle of things."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from tests.security.egress.conftest import TIERS
from tests.support.internet.guests import Guests, guests
from tests.support.internet.internet import Internet

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROLE = "shell-egress"
FETCH = "curl -sS --max-time 60 http://files.example.org"


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=[t for t in TIERS if t.id != "micro_vm"]
)
async def going(request: pytest.FixtureRequest, net: Internet) -> AsyncIterator[Guests]:
    opened = {"allow": ("files.example.org",)}
    async with guests(net, request.param, agent=opened, shell=opened) as ready:
        yield ready


async def ready_again(going: Guests, before: int) -> None:
    async with asyncio.timeout(60):
        while True:
            found = await going.guest(ROLE)
            if found.state == "ready" and found.pid != before:
                return
            await asyncio.sleep(0.1)


async def test_killed_in_mid_stream_it_comes_back_and_nothing_went_round_it(going: Guests) -> None:
    before = await going.pid(ROLE)
    begun = len(going.net.arrivals.all)
    fetching = asyncio.create_task(going.command(f"{FETCH}/forever -o /dev/null; echo exit $?"))
    await asyncio.to_thread(
        going.net.arrivals.wait_for,
        lambda each: each in going.net.arrivals.all[begun:] and "/forever" in each.what,
    )
    os.kill(before, signal.SIGKILL)

    ran = await fetching
    assert b"exit 0" not in ran.stdout, ran.stdout
    meanwhile = await going.command(f"{FETCH}/meanwhile -w '%{{http_code}}'")
    assert meanwhile.stdout.endswith(b"503") or b"this is" in meanwhile.stdout
    await ready_again(going, before)
    async with asyncio.timeout(60):
        while b"this is files" not in (again := await going.command(f"{FETCH}/again")).stdout:
            assert b"egress" in again.stdout, again.stdout + again.stderr
            await asyncio.sleep(0.2)


UNREAD = (
    "python3 -c 'import os, socket, time, urllib.parse as u\n"
    'at = u.urlsplit(os.environ["http_proxy"])\n'
    "held = [socket.create_connection((at.hostname, at.port)) for _ in range(256)]\n"
    'for each in held: each.sendall(b"GET http://files.example.org/bytes?1 HTTP/1.1\\r\\n'
    'Host: files.example.org\\r\\n\\r\\n")\n'
    "time.sleep(90)'"
)


@pytest.mark.attempt(
    "commands fill, stop and kill the egress process, so that the agent reaches no provider",
    stopped_by="egress guests of their own for agent and commands",
)
async def test_whatever_becomes_of_the_commands_way_out_turns_go_on(going: Guests) -> None:
    of_agent, begun = await going.guest("egress"), len(going.net.arrivals.all)
    holding = asyncio.create_task(going.command(UNREAD))

    def all_asked(_: object) -> bool:
        asked = [each for each in going.net.arrivals.all[begun:] if "/bytes?1" in each.what]
        return len(asked) >= 250

    await asyncio.to_thread(going.net.arrivals.wait_for, all_asked, 60)
    assert await going.turn() == "Yes."
    commands = psutil.Process(before := await going.pid(ROLE))
    frozen = [commands, *commands.children(recursive=True)]
    for each in frozen:
        each.suspend()
    assert await going.turn() == "Yes."
    for each in frozen:
        each.kill()
    assert await going.turn() == "Yes."
    holding.cancel()
    await ready_again(going, before)
    now = await going.guest("egress")
    assert (now.pid, now.restarts, now.state) == (of_agent.pid, of_agent.restarts, "ready")


async def test_each_way_out_has_a_memory_of_its_own(going: Guests) -> None:
    groups = []
    for role in ("egress", ROLE):
        lines = Path(f"/proc/{await going.pid(role)}/cgroup").read_text().splitlines()
        groups.append(max(lines, key=lambda line: ":memory:" in line).rpartition(":")[2])
    assert groups[0] != groups[1]
    for group in groups:
        files = (
            Path(f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes"),
            Path(f"/sys/fs/cgroup{group}/memory.max"),
        )
        (limit,) = (path.read_text() for path in files if path.exists())
        assert int(limit) == 256 * 1024 * 1024


async def test_a_hundred_connections_live_through_a_change_of_the_policy(going: Guests) -> None:
    """Those of a host that stays allowed go on; what is allowed only now works at once."""
    streams = "for n in $(seq 100); do curl -sS -N http://files.example.org/stream?2 & done; wait"
    begun = len(going.net.arrivals.all)
    running = asyncio.create_task(going.command(streams))

    def all_there(_: object) -> bool:
        asked = [each for each in going.net.arrivals.all[begun:] if "/stream?2" in each.what]
        return len(asked) == 100

    await asyncio.to_thread(going.net.arrivals.wait_for, all_there, 60)
    going.net.let_pieces_through(100)
    now_allowed = ("files.example.org", "www.example.org")
    egress = going.config.egress
    shell = egress.shell.model_copy(update={"allow": now_allowed})
    changed = egress.model_copy(update={"shell": shell})
    going.config = going.config.model_copy(update={"egress": changed})
    await going.host.reload_egress()
    now = await going.command("curl -sS http://www.example.org/now")
    assert now.stdout == b"this is www.example.org/now\n", now.stderr
    going.net.let_pieces_through(100)

    ran = await running
    assert ran.stdout.count(b"data: 0") == 100
    assert ran.stdout.count(b"data: 1") == 100, ran.stderr[-500:]

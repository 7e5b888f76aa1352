"""Egress dies in the middle of things, and is told something else in the middle of things."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.security.egress.conftest import TIERS
from tests.support.internet.guests import Guests, guests
from tests.support.internet.internet import Internet

pytestmark = pytest.mark.asyncio(loop_scope="session")

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
            found = next(g for g in (await going.host.status()).guests if g.role == "egress")
            if found.state == "ready" and found.pid != before:
                return
            await asyncio.sleep(0.1)


async def test_killed_in_mid_stream_it_comes_back_and_nothing_went_round_it(going: Guests) -> None:
    before = await going.pid("egress")
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

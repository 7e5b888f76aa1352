"""Guests that live as long as their runner calls them."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from wire.identity import Party
from wire.transport import check_health, open_channel
from wire.v1 import shell_pb2, shell_pb2_grpc

from tests.support.guests.on_ports import OnPorts, on_ports

LEASE_S = 4.0
_GUARD_S = 60.0
OTHERS = {Party.AGENT: Party.CLI, Party.SHELL: Party.AGENT, Party.EMBEDDER: Party.AGENT}


async def end_of(guest: OnPorts) -> float:
    """How long it lived from now on."""
    began = time.monotonic()
    async with asyncio.timeout(_GUARD_S):
        assert await guest.process.wait() == 0
    return time.monotonic() - began


async def ask(guest: OnPorts, caller: Party, seconds: float) -> None:
    """Have `caller` check its health for so long."""
    end = time.monotonic() + seconds
    async with open_channel(guest.peer(caller)) as channel:
        while time.monotonic() < end and guest.process.returncode is None:
            await check_health(channel)
            await asyncio.sleep(0.1)


async def test_guests_live_while_the_runner_calls(tmp_path: Path) -> None:
    async def lives(party: Party) -> None:
        (tmp_path / party).mkdir()
        async with on_ports(party, tmp_path / party, "--lease", str(LEASE_S)) as guest:
            await ask(guest, Party.RUNNER, LEASE_S + 2)
            assert guest.process.returncode is None
            assert await end_of(guest) > LEASE_S / 4

    await asyncio.gather(*map(lives, (Party.AGENT, Party.SHELL, Party.EGRESS, Party.EMBEDDER)))


async def test_calls_of_others_do_not_count(tmp_path: Path) -> None:
    async def ends(party: Party) -> None:
        (tmp_path / party).mkdir()
        async with on_ports(party, tmp_path / party, "--lease", str(LEASE_S)) as guest:
            await ask(guest, OTHERS[party], _GUARD_S)
            await end_of(guest)

    await asyncio.gather(*map(ends, OTHERS))


async def test_without_a_lease_nothing_ends_it(tmp_path: Path) -> None:
    """Its standard input has ended."""
    async with on_ports(Party.EMBEDDER, tmp_path) as guest:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(guest.process.wait(), LEASE_S)
        guest.process.terminate()
        await end_of(guest)


async def test_commands_end_with_the_lease_as_at_any_stop(tmp_path: Path) -> None:
    async with (
        on_ports(Party.SHELL, tmp_path, "--lease", str(LEASE_S)) as guest,
        open_channel(guest.peer(Party.AGENT)) as channel,
    ):
        stub: Any = shell_pb2_grpc.ShellStub(channel)
        start = shell_pb2.StartExecRequest(exec_id="c", command="sleep 300 & echo $!; wait")
        events = [event async for event in stub.Run(start)]
        assert events[-1].exit.cancelled
        pid = int(events[0].stdout.data)
        await end_of(guest)
        assert not Path(f"/proc/{pid}").exists()

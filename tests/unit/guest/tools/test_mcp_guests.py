"""Which servers have a guest at a time, and which one makes room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from wire.errors import Code
from wire.limits import TOOL_GUESTS_MAX
from wire.settings import McpServerSettings
from wire.v1.bootstrap_pb2 import Link

from guest.errors import GuestError
from guest.tools.mcp.guests import TURN, ToolGuests, Use
from guest.tools.mcp.offer import ApprovedTools
from guest.tools.mcp.server import McpServer
from guest.tools.shell.program import ProgramLostError
from tests.support import parties


class Witness:
    """The way to a runner that has every guest but "none"."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []

    async def tool_guest(self, server: str) -> Link:
        self.asked.append(server)
        if server == "none":
            raise GuestError(Code.UNAVAILABLE, "no bubblewrap", resolution="install it")
        peer = parties.shell("unix:/nowhere", "a-token-of-a-guest")
        return Link(endpoint=peer.endpoint, token=peer.token, identity=peer.identity.message())

    def leave_tool_guest(self, server: str) -> None:
        self.left.append(server)


class Server(Use):
    """One that leaves its guest when it is to rest."""

    def __init__(self, last: float = 0.0) -> None:
        super().__init__()
        self.last = last
        self.rests = asyncio.Event()

    def end(self) -> None:
        self.leave = None
        self.rests.set()

    async def run(self, guests: ToolGuests, name: str) -> None:
        async with guests.guest(name, self):
            self.leave = self.end
            await self.rests.wait()


async def test_the_one_that_was_idle_longest_makes_room() -> None:
    witness = Witness()
    guests = ToolGuests(cast(Any, witness))
    now = asyncio.get_running_loop().time()
    servers = [Server(now - age) for age in (5, 50, 40, 3, 3, 3, 3, 3)]
    assert len(servers) == TOOL_GUESTS_MAX
    servers[1].calls = 1
    another = Server(now)
    async with asyncio.TaskGroup() as running:
        for number, server in enumerate(servers):
            running.create_task(server.run(guests, f"s{number}"))
        while len(witness.asked) < TOOL_GUESTS_MAX:
            await asyncio.sleep(0)
        with pytest.raises(ProgramLostError, match="it waits for its turn"):
            await another.run(guests, "another")
        while not witness.left:
            await asyncio.sleep(0)
        running.create_task(another.run(guests, "another"))
        while "another" not in witness.asked:
            await asyncio.sleep(0)
        assert witness.left == ["s2"]
        for server in (*servers, another):
            server.end()
    assert len(witness.left) == TOOL_GUESTS_MAX + 1


async def test_where_all_are_busy_none_is_interrupted() -> None:
    witness = Witness()
    guests = ToolGuests(cast(Any, witness))
    servers = [Server() for _ in range(TOOL_GUESTS_MAX)]
    async with asyncio.TaskGroup() as running:
        for number, server in enumerate(servers):
            server.calls = 1
            running.create_task(server.run(guests, f"s{number}"))
        while len(witness.asked) < TOOL_GUESTS_MAX:
            await asyncio.sleep(0)
        with pytest.raises(ProgramLostError, match="8 others have a guest"):
            await Server().run(guests, "another")
        assert witness.left == []
        for server in servers:
            server.end()


async def test_a_server_rests_when_nobody_has_called_it_and_not_before() -> None:
    guests = ToolGuests(cast(Any, Witness()), idle_s=0.01)
    server = Server(asyncio.get_running_loop().time())
    server.calls = 1
    running = asyncio.create_task(server.run(guests, "s"))
    for _ in range(5):
        await asyncio.sleep(0.01)  # as long as it is busy nothing happens
    assert not server.rests.is_set()
    server.calls = 0
    async with asyncio.timeout(60):
        await running


async def test_a_guest_that_does_not_run_is_said_with_the_reason_and_is_forgotten() -> None:
    witness = Witness()
    learnt: list[str] = []
    guests = ToolGuests(cast(Any, witness))
    guests.learn = learnt.append
    with pytest.raises(ProgramLostError, match="its guest does not run: no bubblewrap; install it"):
        async with guests.guest("none", Server()):
            pass
    async with guests.guest("some", Server()):
        assert learnt == ["a-token-of-a-guest"]
    assert witness.left == ["none", "some"]


async def test_one_that_waits_for_its_turn_is_not_tried_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    @asynccontextmanager
    async def connect(_: Any) -> AsyncIterator[Any]:
        raise ProgramLostError(TURN)
        yield

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 20:
            raise asyncio.CancelledError

    server = McpServer("s", McpServerSettings(command="it"), ApprovedTools(tmp_path / "mcp.json"))
    server.connect = connect
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await server.serve()
    assert max(pauses) <= 2

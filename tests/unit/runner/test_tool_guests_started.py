"""Tool guests as the host starts and ends them: once each, no more than there may be, proven."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wire.errors import Code, WireError
from wire.limits import TOOL_GUESTS_MAX
from wire.v1 import bootstrap_pb2, control_pb2

from runner.errors import HostError, TierError
from runner.host import tools
from runner.host.supervisor import NeedsOperator
from runner.host.tools import ToolGuests

GUARD_S = 60


class Part:
    """A guest or its way out, which starts once it may."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.may.set()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.alive = False
        self.starts = self.stops = self.ended = self.reconfigured = 0
        self.taken: object = None
        self.fails: Exception | None = None

    async def start(self) -> None:
        self.starts += 1
        await self.may.wait()
        if self.fails is not None:
            raise self.fails
        self.alive = True

    async def stop(self) -> None:
        self.stops += 1
        await self.may_end.wait()
        self.ended += 1
        self.alive = False

    async def launch(self) -> None:
        pass

    def take(self, launcher: object) -> None:
        self.taken = launcher

    async def reconfigure(self) -> None:
        self.reconfigured += 1
        if self.fails is not None:
            raise self.fails


class Made:
    """What stands for a tool guest."""

    def __init__(self, name: str) -> None:
        self.wanted = True
        self.handles: dict[str, Any] = {}
        self.link = bootstrap_pb2.Link(endpoint=name)
        self.egress, self.supervisor = Part(), Part()


class World:
    """Tool guests for servers of any name but "none"."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Made] = []
        self.next: list[Made] = []
        named = SimpleNamespace(get=lambda name: None if name == "none" else name)
        agent = SimpleNamespace(seen=lambda link: link)
        launchers = SimpleNamespace(tools=named, agent=agent, no_tools="no bubblewrap")
        monkeypatch.setattr(tools, "ToolGuest", self._make)
        nothing = cast(Any, None)
        self.guests = ToolGuests(
            driver=nothing,
            launchers=lambda: cast(Any, launchers),
            boundary=nothing,
            tokens=dict,
            canary="",
            watcher=nothing,
            changed=lambda: None,
        )

    def _make(self, _: ToolGuests, name: str, __: Any) -> Made:
        self.made.append(self.next.pop() if self.next else Made(name))
        return self.made[-1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_one_is_started_once_however_often_it_is_wanted(world: World) -> None:
    slow = Made("a")
    slow.supervisor.may.clear()
    world.next = [slow]
    wanting = [asyncio.create_task(world.guests.bring("a")) for _ in range(5)]
    while not slow.supervisor.starts:
        await asyncio.sleep(0)
    slow.supervisor.may.set()
    links = await asyncio.gather(*wanting)
    assert {link.endpoint for link in links} == {"a"}
    assert (slow.supervisor.starts, slow.egress.starts, len(world.made)) == (1, 1, 1)


async def test_one_whose_supervision_has_ended_is_made_anew_after_its_end(world: World) -> None:
    await world.guests.bring("a")
    world.made[0].supervisor.alive = False
    await world.guests.bring("a")
    assert (world.made[0].egress.stops, len(world.made)) == (1, 2)


async def test_nothing_is_left_of_one_that_does_not_start(world: World) -> None:
    bad = Made("a")
    bad.supervisor.fails = TierError(Code.UNAVAILABLE, "no image")
    world.next = [bad]
    with pytest.raises(TierError, match="no image"):
        await world.guests.bring("a")
    assert (bad.egress.stops, bad.supervisor.stops) == (1, 1)
    assert (await world.guests.bring("a")).endpoint == "a"


async def test_one_that_nobody_waits_for_any_more_ends(world: World) -> None:
    slow = Made("a")
    slow.supervisor.may.clear()
    slow.egress.may_end.clear()
    world.next = [slow]
    wanting = asyncio.create_task(world.guests.bring("a"))
    while not slow.supervisor.starts:
        await asyncio.sleep(0)
    while not wanting.done():  # the agent's connection breaks again and again while its guest ends
        wanting.cancel()
        await asyncio.sleep(0)
    slow.egress.may_end.set()
    async with asyncio.timeout(GUARD_S):
        while not slow.egress.ended:
            await asyncio.sleep(0)
    assert (slow.supervisor.stops, slow.egress.stops) == (1, 1)
    assert world.guests.handles == []


async def test_no_more_run_than_may_until_one_is_left(world: World) -> None:
    for number in range(TOOL_GUESTS_MAX):
        await world.guests.bring(f"server-{number}")
    with pytest.raises(HostError, match="at most 8 tool guests run at once"):
        await world.guests.bring("another")
    world.guests.leave("server-3")
    world.guests.leave("unknown")
    assert (await world.guests.bring("server-3")).endpoint == "server-3"
    assert world.made[3].supervisor.stops == 1
    await asyncio.sleep(0)
    assert (await world.guests.bring("server-3")).endpoint == "server-3"
    assert len(world.made) == TOOL_GUESTS_MAX + 1


async def test_those_that_run_take_up_what_may_leave_now(world: World) -> None:
    for name in ("ab", "cd"):
        await world.guests.bring(name)
    world.guests.leave("cd")
    await world.guests.reconfigure()
    ways = [each.egress for each in world.made]
    assert [(way.taken, way.reconfigured) for way in ways] == [("b", 1), (None, 0)]


async def test_one_that_does_not_take_it_is_ended_and_keeps_no_other_one_from_it(
    world: World,
) -> None:
    for name in ("ab", "cd"):
        await world.guests.bring(name)
    hanging, other = world.made
    hanging.egress.fails = TierError(Code.UNAVAILABLE, "no answer")
    await world.guests.reconfigure()
    assert other.egress.reconfigured == 1
    await world.guests.bring("ab")
    assert [each.supervisor.stops for each in world.made] == [1, 0, 0]


async def test_a_server_without_a_guest_gets_none(world: World) -> None:
    with pytest.raises(HostError) as refused:
        await world.guests.bring("none")
    assert (refused.value.details, world.made) == ("no bubblewrap", [])


async def test_stop_ends_all_and_nothing_starts_any_more(world: World) -> None:
    for name in ("a", "b"):
        await world.guests.bring(name)
    await world.guests.stop()
    assert [made.supervisor.stops for made in world.made] == [1, 1]
    with pytest.raises(HostError, match="at most 8"):
        await world.guests.bring("a")
    await world.guests.stop()


async def test_the_agent_is_let_in_once_the_boundary_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_in: list[str] = []
    asked: list[dict[str, str]] = []
    wrong: list[WireError] = [TierError(Code.FAILED_PRECONDITION, "the boundary does not hold")]

    class Boundary:
        async def of_shell(self, _: Any, __: Any, tokens: Any, canary: str) -> Any:
            asked.append({**tokens, "canary": canary})
            check = control_pb2.BoundaryCheck(name="mounts", passed=not wrong)
            return control_pb2.BoundaryReport(passed=not wrong, checks=[check])

        def require_passed(self, *_: Any) -> None:
            if wrong:
                raise wrong[0]

    async def admit(_: Any, token: str) -> None:
        let_in.append(token)

    class Supervisor:
        def __init__(self, *_: Any, verify: Any, **__: Any) -> None:
            self.verify, self.connection = verify, None
            self.current = SimpleNamespace(spec=None, peer=SimpleNamespace(token="runners"))

    monkeypatch.setattr(tools, "admit", admit)
    monkeypatch.setattr(tools, "Supervisor", Supervisor)
    monkeypatch.setattr(tools, "Egress", lambda *_, **__: None)
    driver, launcher = SimpleNamespace(beside=None), SimpleNamespace(link=None, prepare=None)
    among = SimpleNamespace(driver=driver, boundary=Boundary(), tokens=lambda: {"a": "b"})
    among.canary, among.watcher, among.policy = "bird", lambda **_: None, None
    launcher.agent_token = "agents"
    guest: Any = tools.ToolGuest(cast(Any, among), "a", cast(Any, (launcher, None)))
    with pytest.raises(NeedsOperator, match="does not hold"):
        await guest.supervisor.verify(object())
    assert let_in == []
    wrong.clear()
    await guest.supervisor.verify(object())
    assert let_in == ["agents"]
    told = {"the agent's token for it": "agents", "its own token": "runners"}
    assert asked == [{"a": "b", **told, "canary": "bird"}] * 2

"""Stopped users' agents are started for what is due, and end again; with fake hosts and a clock."""

import asyncio
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from wire.errors import Code, WireError
from wire.settings import EmbedderSettings
from wire.v1.gateway_pb2 import HelloReply

from runner.config.models import Config
from runner.errors import HostError
from runner.host import awake, removal
from runner.host import host as host_module
from runner.host.awake import Due, Waker, forget, keep, rests, until_idle, waker_of
from runner.host.host import Host
from runner.host.runtime import Runtime, host_lock, is_running
from tests.support.guests.fake_tier import FakeDriver

SEVEN = datetime(2026, 11, 30, 7, tzinfo=UTC)
STEP = timedelta(seconds=10)


class Machine:
    """Users with one thing to do each; hosts are locks, and a start takes a while."""

    def __init__(self, root: Path) -> None:
        self.config = Config(
            workspace_root=root / "ws",
            runtime_dir=root / "rt",
            tier="process",
            embedder=EmbedderSettings(backend="none"),
        )
        self.now = SEVEN - timedelta(minutes=6)
        self.due: dict[str, datetime] = {}
        self.awake: dict[str, ExitStack] = {}
        self.started, self.ran = Counter[str](), Counter[str]()
        self.order: list[str] = []
        self.at_once = self.starting = 0
        self.broken = ""
        self.guard = threading.Lock()
        self.stepped = asyncio.Event()
        self.ending: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()

    def add(self, user_id: str, due: datetime) -> None:
        (self.config.workspace_root / user_id).mkdir(parents=True)
        self.due[user_id] = due
        Due(due).save(self.config, user_id)

    def start(self, user_id: str) -> None:
        with self.guard:
            self.started[user_id] += 1
            self.order.append(user_id)
            self.starting += 1
            self.at_once = max(self.at_once, self.starting)
        time.sleep(0.01)
        try:
            if self.broken:
                raise HostError(Code.FAILED_PRECONDITION, self.broken)
            runtime = Runtime.locate(self.config, user_id)
            runtime.create()
            stack = ExitStack()
            stack.enter_context(host_lock(runtime.lock))
            self.awake[user_id] = stack
            asyncio.run_coroutine_threadsafe(self._until_idle(user_id), self.loop)
        finally:
            with self.guard:
                self.starting -= 1

    async def _until_idle(self, user_id: str) -> None:
        async def ask() -> HelloReply:
            if self.now >= self.due[user_id]:
                self.ran[user_id] += 1
                self.due[user_id] += timedelta(days=1)
            hello = HelloReply(next_due=self.due[user_id].isoformat(), knows_due=True)
            keep(self.config, user_id, hello)
            return hello

        await until_idle(ask, lambda: self.stepped.wait(), lambda: self.now)
        self.awake.pop(user_id).close()

    async def lives(self, waker: Waker, until: datetime) -> None:
        while self.now < until:
            await waker.look()
            while waker.starts:
                await asyncio.sleep(0.001)
            self.now += STEP
            self.stepped.set()
            self.stepped = asyncio.Event()
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxa-") as root:
        yield Path(root)


@pytest.fixture
async def machine(root: Path) -> Machine:
    return Machine(root)


def waker(machine: Machine, **more: int) -> Waker:
    return Waker("serve", lambda: machine.config, machine.start, clock=lambda: machine.now, **more)


async def test_fifty_stopped_users_are_started_once_each_a_few_at_once_and_end_again(
    machine: Machine,
) -> None:
    for number in range(50):
        machine.add(f"user{number:02}", SEVEN + timedelta(seconds=number % 5))
    machine.add("late", SEVEN + timedelta(minutes=20))
    await machine.lives(waker(machine, at_once=4), SEVEN - timedelta(minutes=5))
    assert not machine.started
    machine_waker = waker(machine, at_once=4)
    await machine.lives(machine_waker, SEVEN)
    assert len(machine.started) == 50  # in time, though each takes a while
    machine_waker = waker(machine, at_once=4)  # another server goes on
    await machine.lives(machine_waker, SEVEN + timedelta(minutes=10))
    assert len(machine.started) == 50
    assert set(machine.started.values()) == {1}
    assert set(machine.ran.values()) == {1}
    assert len(machine.ran) == 50
    assert 1 < machine.at_once <= 4
    dues = [int(user.removeprefix("user")) % 5 for user in machine.order]
    assert dues == sorted(dues)  # soonest first
    assert not machine.awake
    await machine.lives(machine_waker, SEVEN + timedelta(minutes=30))
    assert machine.started["late"] == machine.ran["late"] == 1
    assert not machine.awake
    assert Due.load(machine.config, "user00") == Due(SEVEN + timedelta(days=1))


async def test_an_agent_that_is_always_needed_now_is_not_started_without_end(
    machine: Machine,
) -> None:
    machine.add("alice", machine.now)
    started: list[str] = []
    waker = Waker("serve", lambda: machine.config, started.append, clock=lambda: machine.now)
    for _ in range(6 * 20):
        await waker.look()
        while waker.starts:
            await asyncio.sleep(0.001)
        keep(machine.config, "alice", HelloReply(next_due="", knows_due=True))
        due = machine.now.isoformat()
        keep(machine.config, "alice", HelloReply(next_due=due, knows_due=True))
        machine.now += STEP
    assert len(started) == 4  # in twenty minutes


@pytest.mark.parametrize("said", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
async def test_no_time_that_an_agent_says_keeps_others_from_being_started(
    machine: Machine, said: str
) -> None:
    machine.add("alice", SEVEN)
    machine.add("bob", SEVEN)
    keep(machine.config, "bob", HelloReply(next_due=said, knows_due=True))
    await machine.lives(waker(machine), SEVEN)
    assert machine.started["alice"] == 1


async def test_what_cannot_start_is_told_and_tried_again_with_growing_pauses(
    machine: Machine,
) -> None:
    machine.add("alice", SEVEN)
    machine.broken = "the engine is away"
    starts = waker(machine)
    await machine.lives(starts, SEVEN + timedelta(hours=7))
    assert 8 <= machine.started["alice"] <= 13
    due = Due.load(machine.config, "alice")
    assert due is not None
    assert (due.at, due.problem) == (SEVEN, "the engine is away")
    assert due.again_at - machine.now <= timedelta(hours=1)
    machine.broken = ""
    await machine.lives(starts, SEVEN + timedelta(hours=9))
    assert machine.ran["alice"] == 1
    assert Due.load(machine.config, "alice") == Due(SEVEN + timedelta(days=1))


async def test_an_agent_that_dies_before_it_did_anything_is_not_started_in_a_loop(
    machine: Machine,
) -> None:
    machine.add("alice", SEVEN)
    machine.start = lambda user_id: machine.started.update([user_id])  # type: ignore[method-assign]
    await machine.lives(waker(machine), SEVEN + timedelta(hours=2))
    assert 5 <= machine.started["alice"] <= 8


async def test_who_was_removed_or_runs_or_is_kept_stopped_is_not_started(machine: Machine) -> None:
    for user_id in ("alice", "bob", "carol"):
        machine.add(user_id, SEVEN)
    shutil.rmtree(machine.config.workspace_root / "alice")
    assert Due.load(machine.config, "alice") is not None
    forget(machine.config, "bob")
    runtime = Runtime.locate(machine.config, "carol")
    runtime.create()
    with host_lock(runtime.lock):
        await machine.lives(waker(machine), SEVEN + timedelta(minutes=5))
    assert not machine.started


async def test_removing_a_user_removes_what_is_due(machine: Machine) -> None:
    machine.add("alice", SEVEN)
    await removal.remove(machine.config, "alice")
    assert Due.load(machine.config, "alice") is None


async def test_one_process_wakes_at_a_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awake, "LOOK_S", 0.005)
    machine.now = SEVEN
    everybody = Waker("all", lambda: machine.config, machine.start, clock=lambda: machine.now)
    assert waker_of(machine.config) == ""
    first, second = (asyncio.create_task(each.run()) for each in (everybody, waker(machine)))
    while waker_of(machine.config) != "runner start --all":
        await asyncio.sleep(0.005)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    assert waker_of(machine.config) == "runner serve"
    machine.add("alice", SEVEN)
    async with asyncio.timeout(60):
        while not machine.started:
            await asyncio.sleep(0.005)
    second.cancel()
    await asyncio.wait([second])
    assert waker_of(machine.config) == ""


async def test_what_an_agent_says_is_kept_if_it_knows_and_can_be_read(machine: Machine) -> None:
    config = machine.config

    def kept(**said: object) -> Due | None:
        keep(config, "alice", HelloReply(**said))  # type: ignore[arg-type]
        return Due.load(config, "alice")

    assert kept(next_due="2026-11-30T07:00:00.000000Z", knows_due=True) == Due(SEVEN)
    tried = Due(SEVEN).tried(SEVEN)
    tried.save(config, "alice")
    assert kept(next_due="2026-11-30T08:00:00+01:00", knows_due=True) == tried
    assert kept(knows_due=False) == tried
    for wrong in ("soon", "2026-11-30T07:00:00", "x" * 100_000):
        assert kept(next_due=wrong, knows_due=True) == tried
    assert kept(knows_due=True) is None
    for content in ("", "[]", "{}", '{"at": "2026-11-30T07:00:00"}'):
        Due.place(config, "alice").write_text(content)
        assert Due.load(config, "alice") is None


@pytest.mark.parametrize(
    ("rested", "said"),
    [
        (True, {}),
        (True, {"next_due": "2026-11-30T08:00:00Z"}),
        (True, {"next_due": "soon"}),
        (False, {"next_due": "2026-11-30T07:04:00Z"}),
        (False, {"next_due": "2026-11-30T06:00:00Z"}),
        (False, {"in_use": True}),
        (False, {"knows_due": False}),
    ],
)
def test_an_agent_rests_if_nothing_runs_and_nothing_is_due_soon(
    rested: bool, said: dict[str, object]
) -> None:
    hello = HelloReply(**{"knows_due": True, **said})  # type: ignore[arg-type]
    assert rests(hello, SEVEN) is rested


async def test_a_woken_host_starts_only_for_what_is_due_and_ends_when_nobody_talks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awake, "LOOK_S", 0.01)
    hello = HelloReply(next_due="2027-01-01T07:00:00Z", knows_due=True)

    async def said(_: object) -> HelloReply:
        return hello

    monkeypatch.setattr(host_module, "hello_of", said)

    def host(*, woken: bool) -> Host:
        config, driver = machine.config, FakeDriver()
        return Host(config, "alice", driver=driver, environ={}, woken=woken)

    with pytest.raises(WireError, match="nothing is due, or the user was removed"):
        await host(woken=True).start()
    async with host(woken=False):
        await asyncio.sleep(0.2)
        assert is_running(machine.config, "alice")
    due = Due.load(machine.config, "alice")
    assert due == Due(datetime(2027, 1, 1, 7, tzinfo=UTC))
    runtime = Runtime.locate(machine.config, "alice")
    talking = os.open(runtime.talking, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(talking, fcntl.LOCK_SH)  # as a chat does
    async with host(woken=True) as woken, asyncio.timeout(60):
        await asyncio.sleep(0.2)
        assert is_running(machine.config, "alice")
        os.close(talking)
        await woken.wait_stopped()
    hello.in_use = True
    async with host(woken=True):
        awake.stay(machine.config, "alice")
        hello.in_use = False
        await asyncio.sleep(0.2)
        assert is_running(machine.config, "alice")
    assert not is_running(machine.config, "alice")

"""Supervision with guests in memory: restart, back-off, hang, stop at any moment."""

import asyncio
import io
import logging
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire import logs
from wire.errors import Code, WireError
from wire.v1 import bootstrap_pb2

from runner.config.models import Config
from runner.errors import HostError, TierError
from runner.host.launch import AgentLauncher
from runner.host.supervisor import Launch, Policy, Supervisor
from runner.tiers.base import Handle, LaunchSpec
from runner.workspace.mounts import Role
from runner.workspace.workspace import Workspace
from tests.support import parties
from tests.support.guests.fake_tier import Behaviour, FakeDriver, FakeGuest

GUARD_S = 60.0
QUICK = Policy(
    start_timeout=5.0,
    ready_poll=0.005,
    check_interval=0.02,
    check_timeout=1.0,
    backoff_first=0.01,
    backoff_max=0.05,
    stop_grace=0.1,
)


def failure() -> str:
    """What a guest logs that cannot start."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter("agent", "alice"))
    logger = logging.getLogger("test.guest")
    logger.addHandler(handler)
    error = WireError(Code.DATA_LOSS, "corrupt", details="why", resolution="mend it")
    logs.log_startup_failure(logger, error)
    logger.removeHandler(handler)
    return stream.getvalue()


class Scene:
    """A supervisor over a fake tier whose guests follow a script, the last line for ever."""

    def __init__(self, root: Path, *script: Behaviour, policy: Policy = QUICK) -> None:
        self.workspace = Workspace(root, "alice")
        self.workspace.provision()
        self.launcher = AgentLauncher(
            Config(), self.workspace, FakeDriver().capabilities, parties.AUTHORITY, environ={}
        )
        self.script = list(script or (Behaviour(),))
        self.driver = FakeDriver(self._behave)
        self.handles: list[Handle | None] = []
        self.supervisor = Supervisor(
            self.driver, "agent", self.prepare, on_handle=self.handles.append, policy=policy
        )

    def _behave(self, spec: LaunchSpec) -> Behaviour:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def prepare(self) -> Launch:
        return self.launcher.prepare(bootstrap_pb2.Link(), bootstrap_pb2.Link())

    @property
    def guest(self) -> FakeGuest:
        return self.driver.launched[-1]

    @property
    def running(self) -> list[FakeGuest]:
        return [guest for guest in self.driver.launched if guest.running]

    async def state(self) -> str:
        return (await self.supervisor.status()).state

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(GUARD_S):
            while not condition():
                await asyncio.sleep(0.005)

    async def until_state(self, *states: str) -> Any:
        async with asyncio.timeout(GUARD_S):
            while (found := await self.supervisor.status()).state not in states:
                await asyncio.sleep(0.005)
        return found


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="oxs-") as path:
        yield Path(path)


@pytest.fixture
async def stage(root: Path) -> AsyncIterator[Callable[..., Scene]]:
    scenes: list[Scene] = []

    def make(*script: Behaviour, policy: Policy = QUICK) -> Scene:
        scenes.append(Scene(root, *script, policy=policy))
        return scenes[-1]

    yield make
    for scene in scenes:
        await scene.supervisor.stop()
        assert scene.running == []
        assert not scene.workspace.socket(Role.AGENT).exists()


Stage = Callable[..., Scene]


async def test_a_guest_is_ready_when_it_answers(stage: Stage) -> None:
    scene = stage()
    assert await scene.state() == "stopped"
    await scene.supervisor.start()
    status = await scene.supervisor.status()
    assert (status.role, status.state, status.pid) == ("agent", "ready", scene.guest.pid)
    assert (status.restarts, status.reason) == (0, "")
    assert status.since
    launch = await scene.supervisor.launch()
    assert (launch.peer.endpoint, launch.spec) == (
        f"unix:{scene.workspace.socket(Role.AGENT)}",
        scene.guest.spec,
    )


async def test_a_guest_that_dies_is_started_again_with_another_token(stage: Stage) -> None:
    scene = stage()
    await scene.supervisor.start()
    first = await scene.supervisor.launch()
    await scene.guest.end(-9)
    await scene.until(lambda: len(scene.driver.launched) == 2)
    status = await scene.until_state("ready")
    assert status.restarts == 1
    assert status.pid == scene.guest.pid
    second = await scene.supervisor.launch()
    assert first.peer.token != second.peer.token
    assert [None if handle is None else handle.launch_id for handle in scene.handles] == [
        first.spec.launch_id,
        None,
        second.spec.launch_id,
    ]


async def test_a_guest_that_hangs_is_killed_and_started_again(stage: Stage) -> None:
    scene = stage()
    await scene.supervisor.start()
    hanging = scene.guest
    await hanging.set_healthy(False)
    await scene.until(lambda: len(scene.driver.launched) == 2)
    assert not hanging.running
    assert (await scene.until_state("ready")).restarts == 1


async def test_a_guest_that_still_loads_is_not_taken_for_one_that_hangs(stage: Stage) -> None:
    scene = stage(policy=replace(QUICK, failed_checks=1, load_time=1000.0))
    await scene.supervisor.start()
    await scene.guest.set_healthy(False)
    await scene.until_state("unhealthy")
    await asyncio.sleep(5 * QUICK.check_interval)
    assert len(scene.driver.launched) == 1


async def test_a_hiccup_is_no_hang(stage: Stage) -> None:
    scene = stage(policy=replace(QUICK, failed_checks=1000))
    await scene.supervisor.start()
    await scene.guest.set_healthy(False)
    status = await scene.until_state("unhealthy")
    assert "health check" in status.reason
    await scene.guest.set_healthy(True)
    status = await scene.until_state("ready")
    assert (status.restarts, status.reason) == (0, "")
    assert len(scene.driver.launched) == 1


async def test_status_asks_and_does_not_remember(stage: Stage) -> None:
    scene = stage(policy=replace(QUICK, check_interval=1000))
    await scene.supervisor.start()
    await scene.guest.set_healthy(False)
    status = await scene.supervisor.status()
    assert status.state == "unhealthy"
    assert status.reason
    await scene.guest.set_healthy(True)
    assert await scene.state() == "ready"


async def test_status_knows_at_once_of_a_guest_that_is_gone(stage: Stage) -> None:
    scene = stage(policy=replace(QUICK, backoff_first=1000, backoff_max=1000))
    await scene.supervisor.start()
    await scene.guest.end(3)
    assert (await scene.supervisor.status()).state in ("unhealthy", "backing_off")
    status = await scene.until_state("backing_off")
    assert "exited with status 3" in status.reason
    assert "next start in 1000 s" in status.reason
    with pytest.raises(HostError, match="backing_off") as raised:
        await scene.supervisor.launch()
    assert raised.value.code is Code.UNAVAILABLE


async def test_the_first_start_fails_with_the_guests_own_words(stage: Stage) -> None:
    scene = stage(Behaviour(exit_code=logs.EXIT_OPERATOR, log=failure()))
    with pytest.raises(WireError) as raised:
        await scene.supervisor.start()
    error = raised.value
    assert (error.code, error.brief, error.details, error.resolution) == (
        Code.DATA_LOSS,
        "corrupt",
        "why",
        "mend it",
    )
    assert len(scene.driver.launched) == 1
    assert await scene.state() == "failed"


@pytest.mark.parametrize(
    ("earlier", "code", "log"),
    [
        (failure(), logs.EXIT_OPERATOR, "Boom: it broke\n"),
        ("", 1, failure() + "Boom: it broke\n"),
        ("", 1, '{"level": "error", "message": "Boom: it broke"}\n'),
    ],
    ids=["said by an earlier start", "said, but it crashed later", "logged"],
)
async def test_words_that_do_not_explain_the_end_are_not_taken_for_it(
    stage: Stage, earlier: str, code: int, log: str
) -> None:
    scene = stage(Behaviour(exit_code=code, log=log))
    scene.workspace.log(Role.AGENT).write_text(earlier)
    with pytest.raises(TierError, match=f"exited with status {code} before it was") as raised:
        await scene.supervisor.start()
    assert raised.value.details == "Boom: it broke"
    assert len(scene.driver.launched) == 1


async def test_a_guest_that_never_gets_ready_is_ended(stage: Stage) -> None:
    scene = stage(Behaviour(healthy=False), policy=replace(QUICK, start_timeout=0.1))
    with pytest.raises(TierError, match="not ready within") as raised:
        await scene.supervisor.start()
    assert raised.value.code is Code.TIMEOUT
    assert scene.running == []


async def test_later_failures_back_off_longer_and_longer(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    dies = Behaviour(exit_code=1)
    scene = stage(Behaviour(), dies, dies, dies, dies, Behaviour())
    await scene.supervisor.start()
    await scene.guest.end(1)
    await scene.until(lambda: len(scene.driver.launched) == 6)
    assert (await scene.until_state("ready")).restarts == 5
    told = [record.getMessage().partition("next start in ")[2] for record in caplog.records]
    assert [each for each in told if each] == ["0.01 s", "0.02 s", "0.04 s", "0.05 s", "0.05 s"]


async def test_running_for_long_clears_earlier_failures(stage: Stage) -> None:
    policy = replace(QUICK, stable_after=0.0, backoff_max=1000, failed_checks=10_000)
    scene = stage(policy=policy)
    await scene.supervisor.start()
    for count in range(2, 14):
        await scene.guest.set_healthy(False)
        while "in a row" not in (await scene.supervisor.status()).reason:  # a health check
            await asyncio.sleep(0.005)
        await scene.guest.end(1)
        await scene.until(lambda: len(scene.driver.launched) == count)  # noqa: B023
        await scene.until_state("ready")


async def test_what_a_person_has_to_mend_later_is_not_tried_in_a_loop(stage: Stage) -> None:
    scene = stage(Behaviour(), Behaviour(exit_code=logs.EXIT_OPERATOR, log=failure()), Behaviour())
    await scene.supervisor.start()
    await scene.guest.end(-9)
    status = await scene.until_state("failed")
    assert status.reason == "corrupt (why); fix: mend it"
    await asyncio.sleep(0.2)
    assert len(scene.driver.launched) == 2
    await scene.supervisor.restart()
    assert await scene.state() == "ready"


async def test_restart_replaces_the_guest(stage: Stage) -> None:
    scene = stage()
    await scene.supervisor.start()
    first = scene.guest
    await scene.supervisor.restart()
    assert not first.running
    assert first.exit_code == 0
    status = await scene.supervisor.status()
    assert (status.state, status.restarts, status.pid) == ("ready", 1, scene.guest.pid)


async def test_a_restart_that_fails_says_why_and_keeps_trying(stage: Stage) -> None:
    scene = stage(Behaviour(), Behaviour(exit_code=1, log="for now\n"), Behaviour())
    await scene.supervisor.start()
    with pytest.raises(TierError, match="exited with status 1"):
        await scene.supervisor.restart()
    await scene.until_state("ready")


async def test_stop_is_idempotent_and_interrupts_everything(stage: Stage) -> None:
    scene = stage()
    await scene.supervisor.stop()
    await scene.supervisor.start()
    await scene.supervisor.stop()
    await scene.supervisor.stop()
    assert await scene.state() == "stopped"
    assert scene.handles[-1] is None
    with pytest.raises(HostError):
        await scene.supervisor.launch()


async def test_a_guest_that_is_being_ended_has_no_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage()
    await scene.supervisor.start()
    channel = scene.supervisor.connection
    assert channel is not None
    close = channel.close

    async def closing() -> None:
        assert scene.supervisor.connection is None
        with pytest.raises(HostError, match="is being ended"):
            await scene.supervisor.channel()
        await close()
        closed.set()

    closed = asyncio.Event()
    monkeypatch.setattr(channel, "close", closing)
    await scene.supervisor.stop()
    assert closed.is_set()


async def test_a_restart_that_is_cancelled_goes_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage()
    await scene.supervisor.start()
    before = await scene.supervisor.launch()
    stop, ending = scene.driver.stop, asyncio.Event()

    async def stuck(handle: Handle, grace: float = 5.0) -> None:
        monkeypatch.setattr(scene.driver, "stop", stop)
        ending.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(scene.driver, "stop", stuck)
    restarting = asyncio.create_task(scene.supervisor.restart())
    await ending.wait()
    restarting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await restarting
    await scene.until_state("ready")
    assert (await scene.supervisor.launch()).spec.launch_id != before.spec.launch_id
    assert len(scene.running) == 1
    await scene.supervisor.stop()


async def test_who_asks_during_a_restart_gets_the_next_guest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage()
    await scene.supervisor.start()
    before, channel = await scene.supervisor.launch(), scene.supervisor.connection
    assert channel is not None
    close, asked = channel.close, []

    async def closing() -> None:
        asked.append(asyncio.create_task(scene.supervisor.launch()))
        await asyncio.sleep(0)
        await close()

    monkeypatch.setattr(channel, "close", closing)
    await scene.supervisor.restart()
    (after,) = await asyncio.gather(*asked)
    assert after.spec.launch_id != before.spec.launch_id
    assert await scene.state() == "ready"
    await scene.supervisor.stop()


@pytest.mark.parametrize(
    "behaviour", [Behaviour(healthy=False), Behaviour(start_delay_s=1000.0)], ids=["slow", "stuck"]
)
async def test_stop_while_starting(stage: Stage, behaviour: Behaviour) -> None:
    scene = stage(behaviour, policy=replace(QUICK, start_timeout=1000))
    starting = asyncio.create_task(scene.supervisor.start())
    waiting = asyncio.create_task(scene.supervisor.launch())
    await scene.until_state("starting")
    await asyncio.sleep(0.05)
    await scene.supervisor.stop()
    with pytest.raises(HostError) as raised:
        await starting
    assert raised.value.code is Code.CANCELLED
    with pytest.raises(HostError):
        await waiting
    assert scene.running == []


class SlowlyUndone:
    """A first start that ends only when it is cancelled, and is undone once it `may`."""

    def __init__(self, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made, self.undoing, self.may = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._driver, self._start = driver, driver.start
        monkeypatch.setattr(driver, "start", self.start)

    async def start(self, spec: LaunchSpec) -> Handle:
        handle = await self._start(spec)
        if not self.made.is_set():
            self.made.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.undoing.set()
                await self.may.wait()
                await self._driver.stop(handle, 0)
                raise
        return handle


async def test_a_start_that_is_undone_is_undone_to_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage()
    slow = SlowlyUndone(scene.driver, monkeypatch)
    starting = asyncio.create_task(scene.supervisor.start())
    await slow.made.wait()
    stopping = asyncio.create_task(scene.supervisor.stop())
    await slow.undoing.wait()
    stopping.cancel()
    await asyncio.wait({stopping})
    again = asyncio.create_task(scene.supervisor.stop())
    await asyncio.sleep(0)
    slow.may.set()
    await again
    assert scene.running == []
    with pytest.raises(HostError, match="was stopped while it started"):
        await starting


async def test_what_goes_on_after_a_cancelled_restart_waits_for_what_is_being_undone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = stage()
    slow = SlowlyUndone(scene.driver, monkeypatch)
    scene.supervisor.start_in_background()
    await slow.made.wait()
    restarting = asyncio.create_task(scene.supervisor.restart())
    await slow.undoing.wait()
    restarting.cancel()
    await asyncio.wait({restarting})
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(scene.driver.launched) == 1
    slow.may.set()
    await scene.until_state("ready")
    assert scene.running == [scene.guest]
    assert len(scene.driver.launched) == 2


async def test_stop_while_backing_off(stage: Stage) -> None:
    scene = stage(policy=replace(QUICK, backoff_first=1000, backoff_max=1000))
    await scene.supervisor.start()
    await scene.guest.end(1)
    await scene.until_state("backing_off")
    async with asyncio.timeout(GUARD_S):
        await scene.supervisor.stop()
    assert await scene.state() == "stopped"


async def test_an_obstinate_guest_is_killed_at_stop(stage: Stage) -> None:
    scene = stage(Behaviour(obstinate=True))
    await scene.supervisor.start()
    await scene.supervisor.stop()
    assert scene.guest.exit_code == -9


async def test_who_asks_for_the_gateway_waits_while_the_guest_starts(stage: Stage) -> None:
    scene = stage()
    real, go = scene.driver.start, asyncio.Event()

    async def slowly(spec: LaunchSpec) -> Handle:
        await go.wait()
        return await real(spec)

    scene.driver.start = slowly  # type: ignore[method-assign]
    starting = asyncio.create_task(scene.supervisor.start())
    await scene.until_state("starting")
    asking = asyncio.create_task(scene.supervisor.launch())
    await asyncio.sleep(0.01)
    assert not asking.done()
    go.set()
    assert (await asking).peer.token
    await starting


async def test_a_bug_in_the_driver_is_told_and_tried_again(stage: Stage) -> None:
    scene = stage()
    await scene.supervisor.start()
    real = scene.driver.start
    failed: list[LaunchSpec] = []

    async def broken(spec: LaunchSpec) -> Handle:
        if len(failed) < 2:
            failed.append(spec)
            raise ZeroDivisionError("a bug")
        return await real(spec)

    scene.driver.start = broken  # type: ignore[method-assign]
    await scene.guest.end(1)
    await scene.until(lambda: len(scene.driver.launched) == 2)
    await scene.until_state("ready")
    assert len(failed) == 2


@pytest.mark.parametrize("with_another", [False, True])
async def test_a_socket_that_was_replaced_ends_the_guest_and_is_said(
    stage: Stage, with_another: bool
) -> None:
    scene = stage()
    await scene.supervisor.start()
    assert (await scene.supervisor.status()).last_end == ""
    scene.workspace.socket(Role.AGENT).unlink()
    if with_another:
        scene.workspace.socket(Role.AGENT).touch()
    await scene.until(lambda: len(scene.driver.launched) == 2)
    status = await scene.until_state("ready")
    assert status.reason == ""
    assert "the agent guest's socket was removed or replaced" in status.last_end
    assert scene.workspace.socket(Role.AGENT).is_socket()


async def test_a_guest_that_removes_its_socket_and_ends_is_not_called_replaced(
    stage: Stage,
) -> None:
    scene = stage()
    await scene.supervisor.start()
    scene.workspace.socket(Role.AGENT).unlink()
    await asyncio.sleep(2 * QUICK.check_interval)
    await scene.guest.end(3)
    await scene.until(lambda: len(scene.driver.launched) == 2)
    assert "exited with status 3" in (await scene.until_state("ready")).last_end


class Refusing:
    """A step that fails in a way that nobody has thought of, as long as `refuses`."""

    def __init__(self, step: Callable[..., Any], error: Exception) -> None:
        self.refuses = True
        self.asked = asyncio.Event()
        self._step = step
        self._error = error

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.asked.set()
        if self.refuses:
            raise self._error
        return await self._step(*arguments, **named)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("a bug"),
        PermissionError(13, "no access"),
        TierError(Code.UNAVAILABLE, "the container engine does not answer"),
    ],
)
async def test_a_guest_that_cannot_be_ended_is_told_and_ended_later(
    stage: Stage, error: Exception
) -> None:
    scene = stage()
    await scene.supervisor.start()
    first = scene.guest
    stop = Refusing(scene.driver.stop, error)
    scene.driver.stop = stop  # type: ignore[method-assign]
    await first.set_healthy(False)
    status = await scene.until_state("backing_off")
    assert str(error) in status.reason or repr(error) in status.reason
    assert len(scene.driver.launched) == 1
    stop.refuses = False
    await scene.until(lambda: len(scene.driver.launched) == 2)
    assert not first.running
    await scene.until_state("ready")


async def test_a_restart_that_cannot_end_the_guest_leaves_it_supervised(stage: Stage) -> None:
    scene = stage()
    await scene.supervisor.start()
    stop = Refusing(scene.driver.stop, RuntimeError("a bug"))
    scene.driver.stop = stop  # type: ignore[method-assign]
    with pytest.raises(WireError, match="a bug"):
        await scene.supervisor.restart()
    assert (await scene.supervisor.status()).state != "ready"
    stop.refuses = False
    await scene.until(lambda: len(scene.driver.launched) == 2)
    await scene.until_state("ready")


async def test_a_tier_that_cannot_say_how_the_guest_is_does_not_hide_the_rest(
    stage: Stage,
) -> None:
    scene = stage()
    await scene.supervisor.start()
    inspect = Refusing(scene.driver.inspect, RuntimeError("a bug"))
    scene.driver.inspect = inspect  # type: ignore[method-assign]
    status = await scene.supervisor.status()
    assert (status.state, status.role) == ("unhealthy", "agent")
    assert "a bug" in status.reason


async def test_what_lies_in_the_sockets_place_is_moved_aside_before_a_start(stage: Stage) -> None:
    scene = stage()
    place = scene.workspace.socket(Role.AGENT)
    (place / "deep" / "down").mkdir(parents=True)
    await scene.supervisor.start()
    assert place.is_socket()
    (aside,) = place.parent.glob("*.aside-*")
    assert (aside / "deep" / "down").is_dir()


async def test_what_cannot_be_tidied_after_an_end_does_not_end_supervision(stage: Stage) -> None:
    scene = stage()
    full = True

    def record(handle: Handle | None) -> None:
        scene.handles.append(handle)
        if full and handle is None:
            raise OSError(28, "No space left on device")

    scene.supervisor = Supervisor(
        scene.driver, "agent", scene.prepare, on_handle=record, policy=QUICK
    )
    await scene.supervisor.start()
    await scene.guest.end(-9)
    await scene.until(lambda: len(scene.driver.launched) == 2)
    assert "SIGKILL" in (await scene.until_state("ready")).last_end
    await scene.supervisor.restart()
    assert len(scene.driver.launched) == 3
    assert await scene.state() == "ready"
    full = False

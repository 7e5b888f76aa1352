"""Several runners, one embedder, in the process tier and in a container: sharing, dying,
hanging, orphans, quick stops."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from guest.embedding.client import RemoteEmbedder
from runner.embedder import manager as embedder
from runner.embedder.home import Child, EmbedderHome
from runner.embedder.manager import EmbedderManager, Timing
from tests.integration.embedder.embedder_harness import (
    HASHING,
    LIMIT_S,
    QUICK,
    Place,
    Settings,
    eventually,
    own_children,
    until,
    until_state,
)

Make = Callable[..., EmbedderManager]


@pytest.fixture(params=["process", pytest.param("container", marks=pytest.mark.docker)])
def place(request: pytest.FixtureRequest, short_dir: Path) -> Place:
    return Place(request.param, short_dir).require_image()


@pytest.fixture
async def make(place: Place) -> AsyncIterator[Make]:
    managers: list[EmbedderManager] = []

    def manager(settings: Settings = HASHING, timing: Timing = QUICK) -> EmbedderManager:
        managers.append(EmbedderManager(place.home(settings), timing))
        return managers[-1]

    yield manager
    for each in managers:
        await each.stop()


async def test_two_runners_share_one_and_the_last_ends_it(make: Make, place: Place) -> None:
    first, second = make(), make()
    await first.start()
    await second.start()
    assert first.link() == second.link()
    seen = await until(first, "ready")
    assert (seen.role, seen.restarts, seen.reason) == ("embedder", 0, "")
    assert seen.details == "hashing-v1-384, 384 dimensions"
    assert seen.resident_bytes > 10_000_000
    assert seen.since.endswith("+00:00")
    assert (await until(second, "ready")).pid == seen.pid
    await first.stop()
    assert (await first.status()).state == "stopped"
    assert psutil.pid_exists(seen.pid)
    assert (await second.status()).pid == seen.pid
    await second.stop()
    await eventually(place.is_clean, "nothing is left")
    await second.stop()
    await second.start()
    await until(second, "ready")


async def test_many_runners_at_once_start_one(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[Child] = []
    kind = type(place.home())
    spawn = kind.spawn

    async def counted(home: EmbedderHome, token: str) -> Child:
        spawned.append(await spawn(home, token))
        return spawned[-1]

    monkeypatch.setattr(kind, "spawn", counted)
    managers = [make() for _ in range(8)]
    await asyncio.gather(*(manager.start() for manager in managers))
    pids = {(await until(manager, "ready")).pid for manager in managers}
    assert len(pids) == 1
    assert len(spawned) == 1
    await asyncio.gather(*(manager.stop() for manager in managers))
    await eventually(place.is_clean, "nothing is left")


async def test_a_killed_embedder_comes_back_under_the_same_link(make: Make) -> None:
    manager = make()
    await manager.start()
    before = await until(manager, "ready")
    guest = RemoteEmbedder(*manager.link())
    await guest.embed(["x"], timeout=60)
    os.kill(before.pid, signal.SIGKILL)
    after = await until(manager, "ready", lambda seen: seen.pid != before.pid)
    assert after.restarts == 1
    await until_state(guest, "ready")
    assert len((await guest.embed(["x"], timeout=60)).vectors) == 1
    await guest.close()


async def test_a_hanging_embedder_is_replaced(make: Make, place: Place) -> None:
    manager = make(timing=replace(QUICK, hung=6.0))
    await manager.start()
    before = await until(manager, "ready")
    place.hang(before.pid)
    assert (await until(manager, "unhealthy")).reason
    after = await until(manager, "ready", lambda seen: seen.pid != before.pid)
    assert after.restarts == 1
    assert not psutil.pid_exists(before.pid)


async def test_a_hanging_embedder_does_not_outlive_the_last_runner(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = ((signal.SIGTERM, 0.2), (signal.SIGKILL, LIMIT_S))
    monkeypatch.setattr(embedder, "_ENDINGS", impatient)
    manager = make()
    await manager.start()
    place.hang((await until(manager, "ready")).pid)
    await manager.stop()
    assert place.is_clean()


async def test_another_runner_revives_what_its_starter_left(make: Make, place: Place) -> None:
    starter, other = make(), make()
    await starter.start()
    await until(starter, "ready")
    await other.start()
    before = await until(other, "ready")
    await starter.stop()
    os.kill(before.pid, signal.SIGKILL)
    await until(other, "ready", lambda seen: seen.pid != before.pid)
    await other.stop()
    await eventually(place.is_clean, "nothing is left")


async def test_stop_right_after_start_leaves_nothing(
    make: Make, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedder, "_ENDINGS", ((signal.SIGTERM, 1000.0),))
    for pause in (0.0, 0.02, 0.1, 0.2, 0.4, 0.8):
        manager = make()
        await manager.start()
        await asyncio.sleep(pause)
        await asyncio.wait_for(manager.stop(), LIMIT_S)
        assert not place.home().is_running()
        assert not own_children()
        assert place.containers() == []


async def test_a_killed_runner_leaves_no_orphan(place: Place) -> None:
    code = (
        "import asyncio, pathlib, sys\n"
        "from runner.embedder.manager import EmbedderManager\n"
        "from tests.integration.embedder.embedder_harness import Place\n"
        "async def main():\n"
        "    manager = EmbedderManager(Place(sys.argv[1], pathlib.Path(sys.argv[2])).home())\n"
        "    await manager.start()\n"
        "    while (await manager.status()).state != 'ready': await asyncio.sleep(0.05)\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.sleep(600)\n"
        "asyncio.run(main())\n"
    )
    home = place.home()
    command = [sys.executable, "-c", code, place.tier, str(place.directory)]
    runner = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert runner.stdout is not None
    assert await asyncio.to_thread(runner.stdout.readline) == b"ready\n"
    assert home.is_running()
    assert os.getsid(pid := await home.pid()) == pid
    runner.kill()
    runner.wait()
    runner.stdout.close()
    assert home.is_running()
    await eventually(lambda: not home.is_running(), "the orphan has ended")
    await eventually(place.is_clean, "nothing is left")

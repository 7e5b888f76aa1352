"""Several runners, one embedder, in the process tier and in a container: sharing, dying,
hanging, orphans, quick stops."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from wire.identity import Party

from guest.embedding.client import RemoteEmbedder
from runner.host.embedder import Embedder
from runner.host.supervisor import Policy
from tests.support import parties
from tests.support.guests.embedders import (
    LIMIT_S,
    QUICK,
    Place,
    eventually,
    until,
    until_state,
)

Make = Callable[..., Embedder]


@pytest.fixture(params=["process", pytest.param("container", marks=pytest.mark.docker)])
def place(request: pytest.FixtureRequest, short_dir: Path) -> Place:
    return Place(request.param, short_dir).require_image()


@pytest.fixture
async def make(place: Place) -> AsyncIterator[Make]:
    made: list[Embedder] = []

    def embedder(policy: Policy = QUICK) -> Embedder:
        made.append(place.embedder(policy=policy))
        return made[-1]

    yield embedder
    for each in made:
        await each.stop()


async def test_two_runners_share_one_and_the_last_ends_it(make: Make, place: Place) -> None:
    first, second = make(), make()
    await first.start()
    await second.start()
    assert first.link().endpoint == second.link().endpoint
    assert first.link().token == second.link().token
    assert first.link().identity.authority == second.link().identity.authority
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


async def test_many_runners_at_once_start_one(make: Make, place: Place) -> None:
    embedders = [make() for _ in range(8)]
    await asyncio.gather(*(embedder.start() for embedder in embedders))
    seen = [await until(embedder, "ready") for embedder in embedders]
    assert len({each.pid for each in seen}) == 1
    assert {each.restarts for each in seen} == {0}
    assert place.home().log.read_text().count("serving hashing") == 1
    await asyncio.gather(*(embedder.stop() for embedder in embedders))
    await eventually(place.is_clean, "nothing is left")


async def test_a_killed_embedder_comes_back_under_the_same_link(make: Make) -> None:
    embedder = make()
    await embedder.start()
    before = await until(embedder, "ready")
    guest = RemoteEmbedder(parties.linked(embedder.link(), Party.EMBEDDER))
    await guest.embed(["x"], timeout=60)
    os.kill(before.pid, signal.SIGKILL)
    after = await until(embedder, "ready", lambda seen: seen.pid != before.pid)
    assert after.restarts == 1
    await until_state(guest, "ready")
    assert len((await guest.embed(["x"], timeout=60)).vectors) == 1
    await guest.close()


async def test_a_hanging_embedder_is_replaced(make: Make, place: Place) -> None:
    embedder = make(replace(QUICK, check_timeout=0.5))
    await embedder.start()
    before = await until(embedder, "ready")
    place.hang(before.pid)
    assert (await until(embedder, "unhealthy")).reason
    after = await until(embedder, "ready", lambda seen: seen.pid != before.pid)
    assert after.restarts == 1
    assert not psutil.pid_exists(before.pid)


async def test_a_hanging_embedder_does_not_outlive_the_last_runner(
    make: Make, place: Place
) -> None:
    embedder = make(replace(QUICK, stop_grace=0.2))
    await embedder.start()
    place.hang((await until(embedder, "ready")).pid)
    await embedder.stop()
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


async def test_stop_right_after_start_leaves_nothing(make: Make, place: Place) -> None:
    for pause in (0.0, 0.02, 0.1, 0.2, 0.4, 0.8):
        embedder = make(replace(QUICK, stop_grace=1000.0))
        await embedder.start()
        await asyncio.sleep(pause)
        await asyncio.wait_for(embedder.stop(), LIMIT_S)
        assert not place.children()
        assert place.containers() == []


_RUNNER = """
import asyncio, pathlib, sys
from tests.support.guests.embedders import Place, until
async def main():
    embedder = Place(sys.argv[1], pathlib.Path(sys.argv[2])).embedder()
    await embedder.start()
    print((await until(embedder, "ready")).pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture
def runner(place: Place) -> Iterator["subprocess.Popen[bytes]"]:
    """Another runner; it writes the embedder's pid and is killed at the latest with the test."""
    command = [sys.executable, "-c", _RUNNER, place.tier, str(place.directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


async def pid_told_by(runner: "subprocess.Popen[bytes]") -> int:
    assert runner.stdout is not None
    return int(await asyncio.to_thread(runner.stdout.readline))


async def test_an_embedder_outlives_its_killed_starter_while_another_runner_needs_it(
    make: Make, place: Place, runner: "subprocess.Popen[bytes]"
) -> None:
    pid = await pid_told_by(runner)
    assert os.getsid(pid) == pid
    other = make()
    await other.start()
    await until(other, "ready")
    runner.kill()
    runner.wait()
    guest = RemoteEmbedder(parties.linked(other.link(), Party.EMBEDDER))
    assert len((await guest.embed(["x"], timeout=60)).vectors) == 1
    await guest.close()
    seen = await other.status()
    assert (seen.state, seen.pid, seen.restarts) == ("ready", pid, 0)
    await other.stop()
    await eventually(lambda: not psutil.pid_exists(pid), "it has ended")
    await eventually(place.is_clean, "nothing is left")


async def test_an_embedder_that_no_runner_needs_ends_by_itself(
    make: Make, place: Place, runner: "subprocess.Popen[bytes]"
) -> None:
    pid = await pid_told_by(runner)
    runner.kill()
    runner.wait()
    assert psutil.pid_exists(pid)
    await eventually(lambda: not psutil.pid_exists(pid), "the orphan has ended")
    following = make()
    await following.start()
    await until(following, "ready")
    await following.stop()
    await eventually(place.is_clean, "nothing is left")

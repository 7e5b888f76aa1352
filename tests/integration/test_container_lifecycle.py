"""What becomes of a user's pair in containers when a part of it is killed, frozen or restarted."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from testcontainers.core.exceptions import ContainerStartException
from wire.errors import WireError

from runner.host.supervisor import Policy
from runner.testing import GuestContainer, UserPair
from runner.tiers.container.engine import find_socket
from tests.support.commands.household import Household
from tests.support.guests.engine import docker, engine_objects
from tests.support.guests.engine_proxy import EngineProxy

pytestmark = pytest.mark.docker

one_pair = pytest.mark.xdist_group("container_lifecycle")
GUARD_S = 60.0
QUICK = Policy(check_interval=0.2, check_timeout=1.0, backoff_first=0.05, stop_grace=2.0)


@pytest.fixture(scope="module")
def pair() -> Iterator[UserPair]:
    with UserPair(policy=QUICK) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GUARD_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def states(pair: UserPair) -> dict[str, str]:
    return {guest.role: guest.state for guest in pair.status().guests}


def identity(container: GuestContainer) -> str:
    return str(container.get_wrapped_container().id)


def test_an_engine_that_was_away_is_waited_for_and_all_guests_come_back(tmp_path: Path) -> None:
    """The engine's socket goes; so do the guests' standard inputs, with which they end."""
    with (
        EngineProxy(find_socket("auto"), tmp_path / "e.sock") as engine,
        UserPair(policy=QUICK, container={"engine": f"unix://{engine.place}"}) as pair,
    ):
        before = [identity(pair.agent), identity(pair.shell)]
        engine.leave()
        until(lambda: {"backing_off"} == {states(pair)[role] for role in ("agent", "shell")})
        reasons = {guest.role: guest.reason for guest in pair.status().guests}
        assert "no container engine answers" in reasons["agent"]
        assert "next start in" in reasons["agent"]
        engine.come()
        until(lambda: {"ready"} == {states(pair)[role] for role in ("agent", "shell", "embedder")})
        assert not {identity(pair.agent), identity(pair.shell)} & {*before}
        assert pair.turn("remember that the engine was away").tools == [("memory_save", True)]


def replaced(container: GuestContainer, former: str) -> bool:
    """Whether another container runs in the place of `former`."""
    try:
        now = container.get_wrapped_container()
    except ContainerStartException:
        return False
    return bool(now.status == "running" and now.id != former)


def embedder_container(pair: UserPair) -> str:
    """The engine's name of the embedder of this pair's household."""
    names = engine_objects(pair.config.workspace_root.parent)
    return next(name.removeprefix("/") for name in names if "embedder" in name)


class Notes:
    """Turns in a thread of their own that save one note each; `acknowledged` are those whose
    turn said so, by their text. A turn that fails is forgotten: it promised nothing."""

    def __init__(self, pair: UserPair) -> None:
        self.acknowledged: dict[str, str] = {}
        self._pair = pair
        self._ended = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._work = self._pool.submit(self._save)

    def _save(self) -> None:
        number = 0
        while not self._ended.is_set():
            number += 1
            text = f"number {number} is {number * 7919}"
            try:
                turn = self._pair.turn(f"remember that {text}")
            except WireError:
                time.sleep(0.02)
                continue
            if turn.tools == [("memory_save", True)] and not turn.failure:
                self.acknowledged[text] = turn.text.split("[id: ")[1].split("]")[0]

    def more(self) -> None:
        """Wait until two more turns were answered: one may have been under way."""
        known = len(self.acknowledged)
        until(lambda: self._work.done() or len(self.acknowledged) > known + 1)
        assert not self._work.done(), self._work.exception()

    def end(self) -> None:
        self._ended.set()
        self._work.result(GUARD_S)
        self._pool.shutdown()

    def lost(self) -> dict[str, str]:
        """Those that the memory does not know under their id any more: the same text is
        answered with the note that holds it."""
        return {
            text: note_id
            for text, note_id in self.acknowledged.items()
            if note_id not in self._pair.call_tool("memory_save", {"content": text}).text
        }


@one_pair
def test_no_part_that_is_killed_takes_a_note_or_its_neighbour_with_it(pair: UserPair) -> None:
    notes = Notes(pair)
    try:
        notes.more()
        agent, shell = identity(pair.agent), identity(pair.shell)
        pair.agent.get_wrapped_container().kill()
        until(lambda: replaced(pair.agent, agent))
        notes.more()
        assert identity(pair.shell) == shell

        agent = identity(pair.agent)
        pair.shell.get_wrapped_container().kill()
        until(lambda: replaced(pair.shell, shell))
        until(lambda: states(pair)["shell"] == "ready")
        notes.more()
        assert identity(pair.agent) == agent

        shell = identity(pair.shell)
        embedder = embedder_container(pair)
        before = docker("inspect", "--format", "{{.Id}}", embedder)
        docker("kill", embedder)
        until(lambda: before not in docker("ps", "--all", "--quiet", "--no-trunc"))
        until(lambda: states(pair)["embedder"] == "ready")
        notes.more()
        assert (identity(pair.agent), identity(pair.shell)) == (agent, shell)
    finally:
        notes.end()
    assert len(notes.acknowledged) >= 8
    assert notes.lost() == {}
    assert pair.status().boundary.passed


@one_pair
@pytest.mark.parametrize("role", ["agent", "shell"])
def test_a_frozen_guest_is_replaced_and_the_other_one_stays(pair: UserPair, role: str) -> None:
    assert not pair.call_tool("memory_save", {"content": "tea is at five"}).is_error
    frozen, other = (pair.agent, pair.shell) if role == "agent" else (pair.shell, pair.agent)
    gone, stays = identity(frozen), identity(other)
    frozen.get_wrapped_container().pause()
    until(lambda: replaced(frozen, gone))
    until(lambda: states(pair)[role] == "ready")
    assert identity(other) == stays
    assert "tea is at five" in pair.call_tool("memory_search", {"query": "tea"}).text
    assert not pair.call_tool("shell_exec", {"command": "true"}).is_error


@one_pair
def test_a_restart_of_the_shell_leaves_the_agent_alone(pair: UserPair) -> None:
    agent, shell = identity(pair.agent), identity(pair.shell)
    pair.restart("shell")
    assert identity(pair.agent) == agent
    assert identity(pair.shell) != shell
    assert not pair.call_tool("shell_exec", {"command": "true"}).is_error


@pytest.fixture
def house() -> Iterator[Household]:
    made = Household(containers=True)
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
    yield made
    made.stop()
    made.remove()


def running(house: Household) -> dict[str, str]:
    """Ids of the guests' containers by their names; the embedder is not a guest."""
    names = [name.removeprefix("/") for name in engine_objects(house.path)]
    guests = [name for name in names if name.endswith(("-agent", "-shell"))]
    return {name: docker("inspect", "--format", "{{.Id}}", name) for name in guests}


def kill_and_wait(runner: psutil.Process) -> None:
    runner.kill()
    until(lambda: not runner.is_running() or runner.status() == psutil.STATUS_ZOMBIE)


def test_what_a_killed_runner_leaves_is_gone_before_another_agent_begins(house: Household) -> None:
    """Its guests are frozen, so that they cannot notice and end by themselves. A second start is
    refused, and a restart of the shell restarts nothing else."""
    assert house.run("start", "--detach").returncode == 0
    said = house.run("chat", stdin="remember that tea is at five\n").stdout
    note_id = said.split("[id: ")[1].split("]")[0]
    first = running(house)
    assert len(first) == 2
    runner = psutil.Process(json.loads(house.run("status", "--json").stdout)["pid"])
    for name in first:
        docker("pause", name)
    kill_and_wait(runner)

    again = house.run("start", "--detach")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("an earlier runner") >= 2
    second = running(house)
    assert second.keys() == first.keys()
    assert not set(second.values()) & set(first.values())
    assert note_id in house.run("chat", stdin="what do you know about tea?\n").stdout

    refused = house.run("start", "--detach")
    assert refused.returncode == 1
    assert "is there already" in refused.stderr
    assert running(house) == second
    restarted = house.run("restart", "--role", "shell")
    assert restarted.returncode == 0, restarted.stderr
    changed = {name for name, number in running(house).items() if number != second[name]}
    assert len(changed) == 1
    assert changed.pop().endswith("-shell")
    for role in ("agent", "shell"):
        logged = house.run("logs", "--role", role)
        assert logged.returncode == 0, logged.stderr
        assert re.search(r"\S", logged.stdout), role
    assert house.run("stop").stdout == "stopped\n"
    assert house.settles(), house.left_behind()
    assert house.run("stop").stdout == "not running\n"


def test_a_runner_killed_in_mid_turn_loses_no_acknowledged_note(house: Household) -> None:
    """Its guests end by themselves, and the next runner has every note that was confirmed."""
    assert house.run("start", "--detach").returncode == 0
    status = json.loads(house.run("status", "--json").stdout)
    pids = [guest["pid"] for guest in status["guests"] if guest["role"] in ("agent", "shell")]
    assert len(pids) == 2
    chat = house.begin("chat")
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.writelines(f"remember that number {n} is {n * 7919}\n" for n in range(500))
    chat.stdin.flush()
    shown = ""
    while shown.count("Saved: ") < 5:
        shown += chat.stdout.readline()
    kill_and_wait(psutil.Process(status["pid"]))
    until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    chat.kill()
    shown += chat.communicate()[0]
    confirmed = dict(re.findall(r"^Saved: (.*) \[id: (note-[\w-]+)\]$", shown, re.MULTILINE))
    assert 5 <= len(confirmed) < 500

    again = house.run("start", "--detach")
    assert again.stdout.count("an earlier runner") >= 2
    asked = "".join(f"remember that {text}\n" for text in confirmed)
    answered = house.run("chat", stdin=asked).stdout
    assert [text for text, note_id in confirmed.items() if note_id not in answered] == []
    assert house.run("stop").returncode == 0
    assert house.settles(), house.left_behind()

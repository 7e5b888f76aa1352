"""The real command with the real guest: every way in, every way out, nothing left behind."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.cli.options import UNCONFINED, for_the_same
from runner.tiers.process.bubblewrap import Bubblewrap
from tests.support.commands.household import RUNNER, Household

GUARD_S = 60.0
GUEST = "guest.app"


@pytest.fixture
def house() -> Iterator[Household]:
    made = Household()
    made.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    made.environment["OXYDRA_SHELL__ENABLED"] = "false"
    yield made
    (made.working_directory / "runner.toml").unlink(missing_ok=True)
    made.stop()
    made.remove()


@pytest.fixture
def with_shell(house: Household) -> None:
    del house.environment["OXYDRA_SHELL__ENABLED"]


def status(house: Household) -> Any:
    return json.loads(house.run("status", "--json").stdout)


def agent(house: Household) -> Any:
    return status(house)["guests"][0]


def wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + GUARD_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def greeting_of(process: "subprocess.Popen[str]") -> str:
    """What a host in the foreground says when it is ready."""
    assert process.stdout is not None
    lines = []
    while line := process.stdout.readline():
        lines.append(line)
        if line.startswith("  stop "):
            return "".join(lines)
    raise AssertionError(process.communicate())


def begin(house: Household) -> "subprocess.Popen[str]":
    """A host in the foreground, ready."""
    process = house.begin("start")
    greeting_of(process)
    return process


def detach(house: Household) -> None:
    done = house.run("start", "--detach")
    assert done.returncode == 0, done.stderr


def end(process: "subprocess.Popen[str]", number: int) -> tuple[int, str]:
    process.send_signal(number)
    _, errors = process.communicate(timeout=GUARD_S)
    return process.returncode, errors


def test_start_in_the_foreground_greets_and_ends_with_ctrl_c(house: Household) -> None:
    process = house.begin("start")
    greeting = greeting_of(process)
    assert "is ready (process tier)" in greeting
    assert "user       default" in greeting
    assert f"workspace  {house.workspaces}/default" in greeting
    assert "provider   offline" in greeting
    assert "embedder   none" in greeting
    assert "chat       runner chat" in greeting
    assert "stop       Ctrl-C here, or runner stop" in greeting
    code, errors = end(process, signal.SIGINT)
    assert code == 130
    assert errors == for_the_same(UNCONFINED, ["--insecure"]) + "\n"
    again = begin(house)
    assert end(again, signal.SIGTERM) == (0, ""), "it is said once"
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_are_an_ordinary_end(house: Household, number: int) -> None:
    process = begin(house)
    assert end(process, number)[0] == 0
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
def test_impatience_leaves_nothing_either(house: Household) -> None:
    process = begin(house)
    for _ in range(5):
        process.send_signal(signal.SIGINT)
    assert end(process, signal.SIGINT)[0] == 130
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
def test_ctrl_c_in_the_middle_of_a_start_leaves_nothing(house: Household) -> None:
    process = house.begin("start")
    wait_for(lambda: house.guest_pids(GUEST))
    assert end(process, signal.SIGINT)[0] == 130
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
def test_a_detached_host_is_ready_on_return_and_stops_once(house: Household) -> None:
    done = house.run("start", "--detach")
    assert done.returncode == 0, done.stderr
    assert "running in the background, pid " in done.stdout
    found = status(house)
    assert found["running"] is True
    assert (found["user"], found["tier"], found["provider"]) == ("default", "process", "offline")
    assert found["workspace"] == str(house.workspaces / "default")
    guest, shell, egress, commands, embedder = found["guests"]
    assert (guest["role"], guest["state"], guest["restarts"]) == ("agent", "ready", 0)
    assert guest["resident_bytes"] > 10_000_000
    assert shell["role"] == "shell"
    lacking = Bubblewrap().reason
    assert (shell["state"], shell["reason"]) == (
        ("disabled", lacking) if lacking else ("ready", "")
    )
    assert (egress["role"], egress["state"]) == ("egress", "disabled")
    assert egress["reason"] == "nothing is configured to leave"
    assert (commands["role"], commands["state"]) == ("shell-egress", "disabled")
    assert commands["reason"] == (lacking or "[egress.shell] opens nothing and asks nobody")
    assert (embedder["role"], embedder["state"]) == ("embedder", "disabled")
    table = house.run("status")
    assert table.returncode == 0
    assert "agent" in table.stdout
    assert "shell" in table.stdout
    assert "boundary: held by all" in table.stdout
    first, second = house.run("stop"), house.run("stop")
    assert (first.returncode, first.stdout) == (0, "stopped\n")
    assert (second.returncode, second.stdout) == (0, "not running\n")
    house.command = RUNNER  # without a tier, the one that it was started in counts
    house.environment["DOCKER_HOST"] = f"unix://{house.path}/no-engine.sock"
    assert house.works("stop") == "not running\n"
    assert house.run("status").returncode == 3
    assert house.left_behind() == []


def test_a_second_start_is_refused_and_stop_ends_a_host_in_the_foreground(
    house: Household,
) -> None:
    process = begin(house)
    for words in (["start"], ["start", "--detach"], []):
        done = house.run(*words)
        assert done.returncode == 1
        assert f"pid {process.pid}, since 20" in done.stderr
        assert "runner stop" in done.stderr
    assert agent(house)["state"] == "ready"
    assert house.run("stop").returncode == 0
    process.communicate(timeout=GUARD_S)
    assert process.returncode == 0
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
@pytest.mark.parametrize("next_command", ["start", "stop"])
def test_after_the_runner_was_killed_nothing_is_in_the_way(
    house: Household, next_command: str
) -> None:
    """The guest is frozen, so that it cannot notice and end by itself."""
    process = begin(house)
    (guest,) = house.guest_pids(GUEST)
    os.kill(guest, signal.SIGSTOP)
    process.kill()
    process.communicate()
    assert house.sockets()
    assert house.guest_pids(GUEST) == [guest]
    assert house.run("status").returncode == 3
    if next_command == "start":
        done = house.run("start", "--detach")
        assert done.returncode == 0, done.stderr
        assert "an earlier runner was killed; its agent guest was ended" in done.stdout
        assert house.guest_pids(GUEST) == [agent(house)["pid"]]
        house.run("stop")
    else:
        done = house.run("stop")
        assert done.returncode == 0
        assert "was ended" in done.stdout
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
def test_a_guest_notices_that_its_runner_was_killed(house: Household) -> None:
    process = begin(house)
    assert house.guest_pids(GUEST)
    process.kill()
    process.communicate()
    wait_for(lambda: not house.guest_pids(GUEST))


@pytest.mark.parametrize("words", [["start"], ["start", "--detach"], ["chat"]])
def test_a_corrupt_database_is_one_clear_error(house: Household, words: list[str]) -> None:
    database = house.workspaces / "default" / ".oxydra" / "memory.db"
    database.parent.mkdir(parents=True)
    database.write_bytes(b"this is no database " * 400)
    before = database.read_bytes()
    done = house.run(*words)
    assert done.returncode == 1
    what, why, fix = done.stderr.splitlines()[-3:]
    assert "database" in what
    assert why.startswith("  why: ")
    assert fix.startswith("  fix: ")
    assert done.stdout == ""
    assert database.read_bytes() == before
    assert house.left_behind() == []


@pytest.mark.usefixtures("with_shell")
def test_secrets_are_in_the_envelope_and_nowhere_else(house: Household) -> None:
    key = "sk-test-51b1c3a0b7"
    (house.working_directory / "runner.toml").write_text(
        '[agent]\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:9"\n'
        'api_key_env = "THE_KEY"'
    )
    house.environment |= {"THE_KEY": key, "OTHER_API_KEY": "sk-other-9d8e"}
    detach(house)
    pid = agent(house)["pid"]
    environ = Path(f"/proc/{pid}/environ").read_bytes().decode()
    names = {entry.partition("=")[0] for entry in environ.rstrip("\0").split("\0")}
    assert names <= {
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "PYTHONUTF8",
        "GRPC_VERBOSITY",
    } | {
        "PYTHONUSERBASE",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    }
    seen = environ + Path(f"/proc/{pid}/cmdline").read_text()
    for path in house.path.rglob("*"):
        if path.is_file():
            seen += path.read_bytes().decode(errors="replace")
    seen = seen.replace((house.working_directory / "runner.toml").read_text(), "")
    for secret in (key, "sk-other-9d8e"):
        assert secret not in seen
    for command in (["status"], ["status", "--json"], ["logs"], ["logs", "--role", "host"]):
        assert key not in house.run(*command).stdout


def test_logs_show_tail_follow_and_json(house: Household) -> None:
    detach(house)
    lines = house.run("logs", "--json", "--tail", "2").stdout.splitlines()
    assert len(lines) in (1, 2)
    assert all("message" in json.loads(line) for line in lines)
    follower = house.begin("logs", "--tail", "1", "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline()
    with (house.workspaces / "default" / "logs" / "agent" / "guest.log").open("a") as log:
        log.write("a plain line\n")
    assert follower.stdout.readline() == "a plain line\n"
    assert end(follower, signal.SIGINT)[0] == 130

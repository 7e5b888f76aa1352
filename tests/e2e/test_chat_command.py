"""The chat's surroundings: terminals, pipes that close, signals, hosts, guests that die."""

import asyncio
import os
import signal
import subprocess
import threading
import time

import pytest

from tests.support.commands.household import COMMAND, Household
from tests.support.commands.terminal import Terminal
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import Request
from tests.support.servers.scripted_provider import Script, Step, scripted


@pytest.fixture(autouse=True)
def without_embedder_and_shell(household: Household) -> None:
    household.environment["OXYDRA_AGENT__PROVIDER"] = "offline"  # so nobody is asked
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "none"
    household.environment["OXYDRA_SHELL__ENABLED"] = "false"


@pytest.fixture
def with_shell(household: Household) -> None:
    del household.environment["OXYDRA_SHELL__ENABLED"]


@pytest.mark.usefixtures("with_shell")
async def test_on_a_terminal(household: Household) -> None:
    command, here = [*COMMAND, "chat"], household.working_directory
    async with Terminal(command, household.environment, here) as terminal:
        await terminal.expect("· /help")
        terminal.type("remember that my name is Shantanu\r")
        await terminal.expect("● memory_save my name is Shantanu → Stored")
        terminal.type("/status\r")
        await terminal.expect(str(household.workspaces / "default"))
        await terminal.expect("ready, pid")
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert household.left_behind() == []


def test_a_reader_that_leaves_ends_the_chat_quietly(household: Household) -> None:
    script = f"printf 'remember a\\nremember b\\n' | {' '.join(COMMAND)} chat 2>&1 | head -1"
    done = subprocess.run(
        ["bash", "-c", script + "; echo codes ${PIPESTATUS[@]}"],
        capture_output=True,
        text=True,
        env=household.environment,
        cwd=household.working_directory,
        timeout=60,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert lines[1] == "codes 0 0 0"
    assert done.stderr == ""
    assert household.left_behind() == []


@pytest.mark.usefixtures("with_shell")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_chat_and_host(household: Household, number: signal.Signals) -> None:
    chat = household.begin("chat")
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write("remember one\n")
    chat.stdin.flush()
    assert chat.stdout.readline() == "> remember one\n"
    chat.send_signal(number)
    _, errors = chat.communicate(timeout=60)
    assert chat.returncode == 128 + number
    assert "Traceback" not in errors
    assert household.left_behind() == []


@pytest.mark.usefixtures("with_shell")
def test_a_killed_chat_leaves_no_process(household: Household) -> None:
    chat = household.begin("chat")
    assert chat.stdout is not None
    assert chat.stdin is not None
    chat.stdin.write("remember one\n")
    chat.stdin.flush()
    chat.stdout.readline()
    chat.kill()
    chat.communicate()
    assert household.gone()
    again = household.run("chat", stdin="what do you know about one?\n")
    assert again.returncode == 0, again.stderr
    assert household.left_behind() == []


def test_a_host_that_runs_already_is_used_and_left_running(household: Household) -> None:
    started = household.run("start", "--detach")
    assert started.returncode == 0, started.stderr
    first = household.run("chat", stdin="remember that my name is Shantanu\n")
    second = household.run("chat", stdin="what do you know about my name?\n")
    status = household.run("status")
    stopped = household.run("stop")
    assert first.returncode == 0, first.stderr
    assert "starting the agent" not in first.stderr + second.stderr
    assert "my name is Shantanu" in second.stdout
    assert status.returncode == 0
    assert stopped.returncode == 0
    assert household.settles()


def test_a_host_stays_until_all_who_talk_to_it_have_their_answer(household: Household) -> None:
    first_may, second_may = threading.Event(), threading.Event()

    def after(event: threading.Event, answer: str) -> Step:
        async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
            await asyncio.to_thread(event.wait, 60)
            await provider.says(answer)(request, writer)

        return lambda _: reply

    with scripted() as model:
        household.environment |= {
            "OXYDRA_AGENT__PROVIDER": "openai",
            "OXYDRA_AGENT__MODEL": "m",
            "OXYDRA_AGENT__BASE_URL": model.base_url,
            "OXYDRA_AGENT__API_KEY_ENV": "KEY",
            "KEY": "sk-of-the-test",
        }
        model.play(after(first_may, "one"), after(second_may, "two"))
        first = begun_asking(household, "first")
        asked_by(model, 1)
        second = begun_asking(household, "second")
        asked_by(model, 2)
        first_may.set()
        assert first.stdout is not None
        assert first.stdout.readline() == "one\n"
        assert first.stderr is not None
        while "stays until others have ended" not in (line := first.stderr.readline()):
            assert line
        second_may.set()
        assert second.stdout is not None
        assert second.stdout.read() == "two\n"
        assert (second.wait(60), first.wait(60)) == (0, 0)
    assert household.left_behind() == []


def begun_asking(household: Household, question: str) -> subprocess.Popen[str]:
    begun = household.begin("ask", question)
    assert begun.stdin is not None
    begun.stdin.close()
    begun.stdin = None
    return begun


def asked_by(model: Script, number: int) -> None:
    """Wait until the model was asked so often."""
    deadline = time.monotonic() + 60
    while len(model.seen) < number:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_guest_that_is_killed_between_two_turns_costs_nothing(household: Household) -> None:
    chat = household.begin("chat")
    assert chat.stdout is not None
    assert chat.stdin is not None
    chat.stdin.write("remember that my name is Shantanu\n")
    chat.stdin.flush()
    shown = ""
    while not shown.endswith("\n\n"):  # which ends the turn
        line = chat.stdout.readline()
        assert line, chat.communicate()
        shown += line
    assert "Saved" in shown
    (guest,) = household.guest_pids("guest.app")
    os.kill(guest, signal.SIGKILL)
    output, errors = chat.communicate("what do you know about my name?\n", timeout=60)
    assert chat.returncode == 0, output + errors
    assert "my name is Shantanu" in output
    assert household.left_behind() == []


async def test_stopping_the_host_from_outside_ends_the_chat(household: Household) -> None:
    chat = await asyncio.to_thread(household.begin, "chat")
    assert chat.stdout is not None
    assert chat.stdin is not None
    chat.stdin.write("remember one\n")
    chat.stdin.flush()
    assert chat.stdout.readline() == "> remember one\n"
    stopped = await asyncio.to_thread(household.run, "stop")
    assert stopped.returncode == 0, stopped.stderr
    output, errors = await asyncio.to_thread(chat.communicate, "what now?\n", 60)
    assert chat.returncode == 1, output + errors
    assert "no runner runs" in output + errors
    assert household.left_behind() == []


@pytest.mark.usefixtures("with_shell")
async def test_a_turn_outlives_its_terminal_and_tells_of_the_death_of_its_agent(
    household: Household,
) -> None:
    started = household.run("start", "--detach")
    assert started.returncode == 0, started.stderr
    here = household.working_directory
    shared = household.workspaces / "default/shared"
    command = [*COMMAND, "chat", "--session", "long"]
    async with Terminal(command, household.environment, here) as terminal:
        await terminal.expect("· /help")
        terminal.type("run touch begun; until test -e go; do sleep 0.1; done; echo is $((40+2))\r")
        async with asyncio.timeout(60):
            while not (shared / "begun").exists():
                await asyncio.sleep(0.1)
        terminal.process.send_signal(signal.SIGHUP)  # as a terminal does that is closed
        await terminal.expect("the turn goes on without this chat")
        assert await terminal.ended() == 128 + signal.SIGHUP
        assert "Traceback" not in terminal.text
    async with Terminal(command, household.environment, here) as terminal:
        await terminal.expect("a turn runs in this session")
        (shared / "go").touch()
        position = await terminal.expect("is 42")
        terminal.type("run touch again; sleep 600\r")
        async with asyncio.timeout(60):
            while not (shared / "again").exists():
                await asyncio.sleep(0.1)
        (guest,) = household.guest_pids("guest.app")
        os.kill(guest, signal.SIGKILL)
        position = await terminal.expect("connected again", after=position)
        position = await terminal.expect("stopped in the middle of this turn", after=position)
        terminal.type("/turns\r")
        await terminal.expect("interrupted", after=position)
        terminal.type("\x04")
        assert await terminal.ended() == 0
    assert household.run("stop").returncode == 0
    assert household.settles()

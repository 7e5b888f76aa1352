"""The first hour on a real terminal: from an empty clone to an agent that remembers, with a program
that serves models and without one."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_documented_commands import borrow_packages
from tests.support.commands.documented import ROOT
from tests.support.commands.household import Household
from tests.support.commands.terminal import Terminal

pytestmark = [pytest.mark.root]


@pytest.fixture
def clone(household: Household) -> Iterator[Path]:
    """An empty clone, as set-up leaves it, of somebody who has nothing of ours yet."""
    household.environment["OXYDRA_EMBEDDER__BACKEND"] = "hashing"
    made = household.working_directory / "oxydra"
    subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(made)], check=True)
    wanted = ("Makefile", "tools", "pyproject.toml", "constraints.txt", "web/package-lock.json")
    subprocess.run(["git", "checkout", "--quiet", "HEAD", "--", *wanted], cwd=made, check=True)
    borrow_packages(made)
    yield made
    assert household.left_behind() == []


def run(household: Household, clone: Path, *servers: str, goal: str = "run") -> Terminal:
    """`make run` in the clone, on a machine where these servers run."""
    alone = ["unshare", "--net", sys.executable, "-P", "-m", "tests.support.servers.own_loopback"]
    return Terminal([*alone, *servers, "--", "make", goal], household.environment, clone)


async def left(terminal: Terminal) -> None:
    terminal.type("\x04")
    assert await terminal.ended() == 0
    assert "Traceback" not in terminal.text


async def remembers(terminal: Terminal, answer: str) -> None:
    """Type the last of three answers, in a new session."""
    await terminal.expect("· /help")
    terminal.type("what is my name?\r")
    await terminal.expect(answer)
    await left(terminal)


@pytest.mark.parametrize(
    ("server", "model"), [("ollama", "qwen3:4b"), ("lmstudio", "qwen/qwen3-8b")]
)
async def test_three_answers_to_an_agent_that_remembers(
    household: Household, clone: Path, server: str, model: str
) -> None:
    async with run(household, clone, server) as terminal:
        await terminal.expect("How do you want to talk?")
        await terminal.expect("Enter takes 1")
        terminal.type("\r")  # the first answer
        await terminal.expect("it answered")
        await terminal.expect(f"{server} {model}")
        await terminal.expect("· /help")
        terminal.type("remember that my name is Shantanu\r")  # the second
        await terminal.expect("✓ saved")
        await left(terminal)
    async with run(household, clone, server) as terminal:
        await remembers(terminal, "Your name is Shantanu.")  # the third
        assert "How do you want to talk?" not in terminal.text
    file = household.path / "home" / "config" / "oxydra" / "runner.toml"
    assert f'provider = "{server}"' in file.read_text()
    assert "tier" not in file.read_text()


async def test_without_any_server_enter_takes_the_demo(household: Household, clone: Path) -> None:
    async with run(household, clone) as terminal:
        await terminal.expect("No server of models answers here")
        await terminal.expect("Enter takes 1")
        terminal.type("\r")
        await terminal.expect("· /help")
        terminal.type("remember that my name is Shantanu\r")
        await terminal.expect("✓ saved")
        await left(terminal)
    async with run(household, clone) as terminal:
        await terminal.expect("· /help")
        terminal.type("what do you know about my name?\r")
        await terminal.expect("This is what I know about your name:")
        await left(terminal)
    assert terminal.text.count("How do you want to talk?") == 0

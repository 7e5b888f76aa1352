"""A signal while something begins: no traceback, and nothing of what was begun goes on."""

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.commands.terminal import Terminal
from tests.support.scratch import SCRATCH

MOMENTS = 10
SCRIPT = """
import sys
from runner.cli.__main__ import main

class FirstImport:
    def find_spec(self, *_):
        sys.meta_path.remove(self)
        print("called", flush=True)

sys.meta_path.insert(0, FirstImport())
sys.argv = ["runner", "--insecure", "chat"]
main()
"""
"""The installed program, with a word when it has begun."""

_RANDOM = random.Random(int(os.environ.get("TESTS_SEED", "0")))


@pytest.fixture
def home() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="oxi-", dir=SCRATCH))
    yield directory
    shutil.rmtree(directory)


def environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "OXYDRA_WORKSPACE_ROOT": str(home / "users"),
        "OXYDRA_RUNTIME_DIR": str(home / "run"),
        "OXYDRA_EMBEDDER__BACKEND": "hashing",
        "OXYDRA_AGENT__PROVIDER": "offline",  # so nobody is asked
        "XDG_CONFIG_HOME": str(home),
    }


def test_ctrl_c_between_the_imports_and_the_command_ends_without_a_word() -> None:
    script = """
import signal
from runner.cli import app
from runner.cli.__main__ import main
app.main = lambda: signal.raise_signal(signal.SIGINT)
main()
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_that_python_cannot_raise_comes_again() -> None:
    script = """
import signal, time
from runner.cli import app
from runner.cli.__main__ import main

class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)

def run():
    Last()
    time.sleep(30)
    print("it was lost")

app.main = run
main()
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


async def gone(home: Path) -> bool:
    """Whether no process that was told of `home` runs any more, or will soon."""
    for _ in range(100):
        words = [each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])]
        if not any(str(home) in word for command in words for word in command):
            return True
        await asyncio.sleep(0.1)
    return False


@pytest.mark.parametrize("part", range(MOMENTS))
async def test_ctrl_c_ends_a_chat_that_begins_without_a_word_and_without_leftovers(
    home: Path, part: int
) -> None:
    moment = 2.0 * ((part + _RANDOM.random()) / MOMENTS) ** 2  # most of the imports come first
    command = [sys.executable, "-P", "-c", SCRIPT]
    async with Terminal(command, environment(home), home) as terminal:
        await terminal.expect("called")
        await asyncio.sleep(moment)
        os.killpg(terminal.process.pid, signal.SIGINT)
        if await asks_again(terminal):
            os.killpg(terminal.process.pid, signal.SIGINT)
            assert await terminal.ended() in (0, 130)
        else:
            assert await terminal.ended() in (130, -signal.SIGINT), terminal.text
    assert "Traceback" not in terminal.text
    assert "Exception" not in terminal.text
    assert await gone(home)


async def asks_again(terminal: Terminal) -> bool:
    """Whether the prompt was there already, which asks for a second Ctrl-C."""
    while terminal.process.poll() is None:
        if "Ctrl-C again" in terminal.text:
            return True
        await asyncio.sleep(0.02)
    return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
async def test_a_service_that_is_stopped_while_it_starts_leaves_nobody_behind(
    home: Path, number: signal.Signals, code: int
) -> None:
    users = [f"user{each}" for each in range((os.cpu_count() or 1) + 1)]
    (home / "runner.toml").write_text("".join(f"[users.{each}]\n" for each in users))
    command = [sys.executable, "-P", "-m", "runner.cli", "--insecure", "start", "--all"]
    async with Terminal(command, environment(home), home) as terminal:
        await terminal.expect("starting ")
        os.killpg(terminal.process.pid, number)
        assert await terminal.ended() == code
    assert f"{users[-1]}: running" not in terminal.text
    assert f"{users[0]}: stopped" in terminal.text
    assert await gone(home)

"""`runner start --all`: how many hosts start at once, and what is told of each."""

import os
import threading
from pathlib import Path
from typing import Final

import pytest
from wire.errors import Code

from runner.cli.operation import lifecycle
from runner.cli.operation.lifecycle import Launched
from runner.cli.options import Options
from runner.errors import HostError

_GUARD_S: Final = 30.0
USERS: Final = ("alice", "bob", "carol")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    file = tmp_path / "runner.toml"
    file.write_text(
        f'workspace_root = "{tmp_path}/w"\nruntime_dir = "{tmp_path}/r"\n'
        + "".join(f"[users.{user}]\n" for user in USERS)
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return Options(config_file=file, insecure=True)


async def test_as_many_hosts_start_at_once_as_there_are_cores(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three, the first two wait for each other; the third for one of them."""
    both = threading.Barrier(2, timeout=_GUARD_S)
    lock = threading.Lock()
    started: list[str] = []

    def launch(whose: Options) -> Launched:
        with lock:
            started.append(whose.user_id)
            first_two = len(started) <= 2
        if first_two:
            both.wait()
        return Launched(len(started), ["a notice"])

    monkeypatch.setattr(lifecycle, "launch", launch)
    assert await lifecycle.start_all(options, detach=True) == 0
    assert sorted(started) == list(USERS)
    first, *told = capsys.readouterr().out.splitlines()
    assert first == "starting alice, bob, carol"
    assert sorted(line.partition(":")[0] for line in told[::4]) == list(USERS)
    assert told[1::4] == ["note: a notice"] * 3


async def test_a_host_that_fails_is_named_and_the_others_start(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def launch(whose: Options) -> Launched:
        if whose.user_id == "bob":
            raise HostError(Code.FAILED_PRECONDITION, "the disk is full")
        return Launched(1, [])

    monkeypatch.setattr(lifecycle, "launch", launch)
    assert await lifecycle.start_all(options, detach=True) == 1
    out, err = capsys.readouterr()
    assert err.startswith("bob: the disk is full")
    assert out.count("running in the background, pid 1") == 2

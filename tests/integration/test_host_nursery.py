"""Hosts that are forks of a process that has imported everything, in the process tier."""

import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from wire.errors import WireError

from runner.cli.operation import lifecycle
from runner.cli.operation.launching import HostSpawner
from runner.cli.options import Options
from runner.config.loading import load_settings
from runner.host.runtime import Runtime, lock_holder
from tests.support.scratch import SCRATCH

USERS = ("alice", "bob")
_GUARD_S = 60.0


@pytest.fixture
def options() -> Iterator[Options]:

    root = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="oxn-"))
    file = root / "runner.toml"
    file.write_text(
        f'workspace_root = "{root}/w"\nruntime_dir = "{root}/r"\n'
        '[embedder]\nbackend = "none"\n[shell]\nenabled = false\n'
    )
    yield Options(config_file=file, insecure=True)
    shutil.rmtree(root, ignore_errors=True)


def of(options: Options, user_id: str) -> Options:
    return Options(config_file=options.config_file, insecure=True, user_id=user_id)


def holder(options: Options, user_id: str) -> int | None:
    """The process that is the user's host, by its lock."""
    config = load_settings(options.config_file).config
    found = lock_holder(Runtime.locate(config, user_id).lock)
    return None if found is None else found.pid


def nursery_process() -> psutil.Process:
    """A program that has just begun has no words yet."""
    deadline = time.monotonic() + _GUARD_S
    while True:
        found = [each for each in psutil.Process().children() if "--nursery-fd" in each.cmdline()]
        if found or time.monotonic() > deadline:
            (process,) = found
            return process
        time.sleep(0.01)


def shared_bytes(pid: int) -> int:
    """What a process has of its own pages that it shares with others."""
    return sum(each.shared_dirty for each in psutil.Process(pid).memory_maps())


async def test_hosts_share_memory_and_outlive_their_nursery(options: Options) -> None:
    with HostSpawner(options) as nursery:
        started = {user: nursery.launch(of(options, user)).pid for user in USERS}
        nursery_pid = nursery_process().pid
        assert nursery_process().num_threads() == 1
    assert not psutil.pid_exists(nursery_pid)
    hosts = [psutil.Process(pid) for pid in started.values()]
    try:
        for user, pid in started.items():
            assert holder(options, user) == pid
            assert os.getsid(pid) == pid
            assert shared_bytes(pid) > 8_000_000
    finally:
        for user in USERS:
            await lifecycle.stop(of(options, user))
    assert psutil.wait_procs(hosts, timeout=_GUARD_S)[1] == []


async def test_a_host_that_cannot_start_says_why_and_the_next_one_starts(
    options: Options,
) -> None:
    config = load_settings(options.config_file).config
    config.workspace_root.mkdir(mode=0o700)
    (config.workspace_root / "alice").write_text("no directory")
    with HostSpawner(options) as nursery:
        with pytest.raises(WireError) as raised:
            nursery.launch(of(options, "alice"))
        assert "alice" in f"{raised.value}"
        try:
            assert holder(options, "bob") is None
            assert nursery.launch(of(options, "bob")).pid == holder(options, "bob")
        finally:
            await lifecycle.stop(of(options, "bob"))


async def test_a_nursery_that_ends_with_a_request_in_hand_keeps_no_host_from_starting(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = socket.send_fds
    with HostSpawner(options) as nursery:
        process = nursery_process()
        process.suspend()

        def sent_to_its_end(*given: Any) -> int:
            sent = send(*given)
            process.kill()
            return sent

        monkeypatch.setattr(socket, "send_fds", sent_to_its_end)
        try:
            assert nursery.launch(of(options, "alice")).pid == holder(options, "alice")
        finally:
            await lifecycle.stop(of(options, "alice"))


async def test_without_the_nursery_a_host_starts_all_the_same(options: Options) -> None:
    with HostSpawner(options) as nursery:
        process = nursery_process()
        process.send_signal(signal.SIGKILL)
        process.wait()
        try:
            assert nursery.launch(of(options, "alice")).pid == holder(options, "alice")
        finally:
            await lifecycle.stop(of(options, "alice"))

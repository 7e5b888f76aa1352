"""`runner start --all` and `stop --all`: how many hosts start at once, what is told of each, and
that one user's failure is no other's."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from wire.errors import Code

from runner.cli.operation import lifecycle
from runner.cli.operation.launching import Launched
from runner.cli.options import Options
from runner.config.models import Config
from runner.errors import HostError
from runner.host import host as host_module

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


def spawner_of(launch: Callable[[Options], Launched]) -> Callable[[Options], object]:
    """What makes a nursery that launches so."""

    class HostSpawner:
        def __enter__(self) -> "HostSpawner":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def launch(self, options: Options) -> Launched:
            return launch(options)

    return lambda _: HostSpawner()


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

    monkeypatch.setattr(lifecycle, "HostSpawner", spawner_of(launch))
    assert await lifecycle.start_all(options, detach=True) == 0
    assert sorted(started) == list(USERS)
    first, *told = capsys.readouterr().out.splitlines()
    assert first == "starting alice, bob, carol"
    assert sorted(line.partition(":")[0] for line in told[::4]) == list(USERS)
    assert told[1::4] == ["note: a notice"] * 3


async def test_a_host_that_fails_is_named_and_the_others_start(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What mends it is told for that user and these settings."""

    def launch(whose: Options) -> Launched:
        if whose.user_id == "bob":
            raise HostError(
                Code.FAILED_PRECONDITION, "the disk is full", resolution="runner restart"
            )
        return Launched(1, [])

    monkeypatch.setattr(lifecycle, "HostSpawner", spawner_of(launch))
    assert await lifecycle.start_all(options, detach=True) == 1
    out, err = capsys.readouterr()
    assert err.startswith("bob: the disk is full")
    assert f"runner --config {options.config_file} --user bob restart" in err
    assert out.count("running in the background, pid 1") == 2


@pytest.mark.parametrize("failure", [OSError("no more processes"), RuntimeError("unheard of")])
async def test_a_failure_that_nobody_has_thought_of_ends_no_other_start(
    options: Options,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failure: Exception,
) -> None:
    def launch(whose: Options) -> Launched:
        if whose.user_id == "alice":
            raise failure
        return Launched(1, [])

    monkeypatch.setattr(lifecycle, "HostSpawner", spawner_of(launch))
    assert await lifecycle.start_all(options, detach=True) == 1
    out, err = capsys.readouterr()
    assert err == f"alice: {type(failure).__name__}: {failure}\n"
    assert out.count("running in the background, pid 1") == 2


async def test_a_host_that_cannot_be_stopped_is_named_and_the_others_are_stopped(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def connect(config: Config, user_id: str) -> Control | None:
        return {"alice": Control(works=False), "bob": Control(), "carol": None}[user_id]

    monkeypatch.setattr(lifecycle, "connect_if_running", connect)
    assert await lifecycle.stop_all(options) == 1
    out, err = capsys.readouterr()
    assert err.startswith("alice: it hangs")
    assert f"runner --config {options.config_file} --user alice logs" in err
    assert sorted(out.splitlines()) == ["bob: stopped", "carol: not running"]


async def test_a_host_that_cannot_be_restarted_is_named_and_the_others_are_restarted(
    options: Options, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    controls = {"alice": Control(works=False), "bob": Control(), "carol": None}

    async def connect(config: Config, user_id: str) -> Control | None:
        return controls[user_id]

    monkeypatch.setattr(lifecycle, "connect_if_running", connect)
    assert await lifecycle.restart_all(options, "shell") == 1
    out, err = capsys.readouterr()
    assert err.startswith("alice: it hangs")
    assert sorted(out.splitlines()) == ["bob: restarted", "carol: not running"]
    assert [found.restarted for found in controls.values() if found] == [[], ["shell"]]


def test_a_host_that_nobody_waits_for_any_more_ends_with_its_guests(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What started it was killed: the way to say that it is ready is shut."""
    hosts: list[ReadyHost] = []

    def host(*_: object, **__: object) -> ReadyHost:
        hosts.append(ReadyHost())
        return hosts[-1]

    monkeypatch.setattr(host_module, "Host", host)
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        lifecycle.run_detached(replace(options, user_id="alice"), writing)
    assert [each.stopped for each in hosts] == [True]


class ReadyHost:
    """A host whose guests are ready at once."""

    no_shell = ""

    def __init__(self) -> None:
        self.stopped = False

    def request_leave(self) -> None:
        pass

    async def start(self) -> None:
        pass

    async def all_notices(self) -> Sequence[str]:
        return ()

    async def stop(self) -> None:
        self.stopped = True


class Control:
    """The connection to a host that can be stopped, or not."""

    def __init__(self, *, works: bool = True) -> None:
        self._works = works
        self.restarted: list[str] = []

    async def __aenter__(self) -> "Control":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def stop(self) -> None:
        if not self._works:
            raise HostError(Code.UNAVAILABLE, "it hangs", resolution="runner logs")

    async def restart(self, role: str) -> None:
        await self.stop()
        self.restarted.append(role)

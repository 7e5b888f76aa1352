"""Fake gateways under a path short enough for a socket, and the command that talks to one."""

import asyncio
import io
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from wire.identity import Peer

from runner.cli import agent
from runner.cli import app as app_module
from tests.support.gateway.fake_gateway import FakeGateway
from tests.support.scratch import SCRATCH


@dataclass
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str


RunCommand = Callable[..., Done]


@pytest.fixture(autouse=True)
def time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times are local, so every machine has the same zone."""
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a path short enough for a socket in a workspace below it."""
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="cli-") as directory:
        yield Path(directory)


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    fake = FakeGateway(f"unix:{directory}/g.sock")  # type: ignore[abstract]
    await fake.start()
    yield fake
    await fake.stop()
    shutil.rmtree(directory)


@pytest.fixture
def memory() -> Iterator[FakeGateway]:
    """A gateway on a thread of its own, because commands have their own event loop."""
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    fake = FakeGateway(f"unix:{directory}/g.sock")  # type: ignore[abstract]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(fake.start(), loop).result()
    yield fake
    asyncio.run_coroutine_threadsafe(fake.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    shutil.rmtree(directory)


@pytest.fixture
def run_command(
    memory: FakeGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> RunCommand:
    """Runs `runner …`; with `typed`, on a terminal where that is typed."""
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OXYDRA_WORKSPACE_ROOT", str(tmp_path / "ws"))
    monkeypatch.setenv("COLUMNS", "600")
    monkeypatch.setattr(os, "umask", lambda _: 0)  # it would stay for the tests that come after
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def connect(*_: object) -> _Control:
        return _Control(memory)

    monkeypatch.setattr(agent, "connect_control", connect)

    def command(*words: str, stdin: bytes = b"", typed: str | None = None) -> Done:
        data = stdin if typed is None else typed.encode()
        monkeypatch.setattr(sys, "stdin", _Stdin(data, terminal=typed is not None))
        monkeypatch.setattr(sys, "argv", ["runner", *words])
        with pytest.raises(SystemExit) as raised:
            app_module.main()
        captured = capsys.readouterr()
        assert isinstance(raised.value.code, int)
        assert "Traceback" not in captured.err
        return Done(raised.value.code, captured.out, captured.err)

    return command


@pytest.fixture
def run_memory(run_command: RunCommand) -> RunCommand:
    """Runs `runner memory …` in the same way."""
    return partial(run_command, "memory")


class _NamedBytes(io.BytesIO):
    name = "<stdin>"


class _Stdin(io.TextIOWrapper):
    def __init__(self, data: bytes, *, terminal: bool) -> None:
        super().__init__(_NamedBytes(data), encoding="utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class _Control:
    def __init__(self, memory: FakeGateway) -> None:
        self._memory = memory

    async def gateway(self) -> Peer:
        return self._memory.peer

    async def close(self) -> None:
        return

    async def __aenter__(self) -> "_Control":
        return self

    async def __aexit__(self, *_: Any) -> None:
        return

"""The process tier's embedder: bad starts, bad places, its environment, its token, its pid."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from wire.errors import WireError

from runner.embedder.home import try_lock
from runner.embedder.manager import EmbedderManager, Timing
from runner.embedder.process import ProcessEmbedder
from runner.errors import WorkspaceError
from tests.integration.embedder.embedder_harness import (
    HASHING,
    QUICK,
    Settings,
    own_children,
    until,
)

Make = Callable[..., EmbedderManager]


@pytest.fixture
async def make(short_dir: Path) -> AsyncIterator[Make]:
    managers: list[EmbedderManager] = []

    def manager(settings: Settings = HASHING, timing: Timing = QUICK) -> EmbedderManager:
        managers.append(EmbedderManager(ProcessEmbedder(short_dir, settings), timing))
        return managers[-1]

    yield manager
    for each in managers:
        await each.stop()


@pytest.fixture
def home(short_dir: Path) -> ProcessEmbedder:
    return ProcessEmbedder(short_dir, Settings())


async def test_a_missing_model_is_told_and_the_runner_lives(make: Make) -> None:
    manager = make(Settings("sentence-transformers", "/nonexistent/model"))
    await manager.start()
    seen = await until(manager, "failed")
    assert seen.reason.startswith("embedding model not found: /nonexistent/model (there is no")
    assert 'embedder.backend = "hashing"' in seen.reason
    assert psutil.pid_exists(seen.pid)
    await asyncio.sleep(0.3)
    assert (await manager.status()).pid == seen.pid
    await manager.stop()
    assert not own_children()


async def test_no_embedder_is_a_setting(short_dir: Path) -> None:
    manager = EmbedderManager(ProcessEmbedder(short_dir, Settings("none")))
    await manager.start()
    seen = await manager.status()
    assert (seen.state, seen.reason) == ("disabled", 'embedder.backend = "none"')
    assert manager.link() == ("", "")
    await manager.stop()
    assert (await manager.status()).state == "disabled"
    assert list(short_dir.iterdir()) == []


async def test_one_that_dies_at_start_is_tried_again_with_growing_pauses(
    make: Make, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = short_dir / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text("import os\nprint('no luck', flush=True)\nos._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(hook))
    manager = make()
    await manager.start()
    seen = await until(manager, "backing_off", lambda seen: "next start in 0.4 s" in seen.reason)
    assert seen.reason.startswith("the embedder exited with status 3 (no luck); fix: read ")
    assert seen.pid == 0
    (hook / "sitecustomize.py").unlink()
    await until(manager, "ready")


async def test_one_that_says_why_it_cannot_start_has_failed(
    make: Make, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = short_dir / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import logging, os\n"
        "from wire import logs\n"
        "from wire.errors import Code, WireError\n"
        "logs.configure('embedder', '', 'info')\n"
        "error = WireError(Code.FAILED_PRECONDITION, 'no room', resolution='make some')\n"
        "logs.log_startup_failure(logging.getLogger('x'), error)\n"
        "os._exit(78)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hook))
    manager = make()
    await manager.start()
    assert (await until(manager, "failed")).reason.startswith("no room; fix: make some; next start")


async def test_the_embedder_gets_no_key_of_the_runner(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("HF_HUB_CACHE", "/somewhere")
    manager = make()
    await manager.start()
    seen = await until(manager, "ready")
    environment = Path(f"/proc/{seen.pid}/environ").read_bytes()
    assert b"sk-secret" not in environment
    assert b"HF_HUB_CACHE=/somewhere" in environment
    assert manager.link()[1].encode() not in environment


async def test_a_runner_waits_for_an_ending_embedder(make: Make, home: ProcessEmbedder) -> None:
    home.prepare()
    ending = try_lock(home.leases, fcntl.LOCK_EX)
    assert ending is not None
    asyncio.get_running_loop().call_later(0.2, os.close, ending)
    manager = make()
    await manager.start()
    await until(manager, "ready")


async def test_bad_places_are_refused(short_dir: Path, home: ProcessEmbedder) -> None:
    (short_dir / "elsewhere").mkdir()
    home.path.symlink_to(short_dir / "elsewhere")
    with pytest.raises(WorkspaceError, match="cannot use"):
        await EmbedderManager(ProcessEmbedder(short_dir, Settings())).start()
    home.path.unlink()
    home.path.write_text("a file")
    with pytest.raises(WorkspaceError, match="cannot use"):
        await EmbedderManager(ProcessEmbedder(short_dir, Settings())).start()
    with pytest.raises(WireError, match="socket path is too long"):
        await EmbedderManager(ProcessEmbedder(short_dir / ("d" * 90), Settings())).start()
    assert not (short_dir / ("d" * 90)).exists()


def test_the_token_is_private_stable_and_the_same_for_all(home: ProcessEmbedder) -> None:
    seen: list[str] = []
    threads = [threading.Thread(target=lambda: seen.append(home.prepare())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 16
    assert len(set(seen)) == 1
    assert len(seen[0]) >= 43
    assert (home.path / "token").stat().st_mode & 0o777 == 0o600
    assert home.path.stat().st_mode & 0o777 == 0o700
    files = {path.name for path in home.path.rglob("*") if path.is_file()}
    assert files == {"token", "leases"}


async def test_a_pid_that_is_not_the_embedders_is_never_touched(home: ProcessEmbedder) -> None:
    home.prepare()
    assert await home.pid() == 0
    innocent = subprocess.Popen(["sleep", "60"])
    try:
        lock = try_lock(home.lock, fcntl.LOCK_EX)
        assert lock is not None
        for content in (f"{innocent.pid}\n", "", "not a number", "-1", "99999999999999999999"):
            home.lock.write_text(content)
            assert home.is_running()
            assert await home.pid() == 0
            await home.signal(signal.SIGKILL)
        os.close(lock)
        with contextlib.suppress(subprocess.TimeoutExpired):
            innocent.wait(0.1)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_models_have_directories_of_their_own(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def path(backend: str, model: str) -> Path:
        return ProcessEmbedder(short_dir, Settings(backend, model)).path

    names = {
        path("sentence-transformers", "a"),
        path("sentence-transformers", "b"),
        path("hashing", "a"),
    }
    assert len(names) == 3
    assert path("hashing", "a") == path("hashing", "b")
    monkeypatch.chdir(short_dir)
    relative = ProcessEmbedder(short_dir, Settings("sentence-transformers", "./m"))
    assert relative.model == str(short_dir / "m")
    assert relative.path == path("sentence-transformers", str(short_dir / "m"))

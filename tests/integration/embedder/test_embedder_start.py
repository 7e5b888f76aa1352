"""The process tier's embedder: bad starts, bad places, its environment, its token, its pid."""

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from wire.errors import WireError

from runner.errors import WorkspaceError
from runner.host.authority import Authority
from runner.host.embedder import Embedder, EmbedderHome
from tests.support.guests.embedders import (
    HASHING,
    Place,
    Settings,
    until,
)

Make = Callable[..., Embedder]


@pytest.fixture
def place(short_dir: Path) -> Place:
    return Place("process", short_dir)


@pytest.fixture
async def make(place: Place) -> AsyncIterator[Make]:
    made: list[Embedder] = []

    def embedder(settings: Settings = HASHING, **environ: str) -> Embedder:
        made.append(place.embedder(settings, environ={**os.environ, **environ}))
        return made[-1]

    yield embedder
    for each in made:
        await each.stop()


@pytest.fixture
def home(place: Place) -> EmbedderHome:
    return place.home()


async def test_a_missing_model_is_told_and_the_runner_lives(make: Make, place: Place) -> None:
    embedder = make(Settings("sentence-transformers", "/nonexistent/model"))
    await embedder.start()
    seen = await until(embedder, "failed")
    assert seen.reason.startswith("embedding model not found: /nonexistent/model (there is no")
    assert 'embedder.backend = "hashing"' in seen.reason
    assert psutil.pid_exists(seen.pid)
    await asyncio.sleep(0.3)
    assert (await embedder.status()).pid == seen.pid
    await embedder.stop()
    assert not place.children()


async def test_no_embedder_is_a_setting(make: Make, short_dir: Path) -> None:
    embedder = make(Settings("none"))
    await embedder.start()
    seen = await embedder.status()
    assert (seen.state, seen.reason) == ("disabled", 'embedder.backend = "none"')
    assert (embedder.link().endpoint, embedder.link().token) == ("", "")
    await embedder.stop()
    assert (await embedder.status()).state == "disabled"
    assert list(short_dir.iterdir()) == []


async def test_one_that_dies_at_start_is_tried_again_with_growing_pauses(
    make: Make, short_dir: Path
) -> None:
    hook = short_dir / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text("import os\nprint('no luck', flush=True)\nos._exit(3)\n")
    embedder = make(PYTHONPATH=str(hook))
    await embedder.start()
    seen = await until(embedder, "backing_off", lambda seen: "next start in 0.4 s" in seen.reason)
    assert seen.reason.startswith(
        "the embedder guest exited with status 3 before it was ready (no luck); next start in"
    )
    assert seen.pid == 0
    (hook / "sitecustomize.py").unlink()
    await until(embedder, "ready")


async def test_one_that_says_why_it_cannot_start_has_failed(make: Make, short_dir: Path) -> None:
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
    embedder = make(PYTHONPATH=str(hook))
    await embedder.start()
    assert (await until(embedder, "failed")).reason.startswith(
        "no room; fix: make some; next start"
    )


async def test_the_embedder_gets_no_key_of_the_runner(make: Make) -> None:
    embedder = make(OPENAI_API_KEY="sk-secret", HF_HUB_CACHE="/somewhere")
    await embedder.start()
    seen = await until(embedder, "ready")
    environment = Path(f"/proc/{seen.pid}/environ").read_bytes()
    assert b"sk-secret" not in environment
    assert b"HF_HUB_CACHE=/somewhere" in environment
    assert embedder.link().token.encode() not in environment


async def test_a_runner_waits_for_an_ending_embedder(make: Make, home: EmbedderHome) -> None:
    home.prepare()
    ending = os.open(home.leases, os.O_RDWR)
    fcntl.flock(ending, fcntl.LOCK_EX)
    asyncio.get_running_loop().call_later(0.2, os.close, ending)
    embedder = make()
    await embedder.start()
    await until(embedder, "ready")


async def test_bad_places_are_refused(make: Make, short_dir: Path, home: EmbedderHome) -> None:
    (short_dir / "elsewhere").mkdir()
    home.path.symlink_to(short_dir / "elsewhere")
    with pytest.raises(WorkspaceError, match="cannot use"):
        await make().start()
    home.path.unlink()
    home.path.write_text("a file")
    with pytest.raises(WorkspaceError, match="cannot use"):
        await make().start()
    with pytest.raises(WireError, match="socket path is too long"):
        _ = Place("process", short_dir / ("d" * 90)).home().endpoint


def test_the_token_is_private_stable_and_the_same_for_all(home: EmbedderHome) -> None:
    prepared: list[tuple[str, Authority]] = []
    threads = [threading.Thread(target=lambda: prepared.append(home.prepare())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = [token for token, _ in prepared]
    assert len(seen) == 16
    assert len(set(seen)) == 1
    assert len({authority.to_pem() for _, authority in prepared}) == 1
    assert (home.path / "authority.pem").stat().st_mode & 0o777 == 0o600
    assert len(seen[0]) >= 43
    assert (home.path / "token").stat().st_mode & 0o777 == 0o600
    assert home.path.stat().st_mode & 0o777 == 0o700
    files = {path.name for path in home.path.rglob("*") if path.is_file()}
    assert files == {"token", "authority.pem", "leases"}


def test_models_have_directories_of_their_own(
    place: Place, short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def path(backend: str, model: str) -> Path:
        return place.home(Settings(backend, model)).path

    names = {
        path("sentence-transformers", "a"),
        path("sentence-transformers", "b"),
        path("hashing", "a"),
    }
    assert len(names) == 3
    assert path("hashing", "a") == path("hashing", "b")
    monkeypatch.chdir(short_dir)
    relative = place.home(Settings("sentence-transformers", "./m"))
    assert relative.model == str(short_dir / "m")
    assert relative.path == path("sentence-transformers", str(short_dir / "m"))

"""Traps of another account: places, settings, databases and engines that are not ours alone.
Nothing is taken on whose way another account could put something else."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire.errors import WireError

from runner.config.models import Config
from runner.config.trust import writable_by_others
from runner.errors import ConfigError
from runner.host.runtime import Runtime, runtime_base
from runner.tiers.container.engine import find_socket
from runner.workspace.database_file import adopt_old_database, resolve_db_path
from runner.workspace.workspace import Workspace
from tests.support.attempts import attempt
from tests.support.scratch import SCRATCH
from tests.support.settings import load_config

STRANGER = 12_345

pytestmark = pytest.mark.root


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory with a short path, as sockets need it."""
    made = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="tr-"))
    yield made
    shutil.rmtree(made)


def given(path: Path) -> Path:
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    return path


def _directory_of_another(home: Path) -> Path:
    (home / "theirs").mkdir()
    return given(home / "theirs") / "ws"


def _directory_of_all(home: Path) -> Path:
    (home / "open").mkdir()
    (home / "open").chmod(0o777)
    return home / "open" / "ws"


def _link_of_another(home: Path) -> Path:
    """In a place like /tmp, where the name was free."""
    (home / "shared").mkdir()
    (home / "shared").chmod(0o1777)
    (home / "ours").mkdir()
    link = home / "shared" / "link"
    link.symlink_to(home / "ours")
    return given(link) / "ws"


def _link_that_leads_to_another(home: Path) -> Path:
    (home / "theirs" / "inner").mkdir(parents=True)
    given(home / "theirs")
    (home / "link").symlink_to("theirs/../theirs/inner")
    return home / "link" / "ws"


def _links_without_end(home: Path) -> Path:
    (home / "link").symlink_to("link")
    return home / "link" / "ws"


OTHERS = f"uid {STRANGER}"
REFUSED = "every directory and link on the way must be ours or root's"
WAYS = [
    attempt(
        "another account: a workspace below a directory of theirs",
        *(_directory_of_another, OTHERS),
        stopped_by=REFUSED,
    ),
    attempt(
        "another account: a workspace below a directory that all may write in",
        *(_directory_of_all, "every account"),
        stopped_by="without the sticky bit such a directory is refused",
    ),
    attempt(
        "another account: a link of theirs on the way to a workspace",
        *(_link_of_another, OTHERS),
        stopped_by=REFUSED,
    ),
    attempt(
        "another account: a directory of theirs behind a link of ours",
        *(_link_that_leads_to_another, OTHERS),
        stopped_by=REFUSED,
    ),
    attempt(
        "another account: links that lead in a circle",
        *(_links_without_end, "40 links"),
        stopped_by="the way is followed over 40 links",
    ),
]
Made = Callable[[Path], Path]


@pytest.mark.parametrize(("make", "why"), WAYS)
def test_a_place_that_another_account_could_replace_is_refused(
    short: Path, make: Made, why: str
) -> None:
    place = make(short)
    before = sorted(short.rglob("*"))
    config = Config(workspace_root=place, runtime_dir=place)
    for step in (
        Workspace.locate(config, "alice").provision,
        Runtime.locate(config, "alice").create,
    ):
        with pytest.raises(WireError) as raised:
            step()
        assert why in raised.value.details
        assert raised.value.resolution
    assert sorted(short.rglob("*")) == before


def test_places_of_ours_of_root_and_of_who_called_sudo_are_taken(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    (tmp_path / "shared" / "ours").mkdir()
    (tmp_path / "link").symlink_to("shared")
    assert writable_by_others(tmp_path / "link" / "ours" / "to" / "come", {}) == ""
    theirs = _directory_of_another(tmp_path)
    assert writable_by_others(theirs, {"SUDO_UID": str(STRANGER)}) == ""
    assert writable_by_others(theirs, {"SUDO_UID": "1"}) != ""


SETTINGS = [
    attempt(
        "another account: an old configuration of ours under the name of the new",
        "hard link",
        stopped_by=REFUSED,
    ),
    attempt("another account: a link to an old configuration of ours", "link", stopped_by=REFUSED),
]


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings_of_ours_in_a_directory_of_another_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The attack: a file of the operator's, put where the operator is asked to come and look."""
    (tmp_path / "old.toml").write_text('log_level = "debug"')
    trap = _directory_of_another(tmp_path).parent
    if kind == "hard link":
        (trap / "runner.toml").hardlink_to(tmp_path / "old.toml")
    else:
        (trap / "runner.toml").symlink_to(tmp_path / "old.toml")
    monkeypatch.chdir(trap)
    with pytest.raises(ConfigError, match="is not used") as raised:
        load_config(environ={})
    assert f"uid {STRANGER}" in raised.value.details
    assert load_config(trap / "runner.toml", environ={}).log_level == "debug"


@pytest.mark.attempt(
    "another account: a link in the place of an old memory beside its directory", stopped_by=REFUSED
)
def test_a_database_of_ours_in_a_directory_of_another_is_left_alone(tmp_path: Path) -> None:
    """The attack: `.oxydra` as a link to where another memory of ours lies."""
    (tmp_path / "mine").mkdir()
    kept = tmp_path / "mine" / "memory.db"
    kept.write_bytes(b"remembered")
    trap = _directory_of_another(tmp_path).parent
    (trap / ".oxydra").symlink_to(tmp_path / "mine")
    workspace = Workspace(tmp_path / "ws", "alice")
    workspace.provision()
    notice = adopt_old_database(workspace.internal / "memory.db", trap, workspace.user_id)
    assert notice is not None
    assert f"uid {STRANGER}" in notice
    assert kept.read_bytes() == b"remembered"
    assert list(workspace.internal.iterdir()) == []


@pytest.mark.attempt(
    "another account: a memory that is configured to lie in a directory of theirs",
    stopped_by=REFUSED,
)
def test_a_database_where_another_could_replace_it_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "ws", "alice")
    workspace.provision()
    theirs = _directory_of_another(tmp_path).parent / "memory.db"
    with pytest.raises(ConfigError, match=r"memory\.db_path") as raised:
        resolve_db_path(str(theirs), workspace, mounted_only=False)
    assert f"uid {STRANGER}" in raised.value.details


@pytest.mark.attempt(
    "another account: the runtime directory of their session after su",
    stopped_by="a directory of the own account is taken, where no other can make names",
)
def test_after_su_the_runtime_directory_is_not_the_other_accounts(
    short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short / "home").mkdir()
    session = _directory_of_another(short).parent
    monkeypatch.setenv("HOME", str(short / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    at_home = short / "home/.local/state/oxydra/run"
    assert runtime_base(Config()) in (at_home, Path(f"/run/user/{os.geteuid()}/oxydra"))


@pytest.mark.attempt(
    "another account: the engine of their session after su",
    stopped_by="a socket that is not ours or root's is not called",
)
def test_after_su_the_engine_is_not_the_other_accounts(tmp_path: Path) -> None:
    """An engine gets every envelope, with all keys."""
    session = _directory_of_another(tmp_path).parent
    (session / "podman").mkdir()
    (session / "podman" / "podman.sock").touch()
    given(session / "podman" / "podman.sock")
    environ = {"XDG_RUNTIME_DIR": str(session)}
    sockets = (str(tmp_path / "docker.sock"), "{runtime}/podman/podman.sock")
    assert find_socket("auto", environ, sockets) == tmp_path / "docker.sock"

"""Where a database may lie, and the one move from the old place to the new one."""

import contextlib
import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from guest.memory.factory import open_store
from guest.memory.memory import Memory
from runner.errors import ConfigError, WorkspaceError
from runner.workspace.database_file import adopt_old_database, prepare_parent, resolve_db_path
from runner.workspace.workspace import Workspace
from tests.support.memory.store import ORIGIN
from tests.support.settings import memory_config


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path / "ws", "alice")
    made.provision()
    return made


def resolve(setting: str, workspace: Workspace, *, mounted_only: bool = False) -> Path:
    return resolve_db_path(setting, workspace, mounted_only=mounted_only)


@pytest.mark.parametrize(
    ("setting", "inside"),
    [
        ("auto", ".oxydra/memory.db"),
        (".oxydra/other.db", ".oxydra/other.db"),
        ("./.oxydra/../.oxydra/m.db", ".oxydra/m.db"),
        ("memory.db", "memory.db"),
        (".oxydra/deep/er/m.db", ".oxydra/deep/er/m.db"),
        (":memory:", ":memory:"),
    ],
)
def test_relative_paths_count_from_the_workspace(
    workspace: Workspace, setting: str, inside: str
) -> None:
    path = resolve(setting, workspace)
    assert path == workspace.path / inside
    prepare_parent(path, workspace)
    assert path.parent.is_dir()


def test_no_directory_is_made_through_a_link_that_the_guest_has_put_there(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.provision()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (workspace.internal / "sub").symlink_to(elsewhere)
    with pytest.raises(WorkspaceError, match="cannot use"):
        prepare_parent(workspace.internal / "sub" / "deep" / "memory.db", workspace)
    assert list(elsewhere.iterdir()) == []


def test_a_copy_of_the_old_database_is_not_written_through_a_planted_link(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.provision()
    old = tmp_path / ".oxydra" / "memory.db"
    old.parent.mkdir()
    with contextlib.closing(sqlite3.connect(old)) as database:
        database.execute("CREATE TABLE t (x)")
    remembered = old.read_bytes()
    precious = tmp_path / "precious"
    precious.write_text("of the host")
    (workspace.internal / "memory.db.moving").symlink_to(precious)

    def another_disk(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(Path, "hardlink_to", another_disk)
    adopt_old_database(workspace.internal / "memory.db", tmp_path, "alice")
    assert precious.read_text() == "of the host"
    assert (workspace.internal / "memory.db").read_bytes() == remembered


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("shared/m.db", "shared/ is visible"),
        ("tmp/m.db", "tmp/ is visible"),
        ("vault/m.db", "vault/ is visible"),
        ("ipc/m.db", "ipc/ is visible"),
        ("logs/agent/m.db", "logs/ is visible"),
        (".oxydra/../shared/m.db", "shared/ is visible"),
        ("{ws}/alice/shared/m.db", "shared/ is visible"),
        ("../bob/.oxydra/m.db", "other users"),
        ("{ws}/bob/m.db", "other users"),
        ("../../m.db", "must stay inside"),
        (".oxydra", "is a directory"),
        (".oxydra/new/", "is a directory"),
        ("{ws}/alice/../../none/m.db", "there is no directory"),
        (".oxydra/way-out/m.db", "shared/ is visible"),
        (".oxydra/way-home/m.db", "must stay inside"),
        (".oxydra/" + "x" * 300, "File name too long"),
    ],
)
def test_places_that_others_see_are_refused(workspace: Workspace, setting: str, why: str) -> None:
    (workspace.internal / "way-out").symlink_to("../shared")
    (workspace.internal / "way-home").symlink_to("/var")
    setting = setting.format(ws=workspace.root)
    with pytest.raises(ConfigError) as raised:
        resolve(setting, workspace)
    assert repr(setting) in raised.value.brief
    assert why in raised.value.details


def test_an_absolute_path_is_for_tiers_that_can_see_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    setting = str(tmp_path / "m.db")
    assert resolve(setting, workspace) == tmp_path / "m.db"
    with pytest.raises(ConfigError) as raised:
        resolve(setting, workspace, mounted_only=True)
    assert "must be relative" in raised.value.details


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database at the old place whose last commit is only in its log."""
    path = tmp_path / "cwd" / ".oxydra" / "memory.db"
    path.parent.mkdir(parents=True)
    script = (
        "import sqlite3, os, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA journal_mode=WAL')\n"
        "db.execute('CREATE TABLE t (x)')\n"
        "db.execute(\"INSERT INTO t VALUES ('kept')\")\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    assert (path.parent / "memory.db-wal").stat().st_size > 0
    return path


def rows(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    try:
        return [row[0] for row in db.execute("SELECT x FROM t")]
    finally:
        db.close()


def adopt(old: Path, workspace: Workspace) -> str | None:
    new = workspace.internal / "memory.db"
    return adopt_old_database(new, old.parent.parent, workspace.user_id)


def copies_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)


@pytest.mark.parametrize("way", ["link", "copy"])
def test_the_old_database_moves_once_with_its_log(
    old: Path, workspace: Workspace, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "copy":
        copies_only(monkeypatch)
    notice = adopt(old, workspace)
    new = workspace.internal / "memory.db"
    assert notice == f"the memory database was moved from {old} to {new}"
    assert not old.parent.exists()
    assert {path.name for path in workspace.internal.iterdir()} == {"memory.db", "memory.db-wal"}
    assert rows(new) == ["kept"]
    assert adopt(old, workspace) is None


def test_what_else_lies_at_the_old_place_stays(old: Path, workspace: Workspace) -> None:
    (old.parent / "notes.txt").write_text("mine")
    adopt(old, workspace)
    assert [path.name for path in old.parent.iterdir()] == ["notes.txt"]


def test_a_database_at_the_new_place_is_never_replaced(old: Path, workspace: Workspace) -> None:
    new = workspace.internal / "memory.db"
    new.write_bytes(b"new")
    notice = adopt(old, workspace)
    assert notice is not None
    assert "still lies at" in notice
    assert new.read_bytes() == b"new"
    assert rows(old) == ["kept"]


@pytest.mark.parametrize("way", ["link", "copy"])
@pytest.mark.parametrize("moment", range(12))
def test_a_crash_in_the_middle_loses_nothing(
    old: Path, workspace: Workspace, way: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop at the n-th change to the disk, then start again."""

    class Crash(BaseException):
        pass

    left = moment

    def crashing(real: Callable[..., object]) -> Callable[..., object]:
        def step(self: Path, *args: object, **kwargs: object) -> object:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return real(self, *args, **kwargs)

        return step

    if way == "copy":
        copies_only(monkeypatch)
    with monkeypatch.context() as patched:
        for name in ("hardlink_to", "unlink", "replace", "rmdir"):
            patched.setattr(Path, name, crashing(getattr(Path, name)))
        with contextlib.suppress(Crash):
            adopt(old, workspace)
    new = workspace.internal / "memory.db"
    assert adopt(old, workspace) is None or new.exists()
    assert rows(new) == ["kept"]


def test_a_stale_log_at_the_new_place_is_not_replayed(old: Path, workspace: Workspace) -> None:
    subprocess.run(["cp", f"{old}-wal", str(workspace.internal / "memory.db-wal")], check=True)
    db = sqlite3.connect(old)
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("DELETE FROM t")
    db.commit()
    db.close()
    adopt(old, workspace)
    assert rows(workspace.internal / "memory.db") == []


@pytest.mark.parametrize("kind", ["sqlite", "lock file"])
def test_an_old_database_in_use_is_refused_and_left(
    old: Path, workspace: Workspace, kind: str
) -> None:
    hold = {
        "sqlite": "import sqlite3; db = sqlite3.connect(path); db.execute('SELECT * FROM t')",
        "lock file": "import fcntl; f = open(path + '.lock', 'a'); fcntl.flock(f, fcntl.LOCK_EX)",
    }[kind]
    script = f"import sys; path = sys.argv[1]\n{hold}\nprint('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(old)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(WorkspaceError, match="is in use"):
            adopt(old, workspace)
        assert list(workspace.internal.iterdir()) == []
    finally:
        holder.communicate()
    assert rows(old) == ["kept"]
    assert adopt(old, workspace) is not None


@pytest.mark.parametrize(
    "kind", [pytest.param("foreign", marks=pytest.mark.root), "link", "directory"]
)
def test_an_old_place_that_is_not_ours_is_left_alone(
    old: Path, workspace: Workspace, tmp_path: Path, kind: str
) -> None:
    if kind == "foreign":
        os.chown(old, 12345, -1)
    else:
        old.rename(tmp_path / "real.db")
        if kind == "link":
            old.symlink_to(tmp_path / "real.db")
        else:
            old.mkdir()
    notice = adopt(old, workspace)
    assert notice is not None
    assert "was left alone" in notice
    assert old.exists()
    assert list(workspace.internal.iterdir()) == []


@pytest.mark.parametrize("directory", ["shared", "tmp/deep/er"])
def test_a_database_that_a_command_has_planted_is_left_alone(
    workspace: Workspace, directory: str
) -> None:
    planted = workspace.path / directory / ".oxydra" / "memory.db"
    planted.parent.mkdir(parents=True)
    planted.write_bytes(b"believe me")
    notice = adopt(planted, workspace)
    assert notice == (
        f"a database at {planted} was left alone: agents can write in {workspace.path}"
    )
    assert planted.exists()
    assert list(workspace.internal.iterdir()) == []


def test_a_path_to_a_workspace_of_another_root_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    other = Workspace(tmp_path / "others", "bob")
    other.provision()
    with pytest.raises(ConfigError, match="workspace of another agent"):
        resolve(str(other.path / "shared" / "m.db"), workspace)


@pytest.mark.root
def test_a_file_of_another_account_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "m.db").touch()
    os.chown(tmp_path / "m.db", 12345, -1)
    with pytest.raises(ConfigError, match="uid 12345"):
        resolve(str(tmp_path / "m.db"), workspace)


async def an_old_memory(path: Path, *users: str) -> None:
    """A memory with a note of each of these users."""
    path.parent.mkdir(parents=True)
    store = await open_store(memory_config(path), None)
    for user in users:
        await Memory(store, user).save(f"what {user} knows", [], ORIGIN)
    await store.close()


@pytest.mark.parametrize(
    ("owners", "why", "heir"),
    [
        (["typed"], "the memory of user typed, who gets it by a start from the same directory", ""),
        (["alice", "typed"], "the memories of users alice, typed. If user alice is to", "alice"),
        (["bob", "typed"], "the memories of users bob, typed. If user bob is to", "bob"),
    ],
)
async def test_an_old_memory_of_somebody_else_is_left_to_them(
    workspace: Workspace, tmp_path: Path, owners: list[str], why: str, heir: str
) -> None:
    old = tmp_path / "my cwd" / ".oxydra" / "memory.db"
    await an_old_memory(old, *owners)
    before = old.read_bytes()
    notice = adopt(old, workspace)
    assert notice is not None
    assert why in notice
    moved = f"runner --user {heir} stop, then mv -b '{old}'* {workspace.root / heir}/.oxydra/"
    assert (moved in notice) == bool(heir)
    assert ("then mv" in notice) == bool(heir)
    assert old.read_bytes() == before
    assert list(workspace.internal.iterdir()) == []
    if owners == ["typed"]:
        theirs = Workspace(workspace.root, "typed")
        theirs.provision()
        assert "was moved" in str(adopt(old, theirs))


async def test_an_old_memory_of_this_user_or_of_nobody_is_moved(
    workspace: Workspace, tmp_path: Path
) -> None:
    for number, owners in enumerate((["alice"], [])):
        old = tmp_path / str(number) / ".oxydra" / "memory.db"
        await an_old_memory(old, *owners)
        assert "was moved" in str(adopt(old, workspace))
        (workspace.internal / "memory.db").unlink()


def test_an_old_file_of_which_nobody_knows_whose_it_is_is_left(
    workspace: Workspace, tmp_path: Path
) -> None:
    old = tmp_path / "cwd" / ".oxydra" / "memory.db"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"encrypted, or of another program" * 100)
    notice = adopt(old, workspace)
    assert notice is not None
    assert "whose it is cannot be read (file is not a database)" in notice
    assert old.exists()
    assert list(workspace.internal.iterdir()) == []


def test_a_workspace_that_is_the_working_directory_needs_no_move(workspace: Workspace) -> None:
    new = workspace.internal / "memory.db"
    new.write_bytes(b"here")
    assert adopt_old_database(new, workspace.path, "alice") is None
    assert new.read_bytes() == b"here"


def test_nothing_at_the_old_place_is_nothing_to_say(tmp_path: Path, workspace: Workspace) -> None:
    assert adopt_old_database(workspace.internal / "memory.db", tmp_path, "alice") is None

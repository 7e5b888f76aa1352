"""Whose a workspace is, and what root does to make it so."""

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wire.disk import walk
from wire.settings import ContainerSettings

from runner.config.models import Config
from runner.errors import WorkspaceError
from runner.host.embedder import EmbedderHome
from runner.workspace.directories import Owner, descriptor
from runner.workspace.guest_uids import GuestUids
from runner.workspace.workspace import Workspace

FIRST = 1_210_777_000
"""Far from what accounts of any machine have."""
UIDS = GuestUids(FIRST, 100)
CONTAINER = ContainerSettings(guest_uid=FIRST, guest_uid_count=100)


def located(root: Path, tier: str = "container", user_id: str = "alice") -> Workspace:
    config = Config.model_validate({"workspace_root": root, "tier": tier, "container": CONTAINER})
    return Workspace.locate(config, user_id)


def started(workspace: Workspace) -> list[str]:
    """The notices of a start."""
    with workspace.held():
        return [*workspace.settle(), *workspace.adopt()]


def owners(workspace: Workspace) -> set[int]:
    return {path.lstat().st_uid for path in workspace.path.rglob("*")}


def given(path: Path, uid: int) -> None:
    """Everything at and below `path` belongs to `uid`, as another version may have left it."""
    subprocess.run(["chown", "-R", f"{uid}:{uid}", path], check=True)


def test_an_ordinary_user_owns_workspaces_in_every_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getegid", lambda: 99)
    for tier in ("process", "container", "micro_vm"):
        config = Config.model_validate({"tier": tier})
        owner = Owner(1234, 99, frozenset({1234}))
        assert Workspace.locate(config, "alice").owner == owner
        assert EmbedderHome.locate(config, Path("/r")).owner == owner


def test_roots_guests_are_never_root_in_a_tier_of_containers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    workspace = Workspace.locate(Config(container=CONTAINER), "alice")
    assert workspace.uids == UIDS
    assert 0 not in UIDS.users
    config = Config(container=CONTAINER)
    home = EmbedderHome.locate(config, Path("/r"))
    assert home.owner == Owner(FIRST, FIRST, UIDS)
    assert home.for_all_uids
    assert home.owner.uid not in UIDS.users
    process = EmbedderHome.locate(config.model_copy(update={"tier": "process"}), Path("/r"))
    assert process.owner == Owner(0, 0, UIDS)
    assert not process.for_all_uids


@pytest.mark.root
def test_tiers_may_take_turns_and_a_user_keeps_the_uid(tmp_path: Path) -> None:
    seen = set()
    for tier in ("container", "process") * 2:
        workspace = located(tmp_path / "w", tier)
        assert started(workspace) == []
        made = workspace.path / "shared" / f"by-{tier}"
        made.write_text("x")
        (workspace.internal / "memory.db").write_text("x")
        started(workspace)
        assert owners(workspace) == {workspace.owner.uid} == {workspace.owner.gid}
        assert workspace.path.stat().st_uid == 0  # or bubblewrap could not enter it
        seen.add(workspace.owner.uid)
        started(located(tmp_path / "w", user_id="bob"))  # what alice has is not free for bob
    assert len(seen) == 2
    assert 0 in seen
    assert (tmp_path / "w").stat().st_uid == 0


@pytest.mark.root
def test_a_workspace_without_a_uid_starts_no_guest(tmp_path: Path) -> None:
    workspace = located(tmp_path / "w")
    with workspace.held(), pytest.raises(WorkspaceError, match="have no uid"):
        workspace.provision()
    assert workspace.path.stat().st_uid == 0


@pytest.mark.root
def test_a_workspace_that_all_users_shared_the_uid_of_is_moved_over(tmp_path: Path) -> None:
    for user_id in ("alice", "bob"):
        workspace = located(tmp_path / "w", user_id=user_id)
        started(workspace)
        (workspace.path / "shared" / "old").write_text("kept")
        (workspace.path / "shared" / "second").hardlink_to(workspace.path / "shared" / "old")
        given(workspace.path, FIRST)
    moved = [located(tmp_path / "w", user_id=user_id) for user_id in ("alice", "bob")]
    for workspace in moved:
        (notice,) = started(workspace)
        assert f"belonged to uid {FIRST}, which all users shared" in notice
        assert owners(workspace) == {workspace.owner.uid}
        assert (workspace.path / "shared" / "old").read_text() == "kept"
        assert started(workspace) == []
    assert len({workspace.owner.uid for workspace in moved}) == 2


_START = """
import os, signal, sys
from pathlib import Path
from runner.config.models import Config
from runner.workspace.workspace import Workspace

left = int(sys.argv[3])

def hook(event, arguments):
    global left
    if event == "os.chown":
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
config = Config.model_validate({"workspace_root": sys.argv[1], "container": {
    "guest_uid": int(sys.argv[2]), "guest_uid_count": 100}})
workspace = Workspace.locate(config, "alice")
with workspace.held():
    workspace.settle()
    workspace.adopt()
"""


@pytest.mark.root
def test_a_move_that_is_killed_at_any_step_is_finished_by_the_next_start(tmp_path: Path) -> None:
    workspace = located(tmp_path / "w")
    started(workspace)
    for number in range(8):
        (workspace.path / "shared" / f"file-{number}").write_text("kept")
    given(workspace.path, FIRST)
    seen = set()
    for steps in (0, 1, 2, 5, 3, 4):
        command = [sys.executable, "-c", _START, str(tmp_path / "w"), str(FIRST), str(steps)]
        assert subprocess.run(command).returncode == -9
        seen.add(workspace.path.stat().st_gid)
        assert FIRST in owners(workspace)
    assert started(workspace) == []
    assert seen == {FIRST, workspace.owner.uid}
    assert owners(workspace) == {workspace.owner.uid}


@pytest.mark.root
def test_nothing_moves_while_another_runner_holds_the_workspace(tmp_path: Path) -> None:
    workspace = located(tmp_path / "w")
    started(workspace)
    given(workspace.path, FIRST)
    with workspace.held(), pytest.raises(Exception, match="another runner serves"):
        started(located(tmp_path / "w"))
    assert workspace.path.stat().st_gid == FIRST
    assert owners(workspace) == {FIRST}


@pytest.mark.root
def test_adopting_follows_no_link_and_takes_nothing_from_strangers(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    workspace = located(tmp_path / "w")
    started(workspace)
    shared = workspace.path / "shared"
    (shared / "link").symlink_to(outside)
    (shared / "directory").symlink_to(tmp_path)
    (shared / "second-name").hardlink_to(outside)
    foreign = shared / "foreign\n"
    foreign.write_text("x")
    os.chown(foreign, 4711, 4711)
    (notice,) = started(workspace)
    assert outside.stat().st_uid == 0
    assert tmp_path.stat().st_uid == 0
    assert foreign.stat().st_uid == 4711
    assert notice.startswith(f"2 entries of {workspace.path} were left to their owners: ")
    assert "shared/foreign\\n (uid 4711)" in notice
    assert "shared/second-name (it has another name elsewhere)" in notice


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Mounts a directory of root's from outside, which it returns, at a place."""
    points = list[Path]()

    def mount(point: Path) -> Path:
        outside = tmp_path / f"outside-{len(points)}"
        outside.mkdir(mode=0o755)
        (outside / "precious").write_text("x")
        point.mkdir(exist_ok=True)
        outside.chmod(0o755)  # other tests of this process may have changed its umask
        subprocess.run(["mount", "--bind", outside, point], check=True)
        points.append(point)
        return outside

    yield mount
    for point in points:
        subprocess.run(["umount", "--lazy", point], check=True)


@pytest.mark.root
def test_what_is_mounted_in_a_workspace_is_left_alone(
    tmp_path: Path, mounted: Callable[[Path], Path]
) -> None:
    workspace = located(tmp_path / "w")
    started(workspace)
    outside = mounted(workspace.path / "shared" / "data")
    file = workspace.path / "shared" / "file"
    file.write_text("")
    subprocess.run(["mount", "--bind", outside / "precious", file], check=True)
    try:
        (notice,) = started(workspace)
    finally:
        subprocess.run(["umount", file], check=True)
    assert (outside.stat().st_uid, outside.stat().st_mode & 0o777) == (0, 0o755)
    assert (outside / "precious").stat().st_uid == 0
    assert notice.startswith("3 entries of ")
    assert "shared/data/precious (another mount)" in notice
    assert "shared/file (another mount)" in notice


@pytest.mark.root
def test_a_mount_in_the_place_of_a_directory_is_used_only_as_it_is(
    tmp_path: Path, mounted: Callable[[Path], Path]
) -> None:
    workspace = located(tmp_path / "w")
    started(workspace)
    outside = mounted(workspace.path / "shared")
    with pytest.raises(WorkspaceError, match="cannot use") as raised:
        started(workspace)
    assert "mounted" in raised.value.details
    assert (outside.stat().st_uid, outside.stat().st_mode & 0o777) == (0, 0o755)
    mending = raised.value.resolution.split("or: ")[1]
    subprocess.run(["/bin/sh", "-c", mending], check=True)
    (notice,) = started(workspace)
    assert "shared/precious (another mount)" in notice


@pytest.mark.root
def test_a_directory_of_a_strangers_is_refused(tmp_path: Path) -> None:
    workspace = located(tmp_path / "w")
    started(workspace)
    os.chown(workspace.path / "shared", 4711, 4711)
    with pytest.raises(WorkspaceError, match="cannot use") as raised:
        workspace.provision()
    assert "uid 4711" in raised.value.details
    assert f"container.guest_uid = {FIRST}" in raised.value.details
    assert raised.value.resolution.endswith(f"chown -R 0:0 {workspace.path}")


@pytest.mark.root
def test_another_range_takes_over_what_is_given_to_root(tmp_path: Path) -> None:
    started(located(tmp_path / "w"))
    container = ContainerSettings(guest_uid=FIRST + 1000, guest_uid_count=100)
    other = Workspace.locate(Config(workspace_root=tmp_path / "w", container=container), "alice")
    with pytest.raises(WorkspaceError, match="cannot use") as raised:
        other.check()
    subprocess.run(["/bin/sh", "-c", raised.value.resolution.split("or: ")[1]], check=True)
    started(other)
    assert owners(other) == {other.owner.uid}
    assert other.owner.uid > FIRST + 1000


@pytest.mark.root
def test_a_tree_of_any_depth_is_adopted_to_its_end(tmp_path: Path) -> None:
    workspace = located(tmp_path / "w")
    started(workspace)
    here = os.open(workspace.path / "shared", os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    (workspace.path / "shared" / "z").write_text("beside it")
    try:
        workspace.adopt()
        assert os.fstat(here).st_uid == workspace.owner.uid
        assert (workspace.path / "shared" / "z").stat().st_uid == workspace.owner.uid
    finally:
        os.close(here)
        subprocess.run(["rm", "-rf", workspace.path / "shared"], check=True)


@pytest.mark.root
def test_what_is_linked_deep_below_takes_no_memory(tmp_path: Path) -> None:
    """Of each such file a path is remembered, which a command can make as long as it likes."""
    workspace = located(tmp_path / "w")
    started(workspace)
    shared = workspace.path / "shared"
    here = os.open(shared, os.O_RDONLY)
    outside = os.open(tmp_path, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 255, dir_fd=here)
        below = os.open("d" * 255, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    for number in range(1_000):
        os.close(os.open(f"{number}", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.link(f"{number}", f"{number}", src_dir_fd=here, dst_dir_fd=outside)
    tracemalloc.start()
    try:
        (notice,) = workspace.adopt()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        os.close(here)
        os.close(outside)
        subprocess.run(["rm", "-rf", shared], check=True)
    assert peak < 5_000_000
    assert "1,000 entries" in notice
    assert len(notice) < 10_000


def test_a_walk_goes_nowhere_else_when_a_directory_is_moved(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere" / "precious").mkdir(parents=True)
    found = []
    with descriptor(tmp_path / "tree", os.O_RDONLY | os.O_DIRECTORY) as start:
        for entry in walk(start):
            found.append(entry.name)
            if entry.name == "b":
                (tmp_path / "tree" / "a" / "b").rename(tmp_path / "elsewhere" / "b")
                (tmp_path / "elsewhere" / "b" / "c").mkdir()
    assert "precious" not in found

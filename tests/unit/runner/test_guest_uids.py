"""Which uid the guests of each user get, where the runner is root."""

import fcntl
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from wire.settings import ContainerSettings

from runner.errors import WorkspaceError
from runner.workspace import guest_uids
from runner.workspace.guest_uids import GuestUids, Machine, assign, look

FIRST = 1_210_778_000
UIDS = GuestUids(FIRST, 4)


def nobody(uid: int) -> str:
    return ""


def workspaces(root: Path, **recorded: int) -> Path:
    for user_id, uid in recorded.items():
        (root / user_id).mkdir()
        os.chown(root / user_id, -1, uid)
    return root


def test_the_first_uid_is_the_embedders_and_the_others_are_for_users() -> None:
    uids = GuestUids.of(ContainerSettings())
    assert uids.embedder == 10_001
    assert (uids.users[0], uids.users[-1]) == (10_002, 20_000)
    assert [uid in uids for uid in (0, 1, 10_000, 10_001, 20_000, 20_001)] == [
        *(True, False, False, True, True, False)
    ]


@pytest.mark.root
def test_a_uid_is_nobody_elses_and_stays(tmp_path: Path) -> None:
    root = workspaces(tmp_path, alice=0, bob=FIRST, carol=4711)
    users = ("alice", "bob", "carol")
    given = {user_id: assign(root, user_id, UIDS, nobody).uid for user_id in users}
    assert set(given.values()) == set(UIDS.users)
    for user_id in ("carol", "alice", "bob"):
        assert assign(root, user_id, UIDS, nobody).uid == given[user_id]
        assert (root / user_id).stat().st_gid == given[user_id]


def test_several_roots_of_a_machine_seldom_give_the_same_uid(tmp_path: Path) -> None:
    uids = GuestUids.of(ContainerSettings())
    given = {look(tmp_path / str(number), "alice", uids, nobody).uid for number in range(20)}
    assert len(given) > 15
    assert given <= set(uids.users)


@pytest.mark.root
def test_with_none_left_the_error_names_settings_and_who_has_them(tmp_path: Path) -> None:
    root = workspaces(tmp_path, alice=FIRST + 1, bob=FIRST + 2, carol=0)

    def taken(uid: int) -> str:
        return "the account dave" if uid == FIRST + 3 else ""

    with pytest.raises(WorkspaceError, match="no uid is left for the guests of carol") as raised:
        assign(root, "carol", UIDS, taken)
    error = raised.value
    assert f"container.guest_uid = {FIRST}" in error.details
    assert f"uids {FIRST + 1} to {FIRST + 3}; 2 are those of other workspaces" in error.details
    assert "container.guest_uid_count" in error.resolution
    assert "from 2 to 1000000" in error.resolution
    assert (root / "carol").stat().st_gid == 0
    (root / "bob").rmdir()
    assert assign(root, "carol", UIDS, taken).uid == FIRST + 2


@pytest.mark.root
@pytest.mark.parametrize("copied", [True, False])
def test_a_uid_that_somebody_else_has_is_given_up(tmp_path: Path, copied: bool) -> None:
    root = workspaces(tmp_path, alice=FIRST + 1, bob=FIRST + 1 if copied else 0)

    def holder(uid: int) -> str:
        return "" if copied or uid != FIRST + 1 else "the account dave"

    found = assign(root, "alice", UIDS, holder)
    assert found.before == FIRST + 1
    assert found.uid in (FIRST + 2, FIRST + 3)
    assert found.why == f"which the {'workspace bob' if copied else 'account dave'} has too"
    again = assign(root, "alice", UIDS, holder)
    assert (again.uid, again.before, again.why) == (found.uid, found.uid, "")


@pytest.mark.root
def test_looking_changes_nothing_and_needs_no_workspace(tmp_path: Path) -> None:
    root = workspaces(tmp_path, alice=FIRST + 1)
    assert look(root, "bob", UIDS, nobody).uid in (FIRST + 2, FIRST + 3)
    assert look(tmp_path / "none", "bob", UIDS, nobody).uid in UIDS.users
    assert [path.name for path in root.iterdir()] == ["alice"]


@pytest.mark.root
def test_starts_at_once_get_different_uids(tmp_path: Path) -> None:
    uids = GuestUids(FIRST, 40)
    users = [f"user-{number}" for number in range(12)]
    root = workspaces(tmp_path, **dict.fromkeys(users, 0))
    together = threading.Barrier(len(users))

    def slowly(uid: int) -> str:
        time.sleep(0.01)
        return ""

    def start(user_id: str) -> None:
        together.wait(30)
        assign(root, user_id, uids, slowly)

    threads = [threading.Thread(target=start, args=(user_id,)) for user_id in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({(root / user_id).stat().st_gid for user_id in users}) == len(users)


@pytest.mark.root
def test_the_lock_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = workspaces(tmp_path, alice=0)
    assign(root, "alice", UIDS, nobody)
    (lock,) = (path for path in root.iterdir() if path.name != "alice")
    assert lock.stat().st_mode & 0o777 == 0o600
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        monkeypatch.setattr(guest_uids, "LOCK_WAIT_S", 0.05)
        with pytest.raises(WorkspaceError, match="another runner is assigning a uid") as raised:
            assign(root, "alice", UIDS, nobody)
        assert str(lock) in raised.value.resolution
    os.chown(lock, 4711, 4711)
    with pytest.raises(WorkspaceError, match="cannot use") as raised:
        assign(root, "alice", UIDS, nobody)
    assert "uid 4711" in raised.value.details


def test_accounts_groups_and_their_ranges_are_known(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("dave:1210000000:65536\n# no\nrubbish:x\n")
    machine = Machine(tmp_path)
    assert machine.holder(0) == "the account root"
    assert machine.holder(65_534) == "the kernel, for what it cannot show"
    assert machine.holder(1_210_000_000).startswith("dave, for user namespaces")
    assert machine.holder(1_210_065_536) == ""


@pytest.mark.root
def test_a_uid_that_a_process_runs_as_is_taken(tmp_path: Path) -> None:
    """As with the guests of another workspace_root whose uids are the same."""
    other = FIRST + 1
    with subprocess.Popen(["cat"], user=other, stdin=subprocess.PIPE) as process:
        assert Machine(tmp_path).holder(other) == f"process {process.pid} (cat)"
        assert Machine(tmp_path, processes=False).holder(other) == ""
        root = workspaces(tmp_path, alice=0)
        assert assign(root, "alice", GuestUids(FIRST, 3)).uid == FIRST + 2
        process.communicate()
    assert Machine(tmp_path).holder(other) == ""

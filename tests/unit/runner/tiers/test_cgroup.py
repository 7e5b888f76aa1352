"""Control groups, over a directory that looks like theirs."""

import errno
import os
import time
from pathlib import Path

import pytest

from runner.tiers.base import Limits
from runner.tiers.process import cgroup
from runner.tiers.process.cgroup import ControlGroups

LIMITS = Limits(memory_bytes=1 << 20, processes=33, cpus=0.5)
FILES = {
    "pids": ["pids.max"],
    "memory": ["memory.limit_in_bytes", "memory.swappiness"],
    "cpu": ["cpu.cfs_quota_us"],
}
WANTED = {
    "pids.max": "33",
    "memory.max": str(1 << 20),
    "memory.swap.max": "0",
    "cpu.max": "50000 100000",
}


@pytest.fixture
def first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Version 1: one hierarchy per controller, whose groups bear its files."""
    for controller in FILES:
        (tmp_path / controller).mkdir()
    _files_appear(monkeypatch, lambda path: FILES[path.parent.name])
    return tmp_path


@pytest.fixture
def second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Version 2: a group bears the files of the controllers that the one above hands down to it."""
    _make_group(tmp_path, controllers="cpu io memory pids", given="cpu memory pids")
    names = {"pids": ["pids.max"], "memory": ["memory.max", "memory.swap.max"], "cpu": ["cpu.max"]}

    def files_of(path: Path) -> list[str]:
        given = (path.parent / "cgroup.subtree_control").read_text().split()
        files = [name for each in given for name in names[each]]
        return [*files, "cgroup.procs"]

    _files_appear(monkeypatch, files_of)
    return tmp_path


def _make_group(place: Path, *, controllers: str, given: str = "", processes: str = "") -> None:
    os.makedirs(place, exist_ok=True)
    (place / "cgroup.controllers").write_text(f"{controllers}\n")
    (place / "cgroup.subtree_control").write_text(f"{given}\n")
    (place / "cgroup.procs").write_text(processes)


def _files_appear(monkeypatch: pytest.MonkeyPatch, files_of: object) -> None:
    mkdir = Path.mkdir

    def made(path: Path, *args: object, **more: object) -> None:
        mkdir(path)
        for name in files_of(path):  # type: ignore[operator]
            (path / name).write_text("max" if "." in name and "procs" not in name else "")

    monkeypatch.setattr(Path, "mkdir", made)


class Delegated:
    """A group that an account has been given below `root`, which is not its own; and the kernel's
    rule that a group with processes hands no controllers down."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.own = root / "user.slice" / "oxydra.scope"
        self.told = root / "own"
        self.told.write_text("1:name=systemd:/elsewhere\n0::/user.slice/oxydra.scope\n")
        (root / "cgroup.procs").chmod(0o444)
        monkeypatch.setattr(os, "access", self._access)
        monkeypatch.setattr(os, "getxattr", self._getxattr)
        write = Path.write_text
        self._write = write
        monkeypatch.setattr(Path, "write_text", lambda path, text: self._written(path, text))
        self.attribute = b"1"

    def _access(self, path: Path, mode: int) -> bool:
        return path.exists() and path.is_relative_to(self.own)

    def _getxattr(self, path: Path, name: str) -> bytes:
        if (path, name) != (self.own, "user.delegate"):
            raise OSError(errno.ENODATA, "no such attribute")
        return self.attribute

    def _written(self, path: Path, text: str) -> int:
        if path.name == "cgroup.subtree_control" and text.startswith("+"):
            if (path.parent / "cgroup.procs").read_text().strip():
                raise OSError(errno.EBUSY, "it has processes")
            text = " ".join(word.removeprefix("+") for word in text.split())
        if path.name == "cgroup.procs" and path.parent.name == cgroup.LEAF and path.exists():
            above = path.parent.parent / "cgroup.procs"
            left = [pid for pid in above.read_text().split() if pid != text]
            self._write(above, "\n".join(left))
            text = f"{path.read_text()}{text}\n"
        return self._write(path, text)

    @property
    def groups(self) -> ControlGroups:
        return ControlGroups(self.root, self.told)


def test_the_first_version_has_a_group_for_each_controller(first: Path) -> None:
    made = ControlGroups(first).create("x", LIMITS)
    assert (first / "pids/oxydra-x/pids.max").read_text() == "33"
    assert (first / "memory/oxydra-x/memory.limit_in_bytes").read_text() == str(1 << 20)
    assert (first / "cpu/oxydra-x/cpu.cfs_quota_us").read_text() == "50000"
    command = made.command(["prog", "--flag"])
    assert command[-2:] == ["prog", "--flag"]
    assert str(first / "pids/oxydra-x") in command


def test_the_second_version_has_one(second: Path) -> None:
    ControlGroups(second).create("x", LIMITS)
    group = second / "oxydra-x"
    assert {name: (group / name).read_text() for name in WANTED} == WANTED


@pytest.mark.parametrize("processes", ["", "17\n18\n"], ids=["empty", "with processes"])
def test_a_delegated_group_is_used_by_who_is_not_root(
    second: Path, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    """With its processes moved to a group of their own, because the kernel asks for that."""
    delegated = Delegated(second, monkeypatch)
    _make_group(delegated.own, controllers="cpu memory pids", processes=processes)
    made = delegated.groups.create("x", LIMITS)
    group = delegated.own / "oxydra-x"
    assert {name: (group / name).read_text() for name in WANTED} == WANTED
    assert str(group) in made.command(["prog"])
    assert (delegated.own / "cgroup.procs").read_text() == ""
    moved = delegated.own / cgroup.LEAF / "cgroup.procs"
    assert (moved.read_text() if moved.exists() else "") == processes


def test_a_runner_that_was_moved_finds_the_group_again(
    second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delegated = Delegated(second, monkeypatch)
    _make_group(delegated.own, controllers="memory pids", given="memory pids")
    delegated.told.write_text(f"0::/user.slice/oxydra.scope/{cgroup.LEAF}\n")
    assert delegated.groups.parents == [delegated.own]
    delegated.groups.create("x", LIMITS)
    group = delegated.own / "oxydra-x"
    assert (group / "memory.max").read_text() == str(1 << 20)
    assert not (group / "cpu.max").exists()


def test_a_group_of_the_account_that_was_not_delegated_is_left_alone(
    second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd would take the controllers away again without a word."""
    delegated = Delegated(second, monkeypatch)
    _make_group(delegated.own, controllers="cpu memory pids", processes="17\n")
    delegated.attribute = b"0"
    assert delegated.groups.parents == []
    with pytest.raises(PermissionError, match="no control group belongs to this account"):
        delegated.groups.create("x", LIMITS)
    assert "no control group belongs to this account" in delegated.groups.reason
    assert (delegated.own / "cgroup.procs").read_text() == "17\n"


@pytest.mark.parametrize("controllers", ["cpu io", "cpu memory", "pids"])
def test_a_delegated_group_without_the_controllers_is_none(
    second: Path, monkeypatch: pytest.MonkeyPatch, controllers: str
) -> None:
    delegated = Delegated(second, monkeypatch)
    _make_group(delegated.own, controllers=controllers)
    assert delegated.groups.parents == []


def test_where_they_cannot_be_set_the_reason_is_known(tmp_path: Path, second: Path) -> None:
    assert "belongs to this account" in ControlGroups(tmp_path / "nowhere").reason
    (second / "cgroup.controllers").write_text("cpu io\n")
    assert "belongs to this account" in ControlGroups(second, tmp_path / "nowhere").reason


def test_a_limit_that_cannot_be_set_is_a_reason(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FILES, "memory", ["memory.limit_in_bytes"])
    found = ControlGroups(first)
    with pytest.raises(OSError, match="no limits can be set in"):
        found.create("x", LIMITS)
    assert "no limits can be set in" in found.reason


def test_old_groups_are_swept_and_young_ones_are_not(first: Path) -> None:
    old, young = first / "pids" / "oxydra-old", first / "pids" / "oxydra-young"
    for path in (old, young):
        os.mkdir(path)
    long_ago = time.time() - 2 * cgroup.YOUNG_S
    os.utime(old, (long_ago, long_ago))
    ControlGroups(first).create("x", LIMITS)
    assert not old.exists()
    assert young.exists()

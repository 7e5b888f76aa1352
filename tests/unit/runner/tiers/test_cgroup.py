"""Control groups, over a directory that looks like theirs."""

import os
import time
from pathlib import Path

import pytest

from runner.tiers.base import Limits
from runner.tiers.process import cgroup
from runner.tiers.process.cgroup import Cgroup

LIMITS = Limits(memory_bytes=1 << 20, processes=33, cpus=0.5)
FILES = {
    "pids": ["pids.max"],
    "memory": ["memory.limit_in_bytes", "memory.swappiness"],
    "cpu": ["cpu.cfs_quota_us"],
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
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    names = ["pids.max", "memory.max", "memory.swap.max", "cpu.max"]
    _files_appear(monkeypatch, lambda path: names)
    return tmp_path


def _files_appear(monkeypatch: pytest.MonkeyPatch, files_of: object) -> None:
    mkdir = Path.mkdir

    def made(path: Path, *args: object, **more: object) -> None:
        mkdir(path)
        for name in files_of(path):  # type: ignore[operator]
            (path / name).write_text("max")

    monkeypatch.setattr(Path, "mkdir", made)


def test_the_first_version_has_a_group_for_each_controller(first: Path) -> None:
    made = Cgroup.create("x", LIMITS, first)
    assert made is not None
    assert (first / "pids/oxydra-x/pids.max").read_text() == "33"
    assert (first / "memory/oxydra-x/memory.limit_in_bytes").read_text() == str(1 << 20)
    assert (first / "cpu/oxydra-x/cpu.cfs_quota_us").read_text() == "50000"
    command = made.command(["prog", "--flag"])
    assert command[-2:] == ["prog", "--flag"]
    assert str(first / "pids/oxydra-x") in command


def test_the_second_version_has_one(second: Path) -> None:
    assert Cgroup.create("x", LIMITS, second) is not None
    found = {path.name: path.read_text() for path in (second / "oxydra-x").iterdir()}
    assert found == {
        "pids.max": "33",
        "memory.max": str(1 << 20),
        "memory.swap.max": "0",
        "cpu.max": "50000 100000",
    }


def test_where_they_cannot_be_set_there_is_none(tmp_path: Path, second: Path) -> None:
    assert Cgroup.create("x", LIMITS, tmp_path / "nowhere") is None
    (second / "cgroup.controllers").write_text("cpu io\n")
    assert Cgroup.create("x", LIMITS, second) is None


def test_old_groups_are_swept_and_young_ones_are_not(first: Path) -> None:
    old, young = first / "pids" / "oxydra-old", first / "pids" / "oxydra-young"
    for path in (old, young):
        os.mkdir(path)
    long_ago = time.time() - 2 * cgroup.YOUNG_S
    os.utime(old, (long_ago, long_ago))
    Cgroup.create("x", LIMITS, first)
    assert not old.exists()
    assert young.exists()

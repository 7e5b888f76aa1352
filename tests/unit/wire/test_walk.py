"""A walk through what somebody else has made to be hard to walk through."""

import os
import subprocess
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wire.disk import MovedError, walk

from tests.support.ordinary_user import ordinary_user

LONG = "d" * 255


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def found(directory: Path) -> list[str]:
    """The paths of all entries, sorted."""
    with opened(directory) as start:
        return sorted(entry.path for entry in walk(start))


def nested(directory: Path, depth: int, name: str) -> int:
    """A descriptor of the last of `depth` directories in each other."""
    here = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    return here


def test_everything_is_found_once_and_links_are_not_followed(tmp_path: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    expected = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")]
    assert found(tmp_path) == sorted(expected)
    assert len(expected) == 9


def test_files_and_links_cost_a_tenth_of_all_else(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    with opened(tmp_path) as start:
        costs = {entry.name: entry.cost for entry in walk(start)}
    assert costs == {"directory": 10, "file": 1, "link": 1, "pipe": 10}


def test_what_is_deep_and_then_wide_takes_neither_descriptors_nor_memory(tmp_path: Path) -> None:
    depth, width = 300, 2_000
    tree = tmp_path / "tree"
    tree.mkdir()
    last = nested(tree, depth, LONG)
    for number in range(width):
        os.mkdir(f"{number}", dir_fd=last)
        os.mkdir(f"{number}/x", dir_fd=last)
    os.close(last)
    before = len(os.listdir("/proc/self/fd"))
    most = seen = 0
    tracemalloc.start()
    try:
        with opened(tree) as start:
            for entry in walk(start):
                seen += 1
                if entry.name == "x":
                    most = max(most, len(os.listdir("/proc/self/fd")) - before)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        subprocess.run(["rm", "-rf", tree], check=True)
    assert seen == depth + 2 * width
    assert most < 8
    assert peak < 2_000_000


@pytest.mark.root
def test_directories_that_are_closed_are_passed_over_and_all_else_is_found() -> None:
    with ordinary_user() as home:
        for name in ("a", "b", "c", "d"):
            (home / name / "in" / "side").mkdir(parents=True)
        (home / "a").chmod(0o000)
        (home / "b").chmod(0o400)
        (home / "c").chmod(0o100)
        try:
            assert found(home) == ["a", "b", "b/in", "c", "d", "d/in", "d/in/side"]
        finally:
            for name in ("a", "b", "c"):
                (home / name).chmod(0o700)


def test_what_is_moved_away_during_a_walk_is_left_and_the_rest_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "tree" / name / "x" / "y").mkdir(parents=True)
    seen = []
    with opened(tmp_path / "tree") as start:
        for entry in walk(start):
            seen.append(entry.path)
            if len(seen) == 4:  # it is in one of both, before the way up
                (tmp_path / "tree" / entry.above[0] / "x").rename(tmp_path / "elsewhere")
                (tmp_path / "elsewhere" / "y" / "z").mkdir()
    assert {path[:3] for path in seen} >= {"a", "b", "a/x", "b/x"}


def test_a_walk_whose_way_up_is_gone_says_so(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "tree" / "a" / "d").mkdir()
    (tmp_path / "tree" / "e").mkdir()
    with opened(tmp_path / "tree") as start:
        entries = walk(start)
        while next(entries).name != "c":
            pass
        (tmp_path / "tree" / "a").rename(tmp_path / "a")
        (tmp_path / "a" / "b").rename(tmp_path / "tree" / "b")
        with pytest.raises(MovedError):
            list(entries)

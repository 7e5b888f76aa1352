"""No path leads out of its root, and both kinds of containment answer alike.

The trees are generated: directories, files, symlinks of every kind (upwards,
absolute, circular, through `/proc`) and hard links into private directories.
"""

import asyncio
import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wire.kernel.beneath import Beneath, KernelBeneath, PathEscapeError, WalkingBeneath
from wire.text import visible, visible_name

from guest.tools.base import ToolContext
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from runner.workspace.beneath import open_beneath
from tests.support.examples import examples
from tests.support.scratch import SCRATCH

ALICE = ToolContext("alice", "session-1", "turn-1", "test")
KINDS = (KernelBeneath, WalkingBeneath)
NAMES = ("a", "b", "c")
OUTSIDE = "path is outside /shared, /tmp and /vault: "
SECRET = "what lies outside"
MINE = "what lies inside needle"
WRITTEN = "what a tool wrote"

names = st.sampled_from(NAMES)
places = st.lists(names, min_size=1, max_size=3).map("/".join)
steps = st.sampled_from((*NAMES, "..", ".", "..", "../../.oxydra", "../elsewhere"))
targets = st.one_of(
    # Not ending in ".": that asks for a directory, see the last test.
    st.lists(steps, min_size=1, max_size=4).map("/".join).filter(lambda t: not t.endswith("/.")),
    st.sampled_from(
        (
            "/etc/passwd",
            "/shared/a",
            "/proc/self/root/etc/passwd",
            "/proc/self/cwd",
            "../.oxydra/memory.db",
            "../elsewhere/file",
            "../../../../../../etc/passwd",
            "../shared",
        )
    ),
)


@dataclass(frozen=True)
class Item:
    """One thing in a tree; `target` is for symlinks."""

    place: str
    kind: str
    target: str = ""


items = st.one_of(
    st.builds(Item, places, st.sampled_from(("directory", "file", "fifo", "private", "own"))),
    st.builds(Item, places, st.just("symlink"), targets),
)
trees = st.lists(items, min_size=1, max_size=8)

looked_up = st.lists(
    st.sampled_from((*NAMES, *NAMES, "..", ".", "", "...", "A", "a\\b", "memory.db", "file")),
    max_size=5,
).map("/".join)
roots_named = st.sampled_from(("/shared/", "/shared/", "/tmp/", "/vault/", "/Shared/", "/", "//"))
paths = st.one_of(
    st.tuples(roots_named, looked_up).map("".join),
    st.sampled_from(
        ("/etc/passwd", "/shared/../.oxydra/memory.db", "/proc/self/root/etc/passwd", "/shared/\0")
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)


@contextmanager
def workspace(tree: list[Item]) -> Iterator[Path]:
    """A workspace with `tree` in `shared`, and outside of it what nobody may reach."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        base = Path(directory)
        for name in ("shared", "tmp", "vault", ".oxydra", "elsewhere"):
            (base / name).mkdir()
        for name in (".oxydra/memory.db", "elsewhere/file"):
            (base / name).write_text(SECRET)
        for item in tree:
            place(base, item)
        yield base


def place(base: Path, item: Item) -> None:
    """Put `item` where it can go; where something else stands already, leave it."""
    path = base / "shared"
    *above, name = item.place.split("/")
    for part in above:
        path /= part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return
        path.mkdir(exist_ok=True)
    path /= name
    if os.path.lexists(path):
        return
    match item.kind:
        case "directory":
            path.mkdir()
        case "file":
            path.write_text(MINE)
        case "fifo":
            os.mkfifo(path)
        case "private":
            os.link(base / ".oxydra" / "memory.db", path)
        case "own":
            (base / "tmp" / "own").write_text(MINE)
            os.link(base / "tmp" / "own", path)
        case _:
            path.symlink_to(item.target)


def opened(beneath: Beneath, root: int, path: str, flags: int) -> Any:
    """What opening came to: which file, or which refusal."""
    try:
        descriptor = beneath.open(root, path, flags)
    except PathEscapeError:
        return "outside"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    try:
        status = os.fstat(descriptor)
        return status.st_dev, status.st_ino
    finally:
        os.close(descriptor)


def inside(base: Path) -> set[tuple[int, int]]:
    """Every inode that has a name in `shared`."""
    found = [base / "shared", *(base / "shared").rglob("*")]
    return {(status.st_dev, status.st_ino) for status in map(os.lstat, found)}


@examples(200)
@given(trees, looked_up, st.sampled_from((os.O_PATH, os.O_RDONLY | os.O_NONBLOCK, os.O_DIRECTORY)))
def test_both_ways_open_the_same_or_refuse_alike(tree: list[Item], path: str, flags: int) -> None:
    path = "/".join(part for part in path.split("/") if part not in ("", ".")) or "."
    with workspace(tree) as base:
        root = os.open(base / "shared", os.O_PATH | os.O_DIRECTORY)
        try:
            kernel, walking = (opened(kind(), root, path, flags) for kind in KINDS)
        finally:
            os.close(root)
        assert walking == kernel
        if isinstance(kernel, tuple):
            assert kernel in inside(base)


async def ask(
    base: Path, kind: type[Beneath], calls: list[tuple[str, dict[str, Any]]]
) -> list[str]:
    roots = Roots(
        {name: base / name for name in ("shared", "tmp", "vault")}, [base / ".oxydra"], kind()
    )
    pipeline = ToolPipeline(Registry(file_tools(roots)), scrubber=Scrubber())
    try:
        return [(await pipeline.call(ALICE, *call)).text for call in calls]
    finally:
        roots.close()


def reading(path: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("file_read", {"path": path}),
        ("file_list", {"path": path, "depth": 3}),
        ("file_search", {"path": path, "query": "what"}),
    ]


def changing(path: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("file_edit", {"path": path, "old": "what", "new": WRITTEN}),
        ("file_write", {"path": path, "content": WRITTEN, "create_parents": True}),
        ("file_delete", {"path": path}),
    ]


@examples(100)
@given(trees, paths)
def test_no_read_shows_what_lies_outside(tree: list[Item], path: str) -> None:
    with workspace(tree) as base:
        kernel, walking = (asyncio.run(ask(base, kind, reading(path))) for kind in KINDS)
        assert walking == kernel
        for answer in kernel:
            assert SECRET not in answer
            assert "root:" not in answer
            assert str(base) not in answer
            assert answer.startswith(("{", "[")) or visible(answer) == answer


@given(trees, looked_up, st.sampled_from((os.O_PATH, os.O_RDONLY | os.O_NONBLOCK)))
@example([Item("a/b", "file"), Item("c", "symlink", "a")], "c/b", os.O_PATH)
def test_the_runner_follows_no_link(tree: list[Item], path: str, flags: int) -> None:
    with workspace(tree) as base:
        root = os.open(base / "shared", os.O_PATH | os.O_DIRECTORY)
        try:
            descriptor = open_beneath(root, PurePath(path), flags)
        except (OSError, ValueError):
            return
        finally:
            os.close(root)
        where = Path(f"/proc/self/fd/{descriptor}").readlink()
        os.close(descriptor)
        assert where == base.resolve() / "shared" / path


@given(st.one_of(paths, st.text()))
def test_a_shown_name_is_one_line(path: str) -> None:
    shown = visible_name(path)
    assert visible_name(shown) == visible(shown) == shown
    assert len(shown.splitlines()) <= 1


@examples(100)
@given(trees, paths)
def test_no_change_reaches_what_lies_outside(tree: list[Item], path: str) -> None:
    answers = []
    for kind in KINDS:
        with workspace(tree) as base:
            answers.append(asyncio.run(ask(base, kind, changing(path))))
            for name in (".oxydra/memory.db", "elsewhere/file"):
                assert (base / name).read_text() == SECRET
            assert sorted(os.listdir(base)) == [".oxydra", "elsewhere", "shared", "tmp", "vault"]
            assert os.listdir(base / ".oxydra") == ["memory.db"]
            assert os.listdir(base / "elsewhere") == ["file"]
            assert os.listdir(base / "vault") == []
    assert answers[0] == answers[1]


@examples(100)
@given(paths)
@example("\U000e01ef")  # printable, but not visible
def test_what_is_under_no_root_has_one_answer(path: str) -> None:
    if path.split("/")[:2] in (["", "shared"], ["", "tmp"], ["", "vault"]):
        return
    with workspace([]) as base:
        for answer in asyncio.run(ask(base, KernelBeneath, reading(path))):
            assert answer == OUTSIDE + visible_name(path)


@pytest.mark.parametrize("kind", KINDS)
def test_nul_in_a_path_is_answered_like_every_way_out(kind: type[Beneath]) -> None:
    with workspace([]) as base:
        answers = asyncio.run(ask(base, kind, reading("/shared/\0")))
    assert all(answer.startswith(OUTSIDE) for answer in answers)


def test_a_path_does_not_end_where_it_holds_nul() -> None:
    with workspace([Item("a", "file")]) as base:
        root = os.open(base / "shared", os.O_PATH | os.O_DIRECTORY)
        try:
            for kind in KINDS:
                with pytest.raises(ValueError):
                    kind().open(root, "a\0b", os.O_RDONLY)
            with pytest.raises(ValueError):
                open_beneath(root, PurePath("a\0b"), os.O_RDONLY)
        finally:
            os.close(root)


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_the_kernel_does_not_take_is_too_long(kind: type[Beneath]) -> None:
    with workspace([Item("a", "file")]) as base:
        answers = asyncio.run(ask(base, kind, reading("/shared/a/" + "é" * 2050)))
    assert all(answer.startswith("path is too long: /shared/a/") for answer in answers)


@pytest.mark.parametrize("target", ["b/", "b/."])
def test_a_link_that_asks_for_a_directory_and_finds_a_file(target: str) -> None:
    with workspace([Item("b", "file"), Item("a", "symlink", target)]) as base:
        root = os.open(base / "shared", os.O_PATH | os.O_DIRECTORY)
        try:
            kernel, walking = (opened(kind(), root, "a", os.O_RDONLY) for kind in KINDS)
        finally:
            os.close(root)
    assert kernel == "ENOTDIR"
    assert walking == kernel

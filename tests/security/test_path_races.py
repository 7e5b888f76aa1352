"""Somebody renames and links while tools run: no byte from outside is read or written.

A thread keeps swapping what stands at a path between the real thing and a way
out. Each test runs until both have been met, so that it was a race indeed.
"""

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from wire.kernel.beneath import Beneath, KernelBeneath, WalkingBeneath

from guest.tools.base import ToolContext
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.attempts import attempt
from tests.support.scratch import SCRATCH

ALICE = ToolContext("alice", "session-1", "turn-1", "test")
OUTSIDE = "path is outside /shared, /tmp and /vault"
SECRET = "what lies outside"
MINE = "what lies inside"
CALLS_MIN = 150
GUARD_S = 60.0


class Workspace:
    """Directories, tools over them, and what must never be seen or changed."""

    def __init__(self, base: Path, beneath: Beneath) -> None:
        self.base = base
        self.shared = base / "shared"
        for name in ("shared", "tmp", "vault", ".oxydra", "elsewhere"):
            (base / name).mkdir()
        (base / ".oxydra" / "memory.db").write_text(SECRET)
        (base / "elsewhere" / "file").write_text(SECRET)
        self.beneath = beneath
        self.roots = Roots(
            {name: base / name for name in ("shared", "tmp", "vault")}, [base / ".oxydra"], beneath
        )
        self.pipeline = ToolPipeline(Registry(file_tools(self.roots)), scrubber=Scrubber())

    async def call(self, name: str, path: str, **arguments: Any) -> str:
        result = await self.pipeline.call(ALICE, name, {"path": path, **arguments})
        assert SECRET not in result.text
        assert str(self.base) not in result.text
        return result.text

    def assert_nothing_outside_changed(self) -> None:
        assert (self.base / ".oxydra" / "memory.db").read_text() == SECRET
        assert (self.base / "elsewhere" / "file").read_text() == SECRET
        assert os.listdir(self.base / "elsewhere") == ["file"]
        assert os.listdir(self.base / ".oxydra") == ["memory.db"]
        assert sorted(os.listdir(self.base)) == [".oxydra", "elsewhere", "shared", "tmp", "vault"]


@pytest.fixture(params=[KernelBeneath, WalkingBeneath])
def workspace(request: pytest.FixtureRequest) -> Iterator[Workspace]:
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        made = Workspace(Path(directory), request.param())
        yield made
        made.roots.close()


@contextmanager
def repeating(swap: Callable[[], None]) -> Iterator[None]:
    """`swap` again and again in a thread; what goes wrong there fails the test."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not stop.is_set():
                swap()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert failures == []


def put_link(at: Path, target: str) -> None:
    """A symlink at `at`, at once in place of whatever stood there."""
    beside = at.with_name(f".{at.name}.link")
    beside.symlink_to(target)
    os.rename(beside, at)


def put_file(at: Path, text: str = MINE) -> None:
    beside = at.with_name(f".{at.name}.file")
    beside.write_text(text)
    os.rename(beside, at)


async def until_raced(call: Callable[[], Any], *wanted: str) -> None:
    """Call until every one of `wanted` has been part of an answer."""
    missing = set(wanted)
    began, calls = time.monotonic(), 0
    while missing or calls < CALLS_MIN:
        answer = await call()
        missing = {text for text in missing if text not in answer}
        calls += 1
        assert time.monotonic() - began < GUARD_S, f"never met in {calls} calls: {missing}"


BENEATH = "paths are resolved beneath a root, by the kernel or over open directories"
INODES = "what was opened is compared with the private files themselves, not by its links"
WAYS_OUT = [
    attempt("a directory that becomes a relative link out", "../elsewhere", stopped_by=BENEATH),
    attempt("a directory that becomes an absolute link out", "absolute", stopped_by=BENEATH),
]


@pytest.mark.parametrize("way_out", WAYS_OUT)
async def test_a_directory_that_turns_into_a_way_out(workspace: Workspace, way_out: str) -> None:
    door, real = workspace.shared / "door", workspace.shared / "real"
    door.mkdir()
    (door / "file").write_text(MINE)
    target = str(workspace.base / "elsewhere") if way_out == "absolute" else way_out

    def swap() -> None:
        os.rename(door, real)
        door.symlink_to(target)
        time.sleep(0.0005)
        door.unlink()
        os.rename(real, door)
        time.sleep(0.0005)

    path = "/shared/door/file"
    with repeating(swap):
        await until_raced(lambda: workspace.call("file_read", path), MINE, OUTSIDE)
        await until_raced(
            lambda: workspace.call("file_write", path, content=MINE), "replaced", OUTSIDE
        )
        await until_raced(
            lambda: workspace.call("file_edit", path, old="inside", new="inside"),
            '"line": 1',
            OUTSIDE,
        )
        await until_raced(
            lambda: workspace.call("file_list", "/shared/door"), "/shared/door/file", OUTSIDE
        )
        await until_raced(
            lambda: workspace.call("file_search", "/shared", query="what"), "inside", "matches"
        )
        await until_raced(
            lambda: workspace.call("file_write", "/shared/door/made/x", content=MINE), OUTSIDE
        )
    workspace.assert_nothing_outside_changed()


@pytest.mark.attempt("a file that becomes a link out", stopped_by=BENEATH)
async def test_a_file_that_turns_into_a_way_out(workspace: Workspace) -> None:
    at = workspace.shared / "file"
    put_file(at)

    def swap() -> None:
        put_link(at, "../.oxydra/memory.db")
        time.sleep(0.0005)
        put_file(at)
        time.sleep(0.0005)

    with repeating(swap):
        await until_raced(lambda: workspace.call("file_read", "/shared/file"), MINE, OUTSIDE)
        await until_raced(
            lambda: workspace.call("file_write", "/shared/file", content=MINE), "replaced", OUTSIDE
        )
        await until_raced(
            lambda: workspace.call("file_edit", "/shared/file", old="inside", new="inside"),
            '"line": 1',
            OUTSIDE,
        )
        await until_raced(lambda: workspace.call("file_search", "/shared", query="what"), "matches")
    workspace.assert_nothing_outside_changed()


@pytest.mark.attempt(
    "a directory that becomes a link while something in it is deleted", stopped_by=BENEATH
)
async def test_what_is_deleted_is_never_outside(workspace: Workspace) -> None:
    door, real = workspace.shared / "door", workspace.shared / "real"
    door.mkdir()

    def swap() -> None:
        put_file(door / "file")
        os.rename(door, real)
        door.symlink_to("../elsewhere")
        time.sleep(0.0005)
        door.unlink()
        os.rename(real, door)
        time.sleep(0.0005)

    with repeating(swap):
        await until_raced(
            lambda: workspace.call("file_delete", "/shared/door/file"), "deleted", OUTSIDE
        )
    workspace.assert_nothing_outside_changed()


@pytest.mark.attempt("a directory that moves while a path climbs out of it", stopped_by=BENEATH)
async def test_a_directory_that_moves_while_a_path_climbs_out_of_it(workspace: Workspace) -> None:
    """`..` in a link goes back to where it came from, wherever a rename put it."""
    deep, high = workspace.shared / "a" / "b", workspace.shared / "b"
    deep.mkdir(parents=True)
    (workspace.shared / "file").write_text(MINE)
    (deep / "up").symlink_to("../../file")

    def swap() -> None:
        os.rename(deep, high)
        time.sleep(0.0005)
        os.rename(high, deep)
        time.sleep(0.0005)

    with repeating(swap):
        await until_raced(lambda: workspace.call("file_read", "/shared/a/b/up"), MINE)
        await until_raced(lambda: workspace.call("file_read", "/shared/b/up"), OUTSIDE)
    workspace.assert_nothing_outside_changed()


@pytest.mark.attempt("a hard link to the database that comes and stays", stopped_by=INODES)
async def test_a_hard_link_to_what_is_private_comes_and_stays(workspace: Workspace) -> None:
    at = workspace.shared / "file"
    put_file(at)
    link = workspace.shared / ".link"

    def swap() -> None:
        os.link(workspace.base / ".oxydra" / "memory.db", link)
        os.rename(link, at)
        time.sleep(0.0005)
        put_file(at)
        time.sleep(0.0005)

    # Replacing the link right after it was opened is the next test.
    with repeating(swap):
        for _ in range(CALLS_MIN):
            answer = await workspace.call("file_write", "/shared/file", content=MINE)
            assert "replaced" in answer or OUTSIDE in answer
    workspace.assert_nothing_outside_changed()


@pytest.mark.attempt(
    "a hard link to the database that is gone right after it was opened", stopped_by=INODES
)
async def test_a_hard_link_that_is_gone_right_after_it_was_opened(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one moment that matters, without a race: opened, unlinked, looked at."""
    at = workspace.shared / "file"
    os.link(workspace.base / ".oxydra" / "memory.db", at)
    honest = workspace.beneath.open

    def open_and_unlink(root: int, path: str, flags: int) -> int:
        descriptor = honest(root, path, flags)
        at.unlink()
        return descriptor

    monkeypatch.setattr(workspace.beneath, "open", open_and_unlink)
    await workspace.call("file_read", "/shared/file")


async def test_calls_of_two_users_in_flight_never_mix(workspace: Workspace) -> None:
    """Two workspaces, one process: hundreds of calls side by side."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        other = Workspace(Path(directory), KernelBeneath())
        (workspace.shared / "who").write_text("alice was here")
        (other.shared / "who").write_text("bob was here")
        try:
            answers = await asyncio.gather(
                *(
                    (workspace, other)[number % 2].call("file_read", "/shared/who")
                    for number in range(200)
                )
            )
        finally:
            other.roots.close()
    for number, answer in enumerate(answers):
        assert ("alice", "bob")[number % 2] in answer
        assert ("bob", "alice")[number % 2] not in answer

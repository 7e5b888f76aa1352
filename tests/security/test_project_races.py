"""Somebody renames and links in a project while tools run: nothing hidden is read, and nothing is
written where a wall is. Each race runs until what is allowed was met, too."""

import asyncio
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from wire.kernel.beneath import Beneath, KernelBeneath, WalkingBeneath
from wire.tools import VIRTUAL_ROOTS
from wire.v1.bootstrap_pb2 import Project

from guest.tools.base import ToolContext
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.scratch import SCRATCH

ALICE = ToolContext("alice", "session-1", "turn-1", "test")
SECRET = "value-of-the-key"
OPEN = "answer = 42"
CALLS_MIN = 300
MET_MIN = 20
GUARD_S = 60.0


class World:
    """A project with a hidden file and a wall, and tools over it."""

    def __init__(self, base: Path, beneath: Beneath) -> None:
        self.site = base / "site"
        for path in (self.site / ".git" / "hooks", self.site / "src"):
            path.mkdir(parents=True)
        for root in VIRTUAL_ROOTS:
            (base / root.name).mkdir()
        (self.site / ".env").write_text(SECRET)
        (self.site / "app.py").write_text(OPEN)
        project = Project(
            name="site", path=str(self.site), writable=True, walls=[".git"], hidden=[".env"]
        )
        directories = {root.name: base / root.name for root in VIRTUAL_ROOTS}
        self.roots = Roots(directories, beneath=beneath, projects=[project])
        self.pipeline = ToolPipeline(
            Registry(file_tools(self.roots)), scrubber=Scrubber(), paths=self.roots.paths
        )

    async def call(self, name: str, path: str, **arguments: Any) -> str:
        """What a tool answers; never what is hidden."""
        given = json.dumps({"path": f"/projects/site/{path}", **arguments})
        text = (await self.pipeline.call(ALICE, name, given)).text
        assert SECRET not in text
        return text

    def link(self, name: str, target: str) -> None:
        """Let `name` lead to `target`, at once."""
        (self.site / ".next").symlink_to(target)
        (self.site / ".next").rename(self.site / name)


@pytest.fixture(params=[KernelBeneath, WalkingBeneath])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with tempfile.TemporaryDirectory(dir=SCRATCH, prefix="races-") as place:
        made = World(Path(place), request.param())
        yield made
        made.roots.close()


@contextmanager
def racing(step: Callable[[int], None]) -> Iterator[None]:
    """Does `step` again and again in a thread."""
    over = threading.Event()

    def run() -> None:
        number = 0
        while not over.is_set():
            with suppress(FileNotFoundError):
                step(number)
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def until(allowed: str, refused: str, call: Callable[[], Any]) -> None:
    """Call until both answers were met often, and many calls were made."""
    met = {allowed: 0, refused: 0}
    end = time.monotonic() + GUARD_S
    calls = 0
    while calls < CALLS_MIN or min(met.values()) < MET_MIN:
        assert time.monotonic() < end, met
        text = await call()
        for each in met:
            met[each] += each in text
        calls += 1
        await asyncio.sleep(0)


@pytest.mark.attempt(
    "a link in a project that changes between what is open and what is hidden while it is read",
    stopped_by="what was opened is compared, before and after, with what is hidden",
)
async def test_a_link_that_changes_shows_nothing_hidden(world: World) -> None:
    with racing(lambda number: world.link("either", (".env", "app.py")[number % 2])):
        await until(OPEN, "hidden", lambda: world.call("file_read", "either"))


@pytest.mark.attempt(
    "reading a hidden file while its owner saves it by renaming",
    stopped_by="its name and both files are compared with what was opened",
)
async def test_a_hidden_file_is_not_read_while_it_is_saved(world: World) -> None:
    def save(_: int) -> None:
        (world.site / "new").write_text(SECRET)
        os.replace(world.site / "new", world.site / ".env")

    (world.site / "either").symlink_to(".env")
    with racing(save):
        for _ in range(CALLS_MIN):
            assert "hidden" in await world.call("file_read", ".env")
            assert "hidden" in await world.call("file_read", "either")


@pytest.mark.attempt(
    "a directory in a project that becomes its git directory while a file is written there",
    stopped_by="what the kernel says of the opened directory is compared with the walls",
)
async def test_a_directory_that_changes_leads_into_no_wall(world: World) -> None:
    with racing(lambda number: world.link("either", (".git/hooks", "src")[number % 2])):
        await until(
            "replaced",
            "cannot be written",
            lambda: world.call("file_write", "either/post-checkout", content="x"),
        )
    assert os.listdir(world.site / ".git" / "hooks") == []

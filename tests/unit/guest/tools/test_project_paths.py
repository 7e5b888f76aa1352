"""Project directories in file tools, in the pipeline and behind the gateway."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field
from wire.kernel.beneath import KernelBeneath, PathEscapeError, WalkingBeneath
from wire.tools import VIRTUAL_ROOTS
from wire.v1.bootstrap_pb2 import Directory, Project

from guest.errors import GuestError, ToolError
from guest.tools.base import (
    Arguments,
    PathArgument,
    Reply,
    Safety,
    Tool,
    ToolContext,
    ToolOutput,
    ToolResult,
)
from guest.tools.files import browse, file_tools, roots
from guest.tools.files.exchange import SharedFiles
from guest.tools.files.roots import Roots
from guest.tools.output import HostPaths
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber

KEY = "value-of-the-key"
ALICE = ToolContext("alice", "session-1", "turn-1", "test")
IN_SITE = ToolContext("alice", "session-1", "turn-1", "test", project="site", reply=Reply())


class CommandArguments(Arguments):
    """Arguments of a tool that runs commands."""

    command: str = "true"
    cwd: str = Field(default="/shared")


async def where(_: ToolContext, arguments: CommandArguments) -> ToolOutput:
    """Answers with the directory in which it would run a command."""
    return ToolOutput({"cwd": arguments.cwd})


SHELL = Tool(
    *("shell_exec", "", CommandArguments, Safety.READ_ONLY, 5.0, where),
    paths=(PathArgument("cwd", for_commands=True),),
)


def message(path: Path, name: str, **fields: Any) -> Project:
    """A project as the envelope names it."""
    status = path.stat()
    found = Directory(device=status.st_dev, inode=status.st_ino)
    return Project(name=name, path=str(path), directory=found, **fields)


class World:
    """Two projects on disk, and tools over them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.site, self.docs = base / "host" / "site", base / "host" / "docs"
        for path in (self.site / ".git" / "hooks", self.site / "src", self.docs):
            path.mkdir(parents=True)
        for root in VIRTUAL_ROOTS:
            (base / root.name).mkdir()
        (self.site / "src" / "app.py").write_text("answer = 42\n")
        (self.site / ".git" / "config").write_text("answer = 42\n")
        (self.site / ".env").write_text(f"KEY={KEY}\n")
        (self.docs / "read.md").write_text("docs\n")
        directories = {root.name: base / root.name for root in VIRTUAL_ROOTS}
        projects = (
            message(self.site, "site", writable=True, walls=[".git", ".idea"], hidden=[".env"]),
            message(self.docs, "docs"),
        )
        self.roots = Roots(directories, projects=projects)
        self.pipeline = ToolPipeline(
            Registry([*file_tools(self.roots), SHELL]),
            scrubber=Scrubber(),
            paths=self.roots.paths,
            host_paths=HostPaths({**directories, "projects/site": self.site}),
        )

    def call(self, name: str, context: ToolContext = ALICE, **arguments: Any) -> ToolResult:
        """The result of a call; no host path and no hidden text is in it."""
        result = asyncio.run(self.pipeline.call(context, name, arguments))
        assert str(self.base) not in result.text
        assert KEY not in result.text
        return result

    def refused(self, name: str, **arguments: Any) -> str:
        """Why a call is refused."""
        result = self.call(name, **arguments)
        assert result.is_error, result.text
        return result.text

    def answer(self, name: str, context: ToolContext = ALICE, **arguments: Any) -> Any:
        """The data of a call's answer."""
        result = self.call(name, context, **arguments)
        assert not result.is_error, result.text
        return json.loads(result.data_json)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.roots.close()


def test_a_project_is_read_and_changed_where_it_is_writable(world: World) -> None:
    (world.site / "run.sh").write_bytes(b"#!/bin/sh\r\necho 1\r\n")
    (world.site / "run.sh").chmod(0o755)
    path = "/projects/site/src/app.py"
    assert world.answer("file_read", path=path)["content"] == "answer = 42\n"
    world.answer("file_edit", path=path, old="42", new="43")
    world.answer("file_edit", path="/projects/site/run.sh", old="echo 1", new="echo 2\necho 3")
    assert (world.site / "src" / "app.py").read_text() == "answer = 43\n"
    assert (world.site / "run.sh").read_bytes() == b"#!/bin/sh\r\necho 2\r\necho 3\r\n"
    assert (world.site / "run.sh").stat().st_mode & 0o777 == 0o755
    assert world.call("file_read", path=path).material == (path,)


def test_a_project_to_read_is_not_changed(world: World) -> None:
    assert "/projects/docs is read-only" in world.refused(
        "file_write", path="/projects/docs/new.md", content="x"
    )
    assert world.answer("shell_exec", cwd="/projects/docs") == {"cwd": "/projects/docs"}


@pytest.mark.parametrize(
    "path",
    ["/projects/other/x", "/projects/../shared/x", "/projects/Site/x", "/project", "/projects"],
)
def test_what_is_outside_is_told_with_the_projects_there_are(world: World, path: str) -> None:
    said = world.refused("file_read", path=path)
    assert "path is outside /shared, /tmp, /vault, /projects/site and /projects/docs: " in said


def test_the_projects_are_listed(world: World) -> None:
    entries = world.answer("file_list", path="/projects/")["entries"]
    assert entries == [
        {"path": "/projects/site", "type": "directory", "writable": True},
        {"path": "/projects/docs", "type": "directory", "writable": False},
    ]
    assert world.call("file_write", path="/projects", content="x").is_error
    assert world.call("shell_exec", cwd="/projects").is_error


def test_relative_paths_and_defaults_begin_in_the_project_of_the_session(world: World) -> None:
    assert world.answer("file_read", IN_SITE, path="src/app.py")["path"].startswith("/projects/")
    assert world.answer("file_list", IN_SITE)["path"] == "/projects/site"
    assert world.answer("shell_exec", IN_SITE) == {"cwd": "/projects/site"}
    assert world.answer("shell_exec", IN_SITE, cwd="/tmp") == {"cwd": "/tmp"}
    assert world.answer("shell_exec") == {"cwd": "/shared"}
    world.answer("file_write", IN_SITE, path="shared/x", content="x", create_parents=True)
    assert (world.site / "shared" / "x").read_text() == "x"


def test_a_search_does_not_enter_what_tools_keep(world: World) -> None:
    found = world.answer("file_search", query="answer", path="/projects/site")
    assert [each["path"] for each in found["matches"]] == ["/projects/site/src/app.py"]
    told = world.call("file_search", query="answer", path="/projects/site").text
    assert "not searched unless path names it: .git" in told
    named = world.answer("file_search", query="answer", path="/projects/site/.git")
    assert [each["path"] for each in named["matches"]] == ["/projects/site/.git/config"]


def plain(world: World) -> str:
    return ".env"


def by_a_link(world: World) -> str:
    (world.site / "link").symlink_to(".env")
    return "link"


def by_a_linked_directory(world: World) -> str:
    (world.site / "src" / "up").symlink_to("..")
    return "src/up/.env"


def upwards(world: World) -> str:
    return "src/../.env"


def by_a_second_name(world: World) -> str:
    os.link(world.site / ".env", world.site / "copy")
    return "copy"


def where_it_leads(world: World) -> str:
    (world.site / ".env").rename(world.site / "real")
    (world.site / ".env").symlink_to("real")
    return "real"


WAYS = [plain, by_a_link, by_a_linked_directory, upwards, by_a_second_name, where_it_leads]


@pytest.mark.parametrize("way", WAYS)
def test_a_hidden_file_is_not_read_by_any_name(world: World, way: Any) -> None:
    path = f"/projects/site/{way(world)}"
    assert "is hidden in this project" in world.refused("file_read", path=path)
    assert "in this project" in world.refused("file_edit", path=path, old="K", new="k")
    assert world.answer("file_search", query="KEY", path="/projects/site")["matches"] == []
    with pytest.raises(ToolError, match="hidden"):
        list(SharedFiles(world.roots, 2**20).read(path))


def test_a_hidden_file_stays_hidden_when_its_owner_saves_it(world: World) -> None:
    (world.site / "new").write_text(f"KEY={KEY}\n")
    (world.site / "new").rename(world.site / ".env")
    assert "is hidden" in world.refused("file_read", path="/projects/site/.env")
    assert "is not changed" in world.refused(
        "file_write", path="/projects/site/.env", content="mine"
    )
    (world.site / ".env").unlink()
    assert "is not changed" in world.refused(
        "file_write", path="/projects/site/.ENV", content="mine"
    )


@pytest.mark.parametrize(
    "path",
    [
        *(".git/hooks/pre-commit", ".git", ".GIT/config", "src/../.git/x", "git/x", "hooks/x"),
        *(".idea/x", ".g\u200cit/x"),
    ],
)
def test_a_wall_is_not_changed_by_any_name(world: World, path: str) -> None:
    (world.site / "git").symlink_to(".git")
    (world.site / "hooks").symlink_to(".git/hooks")
    before = sorted(str(each) for each in world.site.rglob("*"))
    path = f"/projects/site/{path}"
    said = world.refused("file_write", path=path, content="x", create_parents=True)
    assert "cannot be written in this project" in said
    files = SharedFiles(world.roots, 2**20)
    with pytest.raises(ToolError, match=r"cannot be written|visible characters"):
        files.begin(path)
    files.close()
    assert sorted(str(each) for each in world.site.rglob("*")) == before


def test_a_file_system_with_another_idea_of_names_opens_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roots, "is_below", lambda *_: False)
    for path in (".git/hooks/x", ".git/config", ".env"):
        path = f"/projects/site/{path}"
        assert "cannot be written" in world.refused("file_write", path=path, content="x")
    assert "is hidden" in world.refused("file_read", path="/projects/site/.env")


def test_an_upload_does_not_follow_its_directory_into_a_wall(world: World) -> None:
    files = SharedFiles(world.roots, 2**20)
    upload = files.begin("/projects/site/src/new")
    files.add(upload, 0, b"x")
    (world.site / "src").rename(world.site / ".git" / "src")
    with pytest.raises(ToolError, match="cannot be written"):
        files.finish(upload, overwrite=True)
    files.close()
    assert not list((world.site / ".git" / "src").glob("new"))


def test_a_link_out_of_a_project_a_pipe_and_a_device_are_refused(world: World) -> None:
    (world.site / "out").symlink_to(world.docs)
    os.mkfifo(world.site / "pipe")
    (world.site / "null").symlink_to("/dev/null")
    assert "path is outside" in world.refused("file_read", path="/projects/site/out/read.md")
    assert "not a regular file" in world.refused("file_read", path="/projects/site/pipe")
    assert "path is outside" in world.refused("file_read", path="/projects/site/null")


def test_another_directory_in_the_place_of_a_project_is_refused(tmp_path: Path) -> None:
    for root in VIRTUAL_ROOTS:
        (tmp_path / root.name).mkdir()
    directories = {root.name: tmp_path / root.name for root in VIRTUAL_ROOTS}
    (tmp_path / "site").mkdir()
    project = message(tmp_path / "site", "site")
    (tmp_path / "site").rename(tmp_path / "old")
    (tmp_path / "site").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(GuestError, match="another directory than the runner has checked"):
        Roots(directories, projects=[project])
    (tmp_path / "site").rmdir()
    (tmp_path / "site").symlink_to("old")
    with pytest.raises(GuestError, match="cannot open"):
        Roots(directories, projects=[project])
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("kind", [KernelBeneath, WalkingBeneath])
def test_what_is_mounted_below_is_outside(kind: type[KernelBeneath | WalkingBeneath]) -> None:
    root = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(kind().open(root, "proc/version", os.O_RDONLY))
        with pytest.raises(PathEscapeError):
            kind(one_mount=True).open(root, "proc/version", os.O_RDONLY)
        os.close(kind(one_mount=True).open(root, "etc/passwd", os.O_RDONLY))
    finally:
        os.close(root)


def test_a_person_brings_files_into_a_writable_project(world: World) -> None:
    files = SharedFiles(world.roots, 2**20)
    listed, _ = files.list("/projects")
    assert [(each.name, each.path) for each in listed] == [
        ("site", "/projects/site"),
        ("docs", "/projects/docs"),
    ]
    upload = files.begin("/projects/site/new.txt")
    files.add(upload, 0, b"new")
    files.finish(upload, overwrite=False)
    assert (world.site / "new.txt").read_bytes() == b"new"
    with pytest.raises(ToolError, match="/projects/docs is read-only"):
        files.begin("/projects/docs/new.txt")
    with pytest.raises(ToolError, match="only /shared, /projects/site and /projects/docs can be"):
        files.list("/vault")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_a_file_of_a_project_stays_its_owners(world: World) -> None:
    os.chown(world.site / "src" / "app.py", 1234, 2345)
    os.chown(world.site / "src", 1235, 2346)
    world.answer("file_edit", path="/projects/site/src/app.py", old="42", new="43")
    world.answer("file_write", path="/projects/site/src/new.py", content="x")
    old, new = ((world.site / "src" / name).stat() for name in ("app.py", "new.py"))
    assert (old.st_uid, old.st_gid) == (1234, 2345)
    assert (new.st_uid, new.st_gid) == (1235, 2346)


def test_a_search_that_does_not_come_to_its_end_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (world.site / "src" / f"{number}.py").write_text("x\n")
    monkeypatch.setattr(browse, "WALK_MAX_ENTRIES", 20)
    told = world.call("file_search", query="nothing", path="/projects/site/src").text
    assert "what comes after the first 20 entries" in told


@pytest.fixture
def small(tmp_path: Path) -> Iterator[World]:
    """A project that is a file system of its own, with room for 256 KiB."""
    place = tmp_path / "host" / "site"
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "project", str(place)]
    subprocess.run(mount, check=True)
    try:
        made = World(tmp_path)
        yield made
        made.roots.close()
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.root
@pytest.mark.parametrize("why", ["full", "read-only"])
def test_where_nothing_can_be_written_a_file_stays_as_it_was(small: World, why: str) -> None:
    if why == "full":
        with contextlib.suppress(OSError), (small.site / "filler").open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
    else:
        subprocess.run(["mount", "-o", "remount,ro", small.site], check=True)
    before = sorted(small.site.rglob("*"))
    large = "x" * 100_000
    said = {"full": "the disk is full", "read-only": "py: Read-only file system"}[why]
    for tool, given in (
        ("file_write", {"path": "/projects/site/src/app.py", "content": large}),
        ("file_write", {"path": "/projects/site/new.py", "content": large}),
        ("file_edit", {"path": "/projects/site/src/app.py", "old": "42", "new": large}),
    ):
        assert said in small.refused(tool, **given)
    assert small.answer("file_read", path="/projects/site/src/app.py")["content"] == "answer = 42\n"
    assert sorted(small.site.rglob("*")) == before

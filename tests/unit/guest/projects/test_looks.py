"""What a look at a project finds, what it never does, and what is kept of it."""

import errno
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb
from wire.v1.bootstrap_pb2 import Project

from guest.errors import GuestError
from guest.projects import changes as changing
from guest.projects import file_versions, look
from guest.projects.changes import Changes, counted
from guest.projects.file_versions import Changed, FileVersions
from guest.projects.ignoring import decides, rules
from guest.projects.look import Tree, UnfinishedError, Version


class Place:
    """A project that is looked at."""

    def __init__(self, tmp_path: Path) -> None:
        self.path, self.kept = tmp_path / "work", tmp_path / "changed-files.db"
        (self.path / "src").mkdir(parents=True)
        (self.path / "src/a.txt").write_text("a\n")
        self.opened: list[Changes] = []

    def changes(self, **more: object) -> Changes:
        project = Project(name="work", path=str(self.path), writable=True, **more)  # type: ignore[arg-type]
        made = Changes([(os.open(self.path, os.O_PATH), project)], self.kept)
        self.opened.append(made)
        made.start()
        assert made.ready.wait(20)
        return made

    async def during(self, changes: Changes, *does: object) -> pb.FileChanges:
        await changes.begin("s t")
        for each in does:
            each()  # type: ignore[operator]
        found = await changes.ended("s t", "s", "t")
        assert found is not None
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for each in made.opened:
        each.close()


def paths(files: pb.FileChanges) -> list[str]:
    return [each.path.removeprefix("/projects/work/") for each in files.changes]


PATTERNS = r"""*.log
/only
build/
a/**/z
**/cache
docs/*.md
!keep.log
temp*
[ab].c
[!x].h
\#odd
\!bang
deep/**
x?y
**/mid/*.o
foo/bar/
#no
é*
[^q].t
q\*r

/
w**v
"""
NAMES = """x.log keep.log only sub/only build/f sub/build/f build.d/f a/z a/b/c/z cache/f p/cache/f
    docs/a.md docs/b/c.md temp1 t/temp2/f a.c c.c x.h y.h #odd !bang deep/f/g deep2 xzy x-/y mid/a.o
    p/mid/b.o p/mid/q/c.o foo/bar/f z/foo/bar/f éa p.t q.t q*r qxr wv waav trailing sub/mine
    sub/x/mine""".split()  # noqa: SIM905 - readable as prose


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_git_ignores_the_same(place: Place) -> None:
    (place.path / ".gitignore").write_text(f"{PATTERNS}trailing   \nkept\\ \n")
    (place.path / "sub").mkdir()
    (place.path / "sub/.gitignore").write_text("!build/\n/mine\n")
    for name in (*NAMES, "kept "):
        (place.path / name).parent.mkdir(parents=True, exist_ok=True)
        (place.path / name).write_text(name)
    for command in (["init", "-q"], ["ls-files", "-o", "-z", "--exclude-standard"]):
        git = subprocess.run(["git", *command], cwd=place.path, check=True, capture_output=True)
    seen = set(git.stdout.decode().split("\0")) - {""}
    kept = list[bytes]()
    tree = Tree(
        os.open(place.path, os.O_PATH),
        Project(name="work", path=str(place.path)),
        lambda _, data: kept.append(data),
    )
    assert set(tree.look().files) == seen
    assert tree.ignores


def test_a_hostile_pattern_takes_no_time() -> None:
    hostile = rules("*a" * 60 + "b\n" + "**/" * 60 + "x\n")
    began = time.monotonic()
    for _ in range(200):
        assert decides(hostile, ["d", *["a" * 60] * 30], is_directory=False) is None
    assert time.monotonic() - began < 2


async def test_nothing_of_a_repository_runs_and_nested_ones_are_files(
    place: Place, tmp_path: Path
) -> None:
    """Filters, attributes, fsmonitor, hooks, includes, alternates, commondir, a `.git` file."""
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    changes = place.changes()

    def plant() -> None:
        inner = place.path / "inner"
        for name in ("hooks", "objects/info", "info", "refs"):
            (inner / ".git" / name).mkdir(parents=True)
        (inner / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (inner / ".git/config").write_text(
            f"[core]\n\tfsmonitor = {script}\n\thooksPath = /\n[include]\n\tpath = {script}\n"
            f'[filter "evil"]\n\tclean = {script}\n\tsmudge = {script}\n[diff "evil"]\n'
            f"\ttextconv = {script}\n\tcommand = {script}\n"
        )
        (inner / ".git/commondir").write_text("/\n")
        (inner / ".git/objects/info/alternates").write_text("/\n")
        shutil.copy(script, inner / ".git/hooks/post-index-change")
        (inner / ".gitattributes").write_text("* filter=evil diff=evil text eol=crlf ident\n")
        (inner / "f.txt").write_bytes(b"$Id$\r\n")
        (place.path / "module").mkdir()
        (place.path / "module/.git").write_text(f"gitdir: {inner}/.git\n")
        (place.path / "module/-rf").write_text("x")

    found = await place.during(changes, plant)
    assert paths(found) == ["inner/.gitattributes", "inner/f.txt", "module/-rf"]
    kept = changes.versions.of_turn("s", "t")
    assert kept is not None
    (file,) = (each for each in kept[2] if each.path == "inner/f.txt")
    assert changes.text(file.after) == ("$Id$\r\n", False)
    assert not (tmp_path / "ran").exists()


async def test_no_link_is_followed_and_no_pipe_is_opened(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret of the host")
    (place.path / ".env").write_text("hidden secret")
    changes = place.changes(hidden=[".env"])

    def plant() -> None:
        os.mkfifo(place.path / "pipe")
        (place.path / "out").symlink_to(tmp_path / "secret")
        (place.path / "up").symlink_to(tmp_path)
        shutil.rmtree(place.path / "src")
        (place.path / "src").symlink_to(tmp_path)
        (place.path / ".env").write_text("hidden secret 2")

    found = await place.during(changes, plant)
    assert paths(found) == ["out", "src", "src/a.txt", "up"]
    changes.close()
    kept = b"".join(each.read_bytes() for each in place.kept.parent.glob("changed-files.db*"))
    for version in (changes.versions.of_turn("s", "t") or ("", None, []))[2]:
        assert b"secret of" not in (changes.versions.data(version.after) or b"")
    assert b"hidden" not in kept


async def test_odd_names_and_depths(place: Place) -> None:
    changes = place.changes()
    odd = [b"-rf", b"a\nb", b"\xff\xfe", b" ", b"\xe2\x80\xae", b".git2", b"CON"]

    def plant() -> None:
        for name in odd:
            (place.path / os.fsdecode(name)).write_text("x")
        here = os.open(place.path, os.O_PATH)
        for _ in range(3_000):
            os.mkdir("d" * 100, dir_fd=here)
            below = os.open("d" * 100, os.O_PATH, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)

    found = await place.during(changes, plant)
    subprocess.run(["rm", "-rf", place.path / ("d" * 100)], check=True)
    assert found.files == len(odd)
    assert all("\n" not in each and each.isprintable() for each in paths(found))


async def test_what_is_large_is_told_and_cannot_be_taken_back(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "COPIED_MAX_BYTES", 10)
    big = place.path / "big"
    big.write_text("0123456789a\n")
    changes = place.changes()
    found = await place.during(changes, lambda: big.write_text("0123456789b\n"))
    (change,) = found.changes
    assert (change.kind, change.undoable, change.binary) == ("changed", False, True)


async def test_a_change_that_keeps_size_and_time_is_found(place: Place) -> None:
    changes, file = place.changes(), place.path / "src/a.txt"

    def change(text: str) -> None:
        status = file.stat()
        file.write_text(text)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    for number in range(20):
        text = f"{number % 10}\n"
        assert (await place.during(changes, lambda text=text: change(text))).files == 1


async def test_the_first_look_holds_no_turn_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, real = threading.Event(), Tree.look

    def slow(tree: Tree, until: float | None = None) -> look.Differences:
        go.wait(20)
        return real(tree, until)

    monkeypatch.setattr(Tree, "look", slow)
    project = Project(name="work", path=str(place.path), writable=True)
    changes = Changes([(os.open(place.path, os.O_PATH), project)], place.kept)
    place.opened.append(changes)
    changes.start()
    found = await place.during(changes, (place.path / "new").touch)
    assert (found.uncounted, found.files) == (changing.STILL_LOOKING, 0)
    with pytest.raises(GuestError) as raised, changes.taking_back("s undo"):
        pass
    assert raised.value.code is Code.UNAVAILABLE
    go.set()
    assert changes.ready.wait(20)
    assert paths(await place.during(changes, (place.path / "new2").touch)) == ["new2"]


async def test_a_look_that_takes_too_long_is_told_and_made_up_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = place.changes()
    monkeypatch.setattr(changing, "LOOK_S", -1.0)
    found = await place.during(changes, (place.path / "new").touch)
    assert "took too long" in found.uncounted
    monkeypatch.setattr(changing, "LOOK_S", 10.0)
    assert changes.ready.wait(20)
    assert paths(await place.during(changes, (place.path / "new2").touch)) == ["new2"]


async def test_a_flood_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "FILES_MAX", 3)
    changes = place.changes()

    def flood() -> None:
        for number in range(5):
            (place.path / str(number)).touch()

    assert "more than 3 files" in (await place.during(changes, flood)).uncounted
    project = Project(name="work", path=str(place.path))
    with pytest.raises(UnfinishedError):
        Tree(os.open(place.path, os.O_PATH), project, lambda *_: None).look()


async def test_a_full_disk_is_told_and_stops_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = place.changes()
    monkeypatch.setattr(file_versions, "shortage", lambda *_: "1 MiB left")
    found = await place.during(changes, lambda: (place.path / "src/a.txt").write_text("b\n"))
    assert found.files == 1
    assert found.uncounted == "the disk is full: 1 MiB left"
    monkeypatch.setattr(file_versions, "shortage", lambda *_: "")
    assert paths(await place.during(changes, (place.path / "n").touch)) == ["n"]


async def test_a_damaged_file_of_versions_begins_anew(place: Place) -> None:
    place.kept.write_bytes(b"no database" * 1_000)
    changes = place.changes()
    assert (await place.during(changes, (place.path / "n").touch)).files == 1


def test_versions_are_bounded_in_size_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_versions, "KEPT_TURNS", 2)
    versions = FileVersions(tmp_path / "v.db", most_bytes=300_000)
    for number in range(6):
        made = Version("f644", bytes([number]) * 20)
        versions.keep(made.digest, os.urandom(100_000))
        changed = [Changed("work", "a", None, made)]
        versions.add("s", f"t{number}", pb.FileChanges(files=1), changed)
    assert "have reached" in versions.full
    assert [bool((versions.of_turn("s", f"t{n}") or ("", None, []))[2]) for n in range(6)] == (
        [False] * 4 + [True] * 2
    )
    assert set(versions.receipts("s", ["t0", "t5", "x"])) == {"t0", "t5"}
    versions.prune([])
    assert (tmp_path / "v.db").stat().st_size < 100_000
    versions.close()


def test_versions_are_bounded_in_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = FileVersions(tmp_path / "v.db")
    changed = [Changed("work", "a", None, Version("f644", b"x" * 20))]

    def kept() -> list[int]:
        found = [versions.of_turn("s", each) for each in ("old", "new")]
        return [len(each[2]) for each in found if each is not None]

    versions.add("s", "old", pb.FileChanges(files=1), changed)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 30 * 86_400 - 60)
    versions.add("s", "new", pb.FileChanges(files=1), changed)
    assert kept() == [1, 1]
    monkeypatch.setattr(time, "time", lambda: now + 30 * 86_400 + 60)
    versions.add("s", "newer", pb.FileChanges(files=1), changed)
    assert kept() == [0, 1]
    versions.close()


def test_a_receipt_and_a_diff_are_bounded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = place.changes()
    monkeypatch.setattr(changing, "LISTED_MAX", 2)
    monkeypatch.setattr(changing, "DIFF_MAX_BYTES", 60)
    made = Version("f644", b"x" * 20)
    changes.versions.keep(made.digest, b"a\n")
    changed = [Changed("work", name, None, made) for name in ("a", "b", "c")]
    receipt = changes.told(changed)
    assert (receipt.files, receipt.added, paths(receipt)) == (3, 3, ["a", "b"])
    diff, cut = changes.diff(changed)
    assert cut
    assert 0 < len(diff) <= 60
    assert not changes.diff(changed[:1])[1]


def test_a_small_change_of_a_long_file_is_a_small_diff(place: Place) -> None:
    changes = place.changes()
    lines = [f"{number % 7}\n" for number in range(9_000)]
    changes.versions.keep(b"one", "".join(lines).encode())
    lines[5_000:5_001] = ["new\n", "newer\n"]
    changes.versions.keep(b"two", "".join(lines).encode())
    one, two = Version("f644", b"one"), Version("f644", b"two")
    diff, _ = changes.diff([Changed("work", "a", one, two)])
    assert diff.splitlines()[2:] == [
        *("@@ -4998,7 +4998,8 @@", " 6", " 0", " 1", "-2", "+new", "+newer", " 3", " 4", " 5"),
    ]


@pytest.mark.parametrize("matched", [True, False])
def test_lines_are_counted(*, matched: bool) -> None:
    assert counted(b"a\nb\nc\n", b"a\nB\nc\nd\n", matched=matched) == (2, 1, False)
    assert counted(b"", b"a", matched=matched) == (1, 0, False)
    assert counted(b"a\0", b"a", matched=matched) == (0, 0, True)


def test_counting_takes_no_time_whatever_the_lines() -> None:
    first = b"".join(b"%d\n" % (number % 7) for number in range(40_000))
    mixed = b"".join(b"%d\n" % (number * 7 % 150) for number in range(20_000))
    began = time.monotonic()
    counted(first, first[1:])
    assert counted(b"a\n" + mixed + b"b\n", b"c\n" + mixed[::-1] + b"d\n").binary is False
    assert time.monotonic() - began < 2


def test_rules_of_a_hostile_project_neither_hang_nor_hide(place: Place) -> None:
    """git knows no ends of lines but one; a line of brackets was read for hours."""
    (place.path / ".gitignore").write_text("x\u2028*\nx\x0b*\r\nlog\r\n" + "[" * 200_000)
    project = Project(name="work", path=str(place.path))
    tree = Tree(os.open(place.path, os.O_PATH), project, lambda *_: None)
    assert "src/a.txt" in tree.look().files
    assert decides(rules("log\r\n"), ["log"], is_directory=False)


async def test_one_directory_holds_no_turn_up_and_directories_are_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, real = place.changes(), look.version_of

    def slow(*given: object) -> object:
        time.sleep(0.05)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(look, "version_of", slow)
    monkeypatch.setattr(changing, "LOOK_S", 0.2)

    def many() -> None:
        for number in range(100):
            (place.path / str(number)).touch()

    began = time.monotonic()
    assert "took too long" in (await place.during(changes, many)).uncounted
    assert time.monotonic() - began < 2
    monkeypatch.setattr(look, "FILES_MAX", 3)
    for number in range(5):
        (place.path / f"src/{number}").mkdir()
    root = os.open(place.path / "src", os.O_PATH)
    with pytest.raises(UnfinishedError):
        Tree(root, Project(name="work", path=str(place.path)), lambda *_: None).look()


@pytest.mark.parametrize("name", [".GIT", "git~1", ".git .", ".g\u200cit", "WALL"])
async def test_what_only_resembles_a_wall_is_told(place: Place, name: str) -> None:
    (place.path / "wall").mkdir()
    changes = place.changes(walls=["wall"])

    def plant() -> None:
        (place.path / name).mkdir()
        (place.path / name / "f").touch()

    assert len((await place.during(changes, plant)).changes) == 1


async def test_what_comes_into_what_was_moved_aside_is_told_in_later_turns(place: Place) -> None:
    aside, moved = place.path / "x.aside-1", set[str]()
    project = Project(name="work", path=str(place.path), writable=True)
    changes = Changes([(os.open(place.path, os.O_PATH), project)], place.kept, moved)
    place.opened.append(changes)
    changes.start()
    assert changes.ready.wait(20)

    def move() -> None:
        aside.mkdir()
        moved.add("/projects/work/x.aside-1")

    assert paths(await place.during(changes, move, (aside / "hook").touch)) == []
    assert paths(await place.during(changes, (aside / "new").touch)) == ["x.aside-1/new"]


async def test_a_mode_that_gives_rights_is_told(place: Place) -> None:
    changes, file = place.changes(), place.path / "src/a.txt"
    (change,) = (
        await place.during(changes, lambda: file.chmod(file.stat().st_mode | 0o4000))
    ).changes
    assert change.kind == "mode"


async def test_a_large_file_with_its_time_set_back_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look, "COPIED_MAX_BYTES", 10)
    big = place.path / "big"
    big.write_text("0123456789a\n")
    os.utime(big, (1, 1))
    changes = place.changes()

    def change() -> None:
        with big.open("r+") as file:
            file.write("x")
        os.utime(big, (1, 1))

    assert paths(await place.during(changes, change)) == ["big"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENAMETOOLONG, errno.EIO])
async def test_what_cannot_be_read_is_not_told_as_deleted_and_said(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    changes, real, new = place.changes(), os.scandir, place.path / "new"

    def broken(directory: int) -> object:
        if Path(f"/proc/self/fd/{directory}").readlink().name in ("src", "new"):
            raise OSError(error, os.strerror(error))
        return real(directory)

    monkeypatch.setattr(os, "scandir", broken)
    found = await place.during(changes, new.mkdir, (new / "f").touch)
    assert found.files == 0
    assert found.uncounted == "what is in some directories cannot be read: /projects/work/new"


async def test_what_others_changed_before_a_tool_is_not_told_as_the_tools(place: Place) -> None:
    """Taking it back without a question would lose what they wrote."""
    changes = place.changes()
    mine, own, twice = (place.path / name for name in ("src/a.txt", "own", "twice"))

    async def tool(path: Path, text: str) -> None:
        whole = f"/projects/work/{path.relative_to(place.path)}"
        await changes.begin("s t", whole)
        path.write_text(text)
        changes.touched("s t", whole)

    await changes.begin("s t")
    mine.write_text("the operator's\n")
    await tool(mine, "the tool's\n")
    await tool(own, "1")
    await tool(own, "2")
    await tool(twice, "1")
    twice.write_text("the operator's")
    await tool(twice, "2")
    found = await changes.ended("s t", "s", "t")
    assert found is not None
    by_tool = dict(zip(paths(found), (each.by_tool for each in found.changes), strict=True))
    assert by_tool == {"src/a.txt": False, "own": True, "twice": False}

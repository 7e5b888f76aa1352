"""What may run when the operator only opens a project, or uses git or a shell in it: the watch.

A wall is a mount and needs no watch. All else is compared with what was there before: what is new
or changed, and not in the allow-list, is moved aside in its own directory. What changed while
nothing was watched is the operator's.
"""

import asyncio
import hashlib
import os
import re
import secrets
import shlex
import stat
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from wire.disk import held, whole_file
from wire.kernel.beneath import Beneath, PathEscapeError, best_beneath
from wire.text import visible_name
from wire.v1.bootstrap_pb2 import Project

from guest.projects import git
from guest.projects.git import plain

ENTRIES_MAX: Final = 500_000
"""How many entries a project may have; a directory counts as ten."""
KEPT_MAX_BYTES: Final = 256 * 1024
"""The size up to which a file can be read and put back."""
_READ_MAX_BYTES: Final = 32 * 1024 * 1024
"""How much is read anew in one walk."""
RACY_NS: Final = 2 * 10**9
"""How long after a change the times of a file may stay the same at the next one."""
_TOLD_MAX: Final = 20
_SHOWN_MAX: Final = 200
"""The characters of a path that are shown."""
_WALKS_MAX: Final = 3
ROUNDS_MAX: Final = 30

_RUN: Final = re.compile(
    r"""\.envrc|\.mcp\.json|\.oxydra.*|\.autoenv(\.zsh)?|\.env\.zsh|\.exrc|\.l?vimrc|\.nvimrc
    |\.nvim\.lua|runner\.toml|\.dir-locals(-2)?\.el|\.?mise(\.[\w-]+)*\.toml|\.gdbinit|\.lldbinit|hgrc
    |\.devcontainer\.json|opencode\.jsonc?|.*\.code-workspace""",
    re.VERBOSE,
)
_EDITOR: Final = re.compile(
    r"\.(vscode|idea|devcontainer|zed|fleet|helix|mise|claude|cursor|gemini|codex|opencode|hg|jj)"
)
"""Directories of editors, agents and others that run what they say."""
_RUN_BELOW: Final = re.compile(
    r"(tasks|devcontainer|settings|settings\.local|mcp)\.json|hgrc|(config|languages)\.toml"
    r"|(workspace|startup)\.xml"
)
"""What of these runs something also where they were lifted, or are not at the top."""
_SYSTEM: Final = re.compile(r"/(usr|bin|sbin|lib|lib32|lib64|nix/store)/.*|/dev/null")
"""Where links may lead out of a project: it belongs to root, and no guest writes there."""
_LINKS_MAX: Final = 40
_LEADS: Final = ("pointer", "link")
"""Are judged by where they lead, in each walk: what stands there may be another thing by now."""
_RULES: Final = re.compile(
    r"(agents|claude|gemini)(\.\w+)?\.md|\.(cursor|windsurf|cline)rules|copilot-instructions\.md"
)
"""What tells an agent how to work here. It runs nothing, so it is told and stays."""
_BELOW_EDITOR: Final = "\0"
_BELOW_LIFTED: Final = "\1"
"""Stand for the path in a git directory, below an editor's directory."""
_WHY: Final = {
    "config": "git may run what it sets, or it cannot be read",
    "pointer": "it does not lead to a git directory of this project",
    "link": "it leads out of the project",
    "sample": "it is not git's own sample of a hook",
    "text": "git may run what it says; `git rebase --abort` or `git bisect reset` ends it",
    "head": "with it, git would run what stands beside it",
    "runs": "it may run something when the project is opened or git is used",
}


class _Entry(NamedTuple):
    """A watched entry. `within` is its path in its git directory, `stamp` changes with it, `data`
    is what a small file says, or where a link leads."""

    role: str
    within: str
    status: os.stat_result
    stamp: tuple[int, ...]
    data: bytes | None

    def same(self, old: "_Entry") -> bool:
        mode, had = self.status.st_mode, old.status.st_mode
        if (self.role, self.within, stat.S_IFMT(mode)) != (old.role, old.within, stat.S_IFMT(had)):
            return False
        if self.data is not None and old.data is not None:
            return self.data == old.data and not mode & 0o111 & ~had
        return not stat.S_ISREG(mode) or _identity(self.status) == _identity(old.status)


class _Place(NamedTuple):
    """A directory as it was listed. `within` is its path in its git directory, "" for that itself,
    None outside of one. `head` makes it one where its own name does not."""

    stamp: tuple[int, ...]
    given: str | None
    within: str | None
    head: str
    size: int
    below: list[tuple[str, str | None]]
    marked: list[tuple[str, str, str]]


@dataclass
class _Seen:
    """What a walk has found, by path, and why it is not whole."""

    places: dict[str, _Place] = field(default_factory=dict)
    entries: dict[str, _Entry] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    read: int = 0

    def gits(self) -> set[str]:
        return {path for path, place in self.places.items() if place.within == ""}


class Directories:
    """Those of a project, open as `root`, are opened over no link and, where no mounts of ours are,
    into no other file system. `beneath` is how; the best way on this system by default."""

    def __init__(self, root: int, project: Project, beneath: Beneath | None = None) -> None:
        self.root = root
        on_host = project.path != f"/projects/{project.name}"
        self.beneath = beneath or best_beneath(links=False, one_mount=on_host)

    def open(self, path: str, access: int = os.O_RDONLY) -> AbstractContextManager[int]:
        """The directory at a path below the project; empty for its own. Raises as `Beneath`."""
        flags = access | os.O_DIRECTORY | os.O_NOFOLLOW
        return held(self.beneath.open(self.root, path or ".", flags))


class _Tree:
    """One project, open as `root`. `before` is what was there when the watch began."""

    def __init__(
        self, root: int, project: Project, beneath: Beneath | None, moved: set[str]
    ) -> None:
        self.path = f"/projects/{project.name}"
        self._roots = (self.path, project.path.rstrip("/"))
        self._walls = [each for each in project.walls if plain(each.rpartition("/")[2]) == ".git"]
        self._lifted = {plain(each) for each in project.lifted}
        self._directory = Directories(root, project, beneath).open
        self.before = self._last = _Seen()
        self.moved = moved
        self._astray = set[str]()
        self._left = set[str]()
        self._known: set[str] | None = None
        covered = (each for each in project.hidden if _is_there(root, each))
        self._skipped = frozenset((*project.walls, *covered))

    def begin(self) -> None:
        """Whatever is there now is the operator's, but for what the last turn left wrong, and for
        directories that it did not see."""
        now, left, known = self._walk(), self._left, self._known
        if left or known is not None:
            now.lost += self.before.lost
            now.places = {
                path: place
                for path, place in now.places.items()
                if left.isdisjoint(_upwards(path)) and (known is None or path in known)
            }
            now.entries = {
                path: entry
                for path, entry in now.entries.items()
                if path not in left and path.rpartition("/")[0] in now.places
            }
        gits = now.gits()
        self._astray = {
            path
            for path, entry in now.entries.items()
            if entry.role in _LEADS and not self._allows(path, entry, gits, now.entries)
        }
        self.before = now

    def check(self) -> list[str]:
        """Move aside what is not allowed; returns what is told of it."""
        told, rounds, there = list[str](), ROUNDS_MAX, self.before.places
        while rounds and self._has_moved(told):  # what is in a directory that was moved is new
            rounds -= 1
        if not rounds:
            tops = {
                next((each for each in reversed(_upwards(path)) if each not in there), path)
                for path, role in self._wrong(self._walk()).items()
                if role in _WHY
            }
            for top in sorted(tops):
                said, _, aside = self._put_aside(top, None, "do not enter it, it was not looked at")
                told.insert(0, said)
                self._left.add(aside)
            told.insert(
                0, f"{self.path} could not be watched whole: too much in it was moved aside"
            )
        return told

    def _has_moved(self, told: list[str]) -> bool:
        now, before = self._walk(), self.before
        rules, done, found = list[str](), set[str](), dict(now.entries)
        moved = False
        self._left, self._known = set(), None
        wrong = self._wrong(now)
        same = {
            path
            for path, role in wrong.items()
            if role in _LEADS
            and before.entries.get(path, found[path]._replace(data=None)).data == found[path].data
        }
        for path, role in sorted(wrong.items(), key=lambda each: (each[0] in same, each[0])):
            old, named = before.entries.get(path), self._named(path)
            if path in same:
                old = None  # it would be wrong again
                if moved:  # what was put on its way is gone
                    now.entries[path] = found[path]
                    continue
            if role in ("added", "changed", "removed"):
                rules.append(f"{named} was {role}")
            elif before.lost and path.rpartition("/")[0] not in before.places:
                told.append(f"{named} may be new, look at it: {_WHY[role]}")
                self._left.add(path)
            elif done.isdisjoint(map(str, PurePosixPath(path).parents)):
                done.add(path)
                if role == "config" and old is None:
                    old = self._harmless(path, found[path])
                said, is_back, aside = self._put_aside(path, old, _WHY[role])
                told.append(said)
                if old is not None and is_back:
                    now.entries[path] = old._replace(stamp=())
                if aside == path:
                    self._left.add(path)
                else:
                    moved = True
        if now.lost:
            told.insert(0, f"{self.path} could not be watched whole: {now.lost[0]}")
            now.places, now.entries = before.places | now.places, before.entries | now.entries
            self._known = set(now.places)
        now.lost = before.lost
        self.before = now
        told += rules
        return moved

    def _walk(self) -> _Seen:
        for _ in range(_WALKS_MAX):
            self._last = seen = self._walk_once()
            if "" not in seen.lost:
                return seen
        seen.lost[:] = ["directories in it were renamed all the time"]
        return seen

    def _walk_once(self) -> _Seen:
        """A walk; "" is lost if something was renamed meanwhile."""
        seen, room = _Seen(), ENTRIES_MAX
        queue: deque[tuple[str, str | None]] = deque([("", None)])
        while queue and room >= 0:
            path, given = queue.popleft()
            try:
                with self._directory(path) as descriptor:
                    place = seen.places[path] = self._place(descriptor, path, given, room)
                    for name, role, part in place.marked:
                        self._mark(seen, descriptor, join(path, name), role, part)
            except PathEscapeError:
                continue  # a link by now, or another file system, which no guest sees
            except OSError as error:
                is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
                seen.lost.append("" if is_gone else f"{self._named(path)}: {error.strerror}")
                continue
            room -= place.size
            for name, within in place.below:  # what matters first, however much there is besides
                (queue.append if within is None else queue.appendleft)((join(path, name), within))
        if room < 0:
            seen.lost.append(f"it has more than {ENTRIES_MAX:,} entries")
        return seen

    def _place(self, descriptor: int, path: str, given: str | None, room: int) -> _Place:
        """The directory, listed again only if it may have changed since."""
        stamp = _stamp(os.fstat(descriptor))
        known = self._last.places.get(path)
        if known is not None and known.stamp == stamp and known.given == given:
            return known
        names: dict[str, str] = {}
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if join(path, entry.name) not in self._skipped:
                    names[entry.name] = _kind(entry)
                if len(names) > room:
                    break
        makes = {plain(name): name for name in names if plain(name) in git.MAKES}
        is_git = "head" in makes and ("commondir" in makes or {"refs", "objects"} <= makes.keys())
        is_named = given == "" or (given or "").startswith(("modules/", "worktrees/"))
        head = makes["head"] if is_git and not is_named else ""
        place = _Place(stamp, given, "" if is_git else given, head, len(names) + 10, [], [])
        for name, kind in names.items():
            role, within, is_part = self._judged(name, kind, path, place)
            if kind == "directory":
                place.below.append((name, within))
            if role := role or ("link" if kind == "link" else ""):
                place.marked.append((name, role, (within or "") if is_part else ""))
        return place

    def _judged(
        self, name: str, kind: str, path: str, place: _Place
    ) -> tuple[str, str | None, bool]:
        """What an entry is watched as, where in a git directory it is, or what is below it, and
        whether it is part of that."""
        key, within = plain(name), place.within
        if key == ".git":
            is_plain = name == ".git" and kind in ("directory", "file")
            return "runs" if not is_plain else "pointer" if kind == "file" else "", "", False
        if name[:-8].endswith(".aside-"):
            return "", None, False
        if within == _BELOW_LIFTED:
            is_free = not (_RUN_BELOW.fullmatch(key) or _RUN.fullmatch(key))
            return "" if is_free else "runs", within, False
        if within == _BELOW_EDITOR:
            return "runs", within, False
        if within is not None and (not place.head or key in git.READS):
            return git.role(kind, join(within, name)), join(within, name), True
        if _RUN.fullmatch(key) or plain(join(path, name)).endswith(".config/mise"):
            return "runs", _BELOW_EDITOR, False
        if _EDITOR.fullmatch(key):
            is_lifted = kind == "directory" and (path != "" or key in self._lifted)
            return ("", _BELOW_LIFTED, False) if is_lifted else ("runs", _BELOW_EDITOR, False)
        return "rules" if _RULES.fullmatch(key) else "", None, False

    def _mark(self, seen: _Seen, descriptor: int, path: str, role: str, within: str) -> None:
        """Look at an entry; only a small regular file is opened."""
        name = path.rpartition("/")[2]
        try:
            found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
        except FileNotFoundError:
            return
        with held(found):
            status, old = os.fstat(found), self._last.entries.get(path)
            stamp, data = _stamp(status), None
            if old is not None and old.stamp == stamp:
                data = old.data
            elif stat.S_ISLNK(status.st_mode):
                data = os.fsencode(os.readlink("", dir_fd=found))
            elif (
                stat.S_ISREG(status.st_mode)
                and status.st_size <= KEPT_MAX_BYTES
                and seen.read < _READ_MAX_BYTES
            ):
                seen.read += status.st_size
                with suppress(OSError), Path(f"/proc/self/fd/{found}").open("rb") as file:
                    data = file.read(status.st_size + 1)
                data = data if data is not None and len(data) <= status.st_size else None
        seen.entries[path] = _Entry(role, within, status, stamp, data)

    def _wrong(self, now: _Seen) -> dict[str, str]:
        """What is not allowed or must be told, and why; what is not allowed is taken from `now`."""
        gits, known, before = now.gits(), self.before.gits(), self.before.entries
        entries = dict(now.entries)
        renamed = {
            _renamed(path, entry)
            for path, entry in before.items()
            if entry.role not in _LEADS
            or (entry.role == "link" and path in self._astray and (entry.data or b"")[:1] == b"/")
        }
        new = {
            path: entry
            for path, entry in now.entries.items()
            if not (path in before and entry.same(before[path]) and self._is_settled(path, entry))
            and _renamed(path, entry) not in renamed
        }
        gone = [path for path in before.keys() - now.entries.keys() if before[path].role == "rules"]
        wrong = dict.fromkeys(gone, "removed")
        for pointers in (False, True):  # at last, because others may be git directories no more
            for path, entry in new.items():
                root = path.removesuffix(entry.within).rstrip("/")
                if entry.role == "rules":
                    wrong[path] = "changed" if path in before else "added"
                elif (entry.role == "pointer") == pointers and not self._allows(
                    path, entry, gits, entries
                ):
                    del now.entries[path]
                    if entry.within and root not in known and now.places[root].head:
                        gits.discard(root)
                        wrong[join(root, now.places[root].head)] = "head"
                    else:
                        wrong[path] = entry.role
        return wrong

    def _is_settled(self, path: str, entry: _Entry) -> bool:
        return entry.role not in _LEADS or path in self._astray

    def _allows(self, path: str, entry: _Entry, gits: set[str], entries: dict[str, _Entry]) -> bool:
        here, data = path.rpartition("/")[0], entry.data
        if entry.role == "link":
            return self._stays(path, entries)
        if not stat.S_ISREG(entry.status.st_mode) or data is None:
            return False
        if entry.role == "sample":
            return hashlib.sha256(data).hexdigest()[:24] in git.samples()
        if entry.role == "text":
            return git.runs_nothing(entry.within, data)
        if entry.role == "config":
            old, leads = self.before.entries.get(path), partial(self._resolved, here)
            with suppress(ValueError):
                had = git.may_run((old and old.data) or b"", leads)[0]
                return had == git.may_run(data, leads)[0]
        if entry.role != "pointer":
            return False
        said = os.fsdecode(data).removesuffix("\n")
        if path.rpartition("/")[2] == ".git":
            said = said.removeprefix("gitdir: ") if said.startswith("gitdir: ") else ""
        target = self._resolved(here, said)
        if target is None or PurePosixPath(entry.within).name == "gitdir":
            return target is not None and plain(target.rpartition("/")[2]) == ".git"
        return target in gits or any(f"{target}/".startswith(f"{wall}/") for wall in self._walls)

    def _resolved(self, here: str, path: str) -> str | None:
        """Where `path`, as it is written in the directory `here`, leads; None if that is out of the
        project, or cannot be said because a link may be on the way."""
        if not path or "\\" in path or not path.isprintable():
            return None
        for root in self._roots:
            if f"{path}/".startswith(f"{root}/"):
                path, here = path[len(root) :].strip("/"), ""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        base = here.split("/") if here else []
        while parts and parts[0] == ".." and base:
            del parts[0], base[-1]
        return None if ".." in parts or path.startswith("/") else "/".join((*base, *parts))

    def _stays(self, path: str, entries: dict[str, _Entry]) -> bool:
        """Whether a path leads to something in the project, over any links, or to the system's."""
        base, parts, links = list[str](), path.split("/"), 0
        while parts:
            part = parts.pop(0)
            if part == ".." and not base:
                return False
            if part == "..":
                base.pop()
            elif part not in ("", "."):
                base.append(part)
                entry = entries.get("/".join(base))
                if entry is None or entry.data is None or not stat.S_ISLNK(entry.status.st_mode):
                    continue
                base.pop()
                target, links = os.fsdecode(entry.data), links + 1
                for root in self._roots:
                    if f"{target}/".startswith(f"{root}/"):
                        target, base = target[len(root) :].lstrip("/"), []
                parts = [*target.split("/"), *parts]
                if target.startswith("/") or links > _LINKS_MAX:
                    return _SYSTEM.fullmatch(target) is not None and ".." not in parts
        return True

    def _harmless(self, path: str, entry: _Entry) -> _Entry | None:
        """A new configuration with only those of its settings that run nothing."""
        if entry.data is None or not stat.S_ISREG(entry.status.st_mode):
            return None
        with suppress(ValueError):
            leads = partial(self._resolved, path.rpartition("/")[0])
            return entry._replace(data=git.may_run(entry.data, leads)[1])
        return None

    def _put_aside(self, path: str, old: _Entry | None, why: str) -> tuple[str, bool, str]:
        """Rename an entry and put back what was there. Returns what is told, whether it is
        back, and where the entry is now."""
        above, _, name = path.rpartition("/")
        kept = os.fsdecode(os.fsencode(name.replace(":", "_"))[:200])
        aside = f"{kept}.aside-{secrets.token_hex(4)}"
        is_back, lost = False, ""
        try:
            with self._directory(above) as descriptor:
                os.rename(name, aside, src_dir_fd=descriptor, dst_dir_fd=descriptor)
                to = _unlinked(descriptor, aside)
                if old is not None and old.data is not None:
                    try:
                        _put_back(descriptor, name, old)
                        is_back = True
                    except OSError as error:
                        lost = f"; what is to stand there could NOT be written ({error.strerror})"
        except (OSError, PathEscapeError) as error:
            reason = getattr(error, "strerror", "") or "a link is on the way"
            return f"{self._named(path)} could NOT be moved aside ({reason}): {why}", False, path
        now = join(above, aside)
        self.moved.add(join(self.path, now))
        command = ["mv", "-T", "--", now] if to is None else ["ln", "-sfT", "--", to]
        back = visible_name(shlex.join([*command, path]))
        had = "what was there before is back"
        had = had if path in self.before.entries else "its settings that run nothing stay"
        was = f"; {had}" if is_back else lost
        said = f"moved {self._named(path)} aside: {why}{was}"
        if len(back) > 2 * _SHOWN_MAX:
            return f"{said}; it is beside it as {_shortened(visible_name(aside))}", is_back, now
        return f"{said}; if it is right, run `{back}` in the project", is_back, now

    def _named(self, path: str) -> str:
        return _shortened(visible_name(join(self.path, path)))


def join(above: str, name: str) -> str:
    """A path below another one, either of which may be empty."""
    return f"{above}/{name}" if above and name else above or name


def _upwards(path: str) -> tuple[str, ...]:
    """A path and the directories that it is in, without the root."""
    return (path, *map(str, list(PurePosixPath(path).parents)[:-1]))


def _shortened(path: str) -> str:
    half = _SHOWN_MAX // 2
    return path if len(path) <= _SHOWN_MAX else f"{path[:half]} … {path[-half:]}"


def _renamed(path: str, entry: _Entry) -> tuple[object, ...]:
    """The same for an entry that only came to another place, and is read there as it was."""
    root = path.removesuffix(entry.within).rstrip("/").split("/")
    names = root[-1:] if entry.within or _RUN.fullmatch(plain(root[-1])) else root[-2:]
    return (entry.role, entry.within, entry.stamp, *names)


def _is_there(root: int, path: str) -> bool:
    """Whether something stood at `path` when the guest started, so that it was covered."""
    try:
        os.close(best_beneath(links=False).open(root, path, os.O_PATH | os.O_NOFOLLOW))
    except (OSError, ValueError, PathEscapeError):
        return False
    return True


def _unlinked(descriptor: int, name: str) -> str | None:
    """Make a link, which would lead on under any name, a file that says where it led."""
    try:
        to = os.readlink(name, dir_fd=descriptor)
    except OSError:
        return None
    os.unlink(name, dir_fd=descriptor)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with (
        suppress(OSError),  # where it led is told, too
        os.fdopen(os.open(name, flags, 0o644, dir_fd=descriptor), "wb") as file,
    ):
        file.write(os.fsencode(to))
    return to


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    if entry.is_symlink():
        return "link"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """Changes with a file; is never the same again, if it was changed so recently that its times
    may stay."""
    now = time.time_ns()
    return (now,) if status.st_ctime_ns > now - RACY_NS else _identity(status)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def _put_back(descriptor: int, name: str, old: _Entry) -> None:
    data, status = old.data or b"", old.status
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.fsdecode(data), name, dir_fd=descriptor)
        return
    with whole_file(name, descriptor) as file:
        file.write(data)
        with suppress(OSError):
            os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))


class Watch:
    """Watches `projects`, each with its open directory, while a command or a turn runs; any number
    at once. `beneath` is how directories are opened, the best way on this system by default."""

    def __init__(
        self, projects: Iterable[tuple[int, Project]], beneath: Beneath | None = None
    ) -> None:
        self.moved = set[str]()
        """Where what was moved aside lies, as virtual paths."""
        self._trees = [
            _Tree(root, each, beneath, self.moved) for root, each in projects if each.writable
        ]
        self._told: dict[str, list[str]] = {}
        self._has_begun = False
        self._lock = threading.Lock()

    @asynccontextmanager
    async def call(self, turn: str, told: list[str]) -> AsyncIterator[None]:
        """Watch a call of `turn`, which must be ended; of none, if that is empty. What is told of
        it is in `told` at the end."""
        alone = not turn
        self._told.setdefault(turn := turn or secrets.token_hex(), [])
        try:
            await asyncio.to_thread(self._begin)
            yield
        finally:
            told += await (self.end(turn) if alone else asyncio.to_thread(self._check))

    async def end(self, turn: str) -> list[str]:
        """End a turn: all that is told of it. Nothing if none of its calls was watched."""
        return await asyncio.to_thread(self._check, turn) if turn in self._told else []

    async def look(self) -> None:
        """Look while a command runs: what is found is told at the end of each call and turn."""
        await asyncio.to_thread(self._check)

    def _begin(self) -> None:
        with self._lock:
            if self._told and not self._has_begun:
                for each in self._trees:
                    each.begin()
                self._has_begun = True

    def _check(self, ending: str = "") -> list[str]:
        with self._lock:
            trees = self._trees if self._has_begun else []
            told = [line for each in trees for line in each.check()]
            if (more := len(told) - _TOLD_MAX) > 0:
                told[_TOLD_MAX:] = [f"and {more} more"]
            for each in self._told.values():
                each += (line for line in told if line not in each)
            told = self._told.pop(ending, told)
            self._has_begun = bool(self._told)
            return told

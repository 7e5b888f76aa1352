"""What a turn changed in the files of projects, found by comparing before and after.

The first look is made in the background when the guest starts. A turn is compared from its first
call that may change a file to its end. What somebody else changes meanwhile is "changed during this
turn"; what a file tool left as it is at the end was made by it.
"""

import asyncio
import difflib
import logging
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from wire.errors import Code
from wire.text import visible_name
from wire.v1 import gateway_pb2 as pb
from wire.v1.bootstrap_pb2 import Project

from guest.errors import GuestError
from guest.projects.file_versions import DIRECTORY, Changed, FileVersions
from guest.projects.look import Tree, UnfinishedError, Version

log = logging.getLogger(__name__)

LISTED_MAX: Final = 100
DIFF_MAX_BYTES: Final = 2**20
LOOK_S: Final = 10.0
"""How long a call or a turn waits for a look."""
_FIRST_LOOK_S: Final = 600.0
_COUNTING_S: Final = 1.0
"""How long lines of a turn are matched; then they are counted without their order."""
_MATCHED_MAX: Final = 4_000_000
"""The product of two numbers of lines up to which they are matched."""
_CONTEXT: Final = 3
"""The lines around a change in a diff."""
_PROJECTS: Final = "/projects/"
STILL_LOOKING: Final = "the first look at the files still ran when the turn began"


@dataclass
class _Turn:
    """A turn that has begun to change files: what was there before, by project and path."""

    before: dict[tuple[str, str], Version | None] = field(default_factory=dict)
    made: set[tuple[str, str]] = field(default_factory=set)
    touched: dict[tuple[str, str], object] = field(default_factory=dict)
    others: set[tuple[str, str]] = field(default_factory=set)
    """What somebody else has changed before a file tool did."""
    moved: frozenset[str] = frozenset()
    uncounted: str = ""
    begun: bool = False


class Lines(NamedTuple):
    added: int = 0
    removed: int = 0
    binary: bool = False


class Changes:
    """Looks at the projects that can be written, and keeps in `path` what turns changed there.
    `moved` is what the watch has moved aside."""

    def __init__(
        self,
        projects: Iterable[tuple[int, Project]],
        path: Path,
        moved: Collection[str] = (),
    ) -> None:
        self._moved = moved
        self.versions = FileVersions(path)
        self._trees = {
            project.name: Tree(root, project, self.versions.keep)
            for root, project in projects
            if project.writable
        }
        self._turns: dict[str, _Turn] = {}  # may grow while a look runs: go through a copy
        self._lock = threading.RLock()
        self.ready: Final = threading.Event()
        """Set once the first look is done."""
        self._closed = threading.Event()
        self._failed = ""

    def start(self) -> None:
        if self._trees:
            self._look_behind()

    def close(self) -> None:
        """Idempotent. A look that runs ends with the process."""
        self._closed.set()
        if self._lock.acquire(timeout=0.5):
            try:
                self.versions.close()
            finally:
                self._lock.release()

    def _look_behind(self) -> None:
        self.ready.clear()
        threading.Thread(target=self._first, name="changes", daemon=True).start()

    def _first(self) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._failed = self._looked(_FIRST_LOOK_S)
            try:
                self._prune()
            except (sqlite3.Error, OSError) as error:
                log.warning("old versions of files could not be removed: %s", error)
            self.ready.set()

    def _looked(self, within_s: float) -> str:
        """Look at all; returns why that could not be done, or empty."""
        until = time.monotonic() + within_s
        try:
            for name, tree in self._trees.items():
                found = tree.look(until)
                for turn in [each for each in list(self._turns.values()) if each.begun]:
                    for path, before in found.files.items():
                        turn.before.setdefault((name, path), before)
                    turn.made |= {(name, path) for path in found.made}
            self.versions.flush()
        except UnfinishedError as error:
            return str(error)
        except (sqlite3.Error, OSError) as error:
            log.warning("what is in the files of projects could not be kept: %s", error)
            return f"what was there could not be kept: {error}"
        return ""

    async def begin(self, turn: str, path: str = "") -> None:
        """Take what is there before a call of a turn that may change files, if it is the first. A
        file tool is about to change what is at a virtual `path`: it counts, even if ignored."""
        if self._trees:
            begun = self._turns.setdefault(turn, _Turn(moved=frozenset(self._moved)))
            tree, below = self._place(path)
            if not begun.begun:
                await asyncio.to_thread(self._begin, begun)
            if tree is not None and self.ready.is_set():
                await asyncio.to_thread(self._count, begun, tree, below)

    def _count(self, turn: _Turn, tree: Tree, path: str) -> None:
        with self._lock:
            tree.count(path)
            left = turn.touched.get((tree.name, path), self)
            if not (tree.is_as_seen(path) if left is self else left == tree.stamp(path)):
                turn.others.add((tree.name, path))

    def _place(self, path: str) -> tuple[Tree | None, str]:
        """The project of a virtual path, and what is below it; None for any other path."""
        if not path.startswith(_PROJECTS):
            return None, ""
        name, _, below = str(PurePosixPath(path)).removeprefix(_PROJECTS).partition("/")
        return self._trees.get(name) if below else None, below

    def _begin(self, turn: _Turn) -> None:
        if not self.ready.is_set():
            turn.uncounted, turn.begun = STILL_LOOKING, True
            return
        with self._lock:
            if turn.begun:
                return
            turn.uncounted = why = self._failed or self._looked(LOOK_S)
            turn.begun = True
        if why != self._failed:
            self._look_behind()

    def touched(self, turn: str, path: str) -> None:
        """Note that a file tool has just changed what is at a virtual path."""
        tree, below = self._place(path)
        if (found := self._turns.get(turn)) is not None and tree is not None:
            found.touched[tree.name, below] = tree.stamp(below)

    async def ended(self, turn: str, session_id: str, turn_id: str) -> pb.FileChanges | None:
        """End a turn: what it changed; None if no call of it may have changed something."""
        if turn not in self._turns:
            return None
        return await asyncio.to_thread(self.end, turn, session_id, turn_id)

    def end(self, turn: str, session_id: str, turn_id: str) -> pb.FileChanges | None:
        """As `ended`, in a thread."""
        found = self._turns[turn]
        if found.uncounted and not self.ready.is_set():
            self._turns.pop(turn, None)
            return pb.FileChanges(uncounted=found.uncounted)
        with self._lock:
            why = self._looked(LOOK_S) if found.begun else ""
            self._turns.pop(turn, None)
            if not found.begun:
                return None
            changed = list[Changed]()
            if why := found.uncounted or why:
                receipt = pb.FileChanges(uncounted=why)
            else:
                changed = list(self._compared(found))
                receipt = self.told(changed)
                receipt.uncounted = self.versions.full or self._unread()
            receipt.ignored = any(tree.ignores for tree in self._trees.values())
            if changed or receipt.uncounted:
                self._keep(session_id, turn_id, receipt, changed)
            return receipt

    def _unread(self) -> str:
        for name, tree in self._trees.items():
            if tree.unread:
                path = visible_name(f"{_PROJECTS}{name}/{min(tree.unread)}")
                return f"what is in some directories cannot be read: {path[:200]}"
        return ""

    def _keep(
        self, session_id: str, turn_id: str, receipt: pb.FileChanges, changed: list[Changed]
    ) -> None:
        try:
            self.versions.add(session_id, turn_id, receipt, changed)
        except (sqlite3.Error, OSError) as error:
            log.warning("a receipt of changed files could not be kept: %s", error)
            receipt.uncounted = f"what was changed could not be kept, and not be undone: {error}"
            for each in receipt.changes:
                each.undoable = False

    def _compared(self, turn: _Turn) -> Iterator[Changed]:
        moved = set(self._moved) - turn.moved  # what comes into it in a later turn is told
        for (name, path), before in sorted(turn.before.items()):
            tree = self._trees[name]
            after = tree.version(path)
            changed = Changed(name, path, before, after)
            if before == after or (before is None and _is_below(moved, changed)):
                continue
            left = turn.touched.get((name, path), self)
            by_tool = left is not self and left == tree.stamp(path)
            yield changed._replace(by_tool=by_tool and (name, path) not in turn.others)
        for name, path in sorted(turn.made):
            made = Changed(name, path, None, DIRECTORY)
            if self._trees[name].has_directory(path) and not _is_below(moved, made):
                yield made

    @contextmanager
    def taking_back(self, turn: str) -> Iterator[None]:
        """As a turn, while files are put back: no other one begins to change files. Raises
        `GuestError` if one has, or if it is not known what is there."""
        if not self.ready.is_set() and self._trees:
            raise GuestError(
                Code.UNAVAILABLE,
                "nothing can be taken back yet: the first look at the files still runs",
                resolution="try again in a few seconds",
            )
        with self._lock:
            if others := ", ".join(each.partition(" ")[0] for each in list(self._turns)):
                raise GuestError(
                    Code.FAILED_PRECONDITION,
                    "a turn runs that may change files",
                    details=f"in the session {others}",
                    resolution="wait for its end, or end it, in a chat by Ctrl-C",
                )
            self._turns[turn] = _Turn()
            try:
                self._begin(self._turns[turn])
                if why := self._turns[turn].uncounted:
                    raise GuestError(Code.UNAVAILABLE, f"nothing is taken back: {why}")
                yield
            finally:
                self._turns.pop(turn, None)

    def version(self, each: Changed) -> Version | None:
        """What is there now, as the last look has seen it."""
        return self._trees[each.project].version(each.path)

    async def receipts(
        self, session_id: str, turn_ids: Sequence[str]
    ) -> Mapping[str, pb.FileChanges]:
        """What turns of a session changed, by their ids, as far as it is kept."""
        if not (turn_ids and self.versions.exists):
            return {}
        try:
            return await asyncio.to_thread(self.versions.receipts, session_id, turn_ids)
        except (sqlite3.Error, OSError) as error:
            log.warning("receipts of changed files could not be read: %s", error)
            return {}

    def told(self, changed: Iterable[Changed]) -> pb.FileChanges:
        receipt, until = pb.FileChanges(), time.monotonic() + _COUNTING_S
        for each in changed:
            if each.is_directory:
                continue
            change = self.change(each, matched=time.monotonic() < until)
            receipt.files += 1
            receipt.added += change.added
            receipt.removed += change.removed
            if len(receipt.changes) < LISTED_MAX:
                receipt.changes.append(change)
        return receipt

    def change(self, each: Changed, *, matched: bool = True) -> pb.FileChange:
        before, after = self.versions.data(each.before), self.versions.data(each.after)
        known = (before is not None or each.before is None) and (
            after is not None or each.after is None
        )
        same = each.says_the_same
        lines = Lines() if same else counted(before or b"", after or b"", matched=matched)
        kind = "added" if each.before is None else "deleted" if each.after is None else "changed"
        return pb.FileChange(
            path=visible_name(each.whole),
            kind="mode" if same else kind,
            added=lines.added if known else 0,
            removed=lines.removed if known else 0,
            by_tool=each.by_tool,
            binary=lines.binary or not known,
            undoable=each.before is None or before is not None,
        )

    def diff(self, changed: Iterable[Changed]) -> tuple[str, bool]:
        """What changed as a unified diff, and whether it was cut."""
        found, size, until = list[str](), 0, time.monotonic() + _COUNTING_S
        for each in changed:
            if each.is_directory:
                continue
            for line in self._diff_of(each, matched=time.monotonic() < until):
                size += len(line.encode()) + 1
                if size > DIFF_MAX_BYTES:
                    return "".join(found), True
                found.append(f"{line}\n")
        return "".join(found), False

    def _diff_of(self, each: Changed, *, matched: bool) -> Iterator[str]:
        path = visible_name(each.whole)
        old, new = (path if version else "/dev/null" for version in (each.before, each.after))
        before, after = self.versions.data(each.before), self.versions.data(each.after)
        if each.before and each.after and each.before.kind != each.after.kind:
            yield f"mode {path}: {_mode(each.before)} -> {_mode(each.after)}"
        if each.says_the_same:
            return
        first, then = _text(before), _text(after)
        if first is None or then is None or (before is None and after is None):
            yield f"{path}: not text, or not kept"
            return
        begin, end = _same_ends(first, then)
        if matched and (len(first) - begin - end) * (len(then) - begin - end) <= _MATCHED_MAX:
            skipped, left = max(begin - _CONTEXT, 0), max(end - _CONTEXT, 0)
            had, has = (each[skipped : len(each) - left] for each in (first, then))
            for line in difflib.unified_diff(had, has, old, new, lineterm="", n=_CONTEXT):
                yield visible_line(_moved(line, skipped) if line.startswith("@@") else line)
            return
        yield from (f"--- {old}", f"+++ {new}", f"@@ -1,{len(first)} +1,{len(then)} @@")
        yield from (visible_line(f"-{line}") for line in first)
        yield from (visible_line(f"+{line}") for line in then)

    def text(self, version: Version | None) -> tuple[str, bool]:
        """What a version says, at most 1 MiB, and whether that is not all; empty of what is no
        text."""
        data = self.versions.data(version)
        if data is None or b"\0" in data:
            return "", False
        return data[:DIFF_MAX_BYTES].decode(errors="replace"), len(data) > DIFF_MAX_BYTES

    async def forget(self, session_ids: Sequence[str]) -> None:
        """Forget what the turns of sessions changed, and what is kept for them alone."""
        if self.versions.exists:
            try:
                await asyncio.to_thread(self._forget, session_ids)
            except (sqlite3.Error, OSError) as error:
                log.warning("what a forgotten session changed in files is still kept: %s", error)

    def _forget(self, session_ids: Sequence[str]) -> None:
        with self._lock:
            self.versions.forget(session_ids)
            self._prune()

    def _prune(self) -> None:
        trees = self._trees.values()
        self.versions.prune(version.digest for tree in trees for version in tree.versions())


def _is_below(paths: Iterable[str], changed: Changed) -> bool:
    return any(f"{changed.whole}/".startswith(f"{each}/") for each in paths)


def _mode(version: Version) -> str:
    return "120000" if version.kind == "l" else f"100{version.kind[1:]}"


def visible_line(line: str) -> str:
    """A line of a diff on one line, whatever stands in it."""
    return "".join(
        each if each.isprintable() or each == "\t" else visible_name(each) for each in line
    )


def counted(before: bytes, after: bytes, *, matched: bool = True) -> Lines:
    if b"\0" in before or b"\0" in after:
        return Lines(binary=True)
    first, then = before.splitlines(), after.splitlines()
    begin, end = _same_ends(first, then)
    first, then = first[begin : len(first) - end], then[begin : len(then) - end]
    if matched and len(first) * len(then) <= _MATCHED_MAX:
        matcher = difflib.SequenceMatcher(None, first, then)
        same = sum(block.size for block in matcher.get_matching_blocks())
        return Lines(len(then) - same, len(first) - same)
    had, has = Counter(first), Counter(then)
    return Lines((has - had).total(), (had - has).total())


def _same_ends(first: Sequence[object], then: Sequence[object]) -> tuple[int, int]:
    """How many lines are the same at the beginning, and how many of the others at the end."""
    begin, end = 0, 0
    most = min(len(first), len(then))
    while begin < most and first[begin] == then[begin]:
        begin += 1
    while end < most - begin and first[-1 - end] == then[-1 - end]:
        end += 1
    return begin, end


def _moved(header: str, lines: int) -> str:
    """The header of a hunk that is so many lines further down."""
    return re.sub(r"(?<=[-+])\d+", lambda number: str(int(number[0]) + lines), header)


def _text(data: bytes | None) -> list[str] | None:
    """The lines of a text; none of what is not there, None of what is none."""
    if not data:
        return []
    text = data.decode(errors="replace").removesuffix("\n")
    return None if b"\0" in data else text.split("\n")

"""file_list and file_search; a result says when it is incomplete."""

import fnmatch
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import Field
from wire.disk import held
from wire.text import visible_name

from guest.errors import ToolError
from guest.tools.base import EXCERPT_CONTEXT_CHARS, Arguments, Excerpt, ToolOutput
from guest.tools.files.content import encoding_of
from guest.tools.files.read import PATH_MAX_CHARS
from guest.tools.files.roots import Location, NotDirectoryError, Roots

_DEPTH_MAX: Final = 5
_ENTRIES_MAX: Final = 200
_MATCHES_MAX: Final = 100
WALK_MAX_ENTRIES: Final = 20_000
_SEARCH_MAX_DEPTH: Final = 32
_SEARCH_MAX_BYTES: Final = 64 * 1024 * 1024
_SEARCH_MAX_S: Final = 8.0
ANSWER_MAX_BYTES: Final = 12 * 1024
_FILE_MAX_BYTES: Final = 4 * 1024 * 1024
_LINE_SHOWN_CHARS: Final = 200
_NOT_ENTERED: Final = frozenset(
    {".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache"}
)
"""Directories of a project that are looked into only where a path names them."""


class ListArguments(Arguments):
    path: str = Field(
        default="/shared", max_length=PATH_MAX_CHARS, description="A directory, e.g. /shared."
    )
    depth: int = Field(
        default=1, ge=1, le=_DEPTH_MAX, description="How many levels of directories to show."
    )
    limit: int = Field(default=100, ge=1, le=_ENTRIES_MAX, description="Entries at most.")


class SearchArguments(Arguments):
    query: str = Field(
        min_length=1, max_length=500, description="Text to find in the lines of files; no pattern."
    )
    path: str = Field(
        default="/shared", max_length=PATH_MAX_CHARS, description="A file or a directory."
    )
    glob: str = Field(
        default="*", min_length=1, max_length=200, description="Which file names, e.g. *.md."
    )
    case_sensitive: bool = False
    max_results: int = Field(default=30, ge=1, le=_MATCHES_MAX)


@dataclass(frozen=True)
class _Entry:
    """A directory entry; the descriptor `directory` is open while the entry is in use."""

    path: str
    name: str
    status: os.stat_result
    directory: int


def list_files(roots: Roots, arguments: ListArguments) -> ToolOutput:
    """The entries of a directory, sorted by path."""
    if roots.paths.above_projects(arguments.path):
        projects = [
            {"path": each.path, "type": "directory", "writable": each.writable}
            for each in roots.paths.projects
        ]
        told = f"{len(projects)} projects"
        return ToolOutput({"path": "/projects", "entries": projects}, (), told, len(projects))
    location = roots.paths.parse(arguments.path)
    shown: list[dict[str, Any]] = []
    total = 0
    room = ANSWER_MAX_BYTES
    with roots.directory(location) as descriptor:
        for entry in _walk(descriptor, location.path, arguments.depth, _skipped(location)):
            total += 1
            described = _described(entry)
            room -= _cost(described)
            if len(shown) < arguments.limit and room >= 0:
                shown.append(described)
            if total == WALK_MAX_ENTRIES:
                break
    notes = []
    if total > len(shown):
        more = "at least " if total == WALK_MAX_ENTRIES else ""
        notes.append(f"{len(shown)} of {more}{total} entries are shown; list a subdirectory")
    return ToolOutput(
        {"path": location.virtual, "entries": shown},
        tuple(notes),
        f"{total} entries",
        total,
        material=(location.virtual,),
    )


class _Search:
    """A search in progress: its matches, what it skipped, and its remaining limits."""

    def __init__(self, roots: Roots, arguments: SearchArguments) -> None:
        self.matches: list[dict[str, Any]] = []
        self.searched = self.binary = self.large = 0
        self.stopped = ""
        self._roots = roots
        self._arguments = arguments
        self._query = self._fold(arguments.query)
        self._bytes_left = _SEARCH_MAX_BYTES
        self._room = ANSWER_MAX_BYTES
        self._deadline = time.monotonic() + _SEARCH_MAX_S

    def look_into(self, path: str) -> bool:
        """Search one file; returns False if the whole search is over."""
        if self._bytes_left <= 0 or time.monotonic() > self._deadline:
            self.stopped = "the search is bounded and stopped early; search a subdirectory"
            return False
        try:
            with self._roots.file(self._roots.paths.parse(path)) as descriptor:
                raw = os.read(descriptor, _FILE_MAX_BYTES + 1)
        except (ToolError, OSError):
            return True
        self._bytes_left -= len(raw)
        encoding = encoding_of(raw)
        if not encoding:
            self.binary += 1
            return True
        self.large += len(raw) > _FILE_MAX_BYTES
        self.searched += 1
        return self._collect(path, raw.decode(encoding, errors="replace"))

    def _collect(self, path: str, text: str) -> bool:
        place = 0
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            found = self._fold(line).find(self._query)
            if found >= 0:
                match = _match(path, number, line, found, text, place)
                self._room -= _cost({**match, "text": match["text"].text})
                if len(self.matches) == self._arguments.max_results or self._room < 0:
                    self.stopped = f"only the first {len(self.matches)} matches are shown"
                    return False
                self.matches.append(match)
            place += len(line)
        return True

    def _fold(self, text: str) -> str:
        return text if self._arguments.case_sensitive else text.lower()


def search_files(roots: Roots, arguments: SearchArguments) -> ToolOutput:
    """The lines that contain a text, in files whose names match."""
    location = roots.paths.parse(arguments.path)
    search = _Search(roots, arguments)
    skipped: set[str] = set()
    for path in _candidates(roots, location, arguments.glob, skipped):
        if not search.look_into(path):
            break
    notes = [search.stopped] if search.stopped else []
    if skipped:
        notes.append(f"not searched unless path names it: {', '.join(sorted(skipped))}")
    if search.binary:
        notes.append(f"{search.binary} binary files were skipped")
    if search.large:
        notes.append(f"of {search.large} large files only the first 4 MiB were searched")
    count = len(search.matches)
    data = {"matches": search.matches, "files_searched": search.searched}
    return ToolOutput(
        data,
        tuple(notes),
        f"{count} match{'' if count == 1 else 'es'}",
        count,
        material=tuple(dict.fromkeys(match["path"] for match in search.matches)),
    )


def _match(path: str, number: int, line: str, found: int, text: str, place: int) -> dict[str, Any]:
    begin = max(0, found - _LINE_SHOWN_CHARS // 2)
    shown = line[begin : begin + _LINE_SHOWN_CHARS].rstrip("\r\n")
    start, end = place + begin, place + begin + len(shown)
    before = text[max(0, start - EXCERPT_CONTEXT_CHARS) : start]
    after = text[end : end + EXCERPT_CONTEXT_CHARS]
    return {"path": visible_name(path), "line": number, "text": Excerpt(shown, before, after)}


def _candidates(roots: Roots, location: Location, glob: str, skipped: set[str]) -> list[str]:
    """The files to search: those below a directory, or the named file. The names of directories
    that are not entered go to `skipped`."""
    shut = _skipped(location)
    try:
        with roots.directory(location) as descriptor:
            entries = _walk(descriptor, location.path, _SEARCH_MAX_DEPTH, shut)
            found = [entry for entry, _ in zip(entries, range(WALK_MAX_ENTRIES), strict=False)]
            skipped |= {each.name for each in found if each.name in shut}
            if len(found) == WALK_MAX_ENTRIES:
                skipped.add(f"what comes after the first {WALK_MAX_ENTRIES:,} entries")
            return [
                entry.path
                for entry in found
                if stat.S_ISREG(entry.status.st_mode) and fnmatch.fnmatchcase(entry.name, glob)
            ]
    except NotDirectoryError:
        with roots.file(location):
            return [location.path]


def _skipped(location: Location) -> frozenset[str]:
    return _NOT_ENTERED if location.root.is_project else frozenset()


def _walk(descriptor: int, path: str, depth: int, shut: frozenset[str]) -> Iterator[_Entry]:
    """Entries below an open directory, sorted, without following symlinks or entering what is
    `shut`."""
    with os.scandir(descriptor) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield _Entry(f"{path}/{name}", name, status, descriptor)
        if depth > 1 and stat.S_ISDIR(status.st_mode) and name not in shut:
            with _subdirectory(descriptor, name) as below:
                if below is not None:
                    yield from _walk(below, f"{path}/{name}", depth - 1, shut)


def _subdirectory(descriptor: int, name: str) -> AbstractContextManager[int | None]:
    """`name` opened without following symlinks; None if it is no longer a directory."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        below = os.open(name, flags, dir_fd=descriptor)
    except OSError:
        return nullcontext()
    return held(below)


def _described(entry: _Entry) -> dict[str, Any]:
    status = entry.status
    modified = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    return {
        "path": visible_name(entry.path),
        "type": _type(status.st_mode),
        "size_bytes": status.st_size,
        "modified": modified,
    }


def _cost(entry: dict[str, Any]) -> int:
    """How many bytes `entry` takes in an answer, which is JSON."""
    return len(json.dumps(entry, ensure_ascii=False).encode()) + 2


def _type(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "special"

"""Where git, run by the operator in a directory, looks for what it runs. Git is never asked: it
runs what it finds. Its configuration is read as far as it names places."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from runner.workspace.directories import descriptor

_FILES_MAX: Final = 32
_BYTES_MAX: Final = 1024 * 1024
_SECTION: Final = re.compile(r'\s*\[\s*([-.\w]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]')
_VALUE: Final = re.compile(r"\s*([-\w]+)\s*=\s*((?:\"(?:[^\"\\]|\\.)*\"|\\.|[^#;\"\\])*)")
_PLACES: Final = {("core", "hookspath"): False, ("include", "path"): True}
"""What names a place, and whether that is a configuration, too."""


def places(project: Path) -> Iterator[Path]:
    """Each directory of hooks and each further configuration that is named where git looks when it
    is run in `project`, as absolute paths that may not exist."""
    top = next((each for each in (project, *project.parents) if _is_there(each / ".git")), None)
    if top is None:
        return
    home = Path("~").expanduser()
    own = _directory_of(top / ".git")
    waiting = [
        *(home / ".gitconfig", home / ".config/git/config", Path("/etc/gitconfig")),
        *(own / "config", own / "config.worktree", _common(own) / "config"),
    ]
    known = set(waiting)
    for file in waiting:
        for is_configuration, place in _named(file, top):
            yield place
            if is_configuration and place not in known and len(waiting) < _FILES_MAX:
                known.add(place)
                waiting.append(place)


def _is_there(path: Path) -> bool:
    with suppress(OSError):
        return os.path.lexists(path)
    return False


def _directory_of(marker: Path) -> Path:
    """The git directory, where `marker` is one or names one."""
    named = re.match(r"gitdir:\s*(.+)", text(marker))
    return marker.parent / named[1].rstrip() if named else marker


def _common(directory: Path) -> Path:
    """The git directory that has the configuration of a worktree."""
    shared = text(directory / "commondir").strip()
    return directory / shared if shared else directory


def _named(file: Path, top: Path) -> Iterator[tuple[bool, Path]]:
    """What a configuration names, and whether that is a configuration. A relative place is one
    below the file's directory, or, of hooks, below the top of the work tree."""
    section = ""
    for line in text(file).replace("\\\n", "").splitlines():
        if found := _SECTION.match(line):
            section = found[1].lower().partition(".")[0].replace("includeif", "include")
            line = line[found.end() :]
        if not (found := _VALUE.match(line)):
            continue
        is_configuration = _PLACES.get((section, found[1].lower()))
        value = re.sub(r"\\(.)|\"", r"\1", found[2]).strip()
        if is_configuration is None or not value:
            continue
        with suppress(RuntimeError):  # an unknown account's home
            base = file.parent if is_configuration else top
            yield is_configuration, Path(os.path.normpath(base / Path(value).expanduser()))


def text(path: Path, most: int = _BYTES_MAX) -> str:
    """What a regular file holds; nothing where there is none. Never waits."""
    with suppress(OSError, ValueError):
        if stat.S_ISREG(path.stat().st_mode):  # a device may do something when it is opened
            with descriptor(os.path.realpath(path), os.O_RDONLY | os.O_NONBLOCK) as fd:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    return os.read(fd, most).decode("utf-8", "surrogateescape")
    return ""

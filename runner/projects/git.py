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
_HOOKS: Final = ("core", "hookspath")
_FURTHER: Final = (("include", "path"), ("includeif", "path"))


def places(project: Path) -> Iterator[Path]:
    """The git directories, and each directory of hooks and each further configuration that is named
    where git looks when it is run in `project`, as absolute paths that may not exist."""
    found = (each for each in (project, *project.parents) if os.path.lexists(each / ".git"))
    if (top := next(found, None)) is None:
        return
    own = top / ".git"
    if named := re.match(r"gitdir:\s*(.+)", _text(own)):
        own = top / named[1].rstrip()
    common, home = own / _text(own / "commondir").strip(), Path("~").expanduser()
    yield from (own, common)
    waiting = [
        *(home / ".gitconfig", home / ".config/git/config", Path("/etc/gitconfig")),
        *(common / "config", own / "config.worktree"),
    ]
    for file in waiting:
        for name, value in _values(_text(file)):
            if name not in (_HOOKS, *_FURTHER):
                continue
            with suppress(RuntimeError):  # an unknown account's home
                base = top if name == _HOOKS else file.parent
                place = Path(os.path.normpath(base / Path(value).expanduser()))
                yield place
                if name != _HOOKS and place not in waiting and len(waiting) < _FILES_MAX:
                    waiting.append(place)


def _values(configuration: str) -> Iterator[tuple[tuple[str, str], str]]:
    """What is set, by section and name in small letters."""
    section = ""
    for line in configuration.replace("\\\n", "").splitlines():
        start = 0
        if found := _SECTION.match(line):
            section, start = found[1].lower().partition(".")[0], found.end()
        if (found := _VALUE.match(line, start)) and (value := found[2].strip()):
            yield (section, found[1].lower()), re.sub(r"\\(.)|\"", r"\1", value)


def _text(path: Path) -> str:
    """What a regular file holds; nothing where there is none. Never waits."""
    with suppress(OSError, ValueError):
        if stat.S_ISREG(path.stat().st_mode):  # a device may do something when it is opened
            with descriptor(os.path.realpath(path), os.O_RDONLY | os.O_NONBLOCK) as fd:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    return os.read(fd, _BYTES_MAX).decode("utf-8", "surrogateescape")
    return ""

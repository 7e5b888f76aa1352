"""Log files of guests and hosts: opened safely, rotated at start, read back for people."""

import itertools
import json
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wire.logs import JsonFormatter
from wire.text import parsed_json

from runner.errors import WorkspaceError, file_errors
from runner.workspace.beneath import clear_in, directory_beneath

if TYPE_CHECKING:
    from wire.settings import LogLevel

ROTATE_BYTES: Final = 10 * 1024 * 1024
ROTATED_FILES: Final = 3
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_BLOCK = 64 * 1024
_POLL_S = 0.2
_LINE_MAX = 1024 * 1024
_TAIL_MAX = 64 * 1024 * 1024
_FIXED: Final = frozenset({"time", "level", "logger", "message", "role", "user", "traceback"})
_LOGGERS = ("runner", "wire")


def open_for_append(path: Path, home: Path) -> int:
    """Open `path` for appending and return the descriptor; rotate it first if it is large.

    Here and below `home` is a directory above the log that only the runner can replace. The way
    from there leads over no link. Raises `WorkspaceError` if `path` is not a plain file or not
    writable.
    """
    with _usable(path), directory_beneath(home, path.parent) as directory:
        if (_length(directory, path.name) or 0) > ROTATE_BYTES:
            _rotate(directory, path)
        fd = _opened(path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, directory)
    os.set_blocking(fd, True)
    return fd


def size(path: Path, home: Path) -> int:
    """The length of a log in bytes; 0 if it does not exist yet."""
    try:
        with directory_beneath(home, path.parent) as directory:
            return _length(directory, path.name) or 0
    except FileNotFoundError:
        return 0


def next_offset(path: Path, home: Path) -> int:
    """The offset at which the next `open_for_append` will write."""
    found = size(path, home)
    return 0 if found > ROTATE_BYTES else found


def read_from(path: Path, home: Path, offset: int, limit: int = _LINE_MAX) -> str:
    """At most the last `limit` bytes of what was written after `offset`."""
    fd = _open_for_reading(path, home)
    if fd is None:
        return ""
    with os.fdopen(fd, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(min(offset, end), end - limit))
        return file.read(limit).decode(errors="replace")


def tail(path: Path, home: Path, count: int) -> tuple[list[str], int]:
    """The last `count` lines and the offset after them."""
    fd = _open_for_reading(path, home)
    if fd is None:
        return [], 0
    with os.fdopen(fd, "rb") as file:
        end = start = file.seek(0, os.SEEK_END)
        parts: deque[bytes] = deque()
        newlines = 0
        while start > 0 and newlines <= count and end - start < _TAIL_MAX:
            step = min(_BLOCK, start)
            start = file.seek(start - step)
            parts.appendleft(file.read(step))
            newlines += parts[0].count(b"\n")
    lines = b"".join(parts).decode(errors="replace").splitlines()
    return lines[-count:] if count else [], end


def follow(path: Path, home: Path, offset: int) -> Iterator[str]:
    """Yield lines as they are written after `offset`, forever, also across rotation.

    Blocks between lines, so run it in a thread of its own or as the only work of a program.
    """
    rest = b""
    inode: int | None = None
    while True:
        fd = _open_for_reading(path, home)
        if fd is not None:
            with os.fdopen(fd, "rb") as file:
                found = os.fstat(file.fileno())
                if (inode is not None and found.st_ino != inode) or found.st_size < offset:
                    offset, rest = 0, b""
                inode = found.st_ino
                file.seek(offset)
                while block := file.read(_BLOCK):
                    offset += len(block)
                    *lines, rest = (rest + block).split(b"\n")
                    if len(rest) > _LINE_MAX:
                        lines, rest = [*lines, rest], b""
                    yield from (line.decode(errors="replace") for line in lines)
        time.sleep(_POLL_S)


def readable(line: str) -> str:
    """A JSON log line as local time, level, logger and message. Other lines are returned
    unchanged."""
    try:
        record: Any = parsed_json(line)
        moment = f"{datetime.fromisoformat(record['time']).astimezone():%Y-%m-%dT%H:%M:%S %Z}"
        text = f"{moment} {record['level']:7} {record['logger']}: {record['message']}"
        extras = [
            f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in record.items()
            if key not in _FIXED
        ]
        text = " ".join([text, *extras])
        if "traceback" in record:
            text += "\n" + str(record["traceback"])
    except (ValueError, KeyError, TypeError, OverflowError):
        text = line
    return printable(text)


def printable(text: str) -> str:
    """`text` with control characters made visible, so that the terminal does not obey them."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _open_for_reading(path: Path, home: Path) -> int | None:
    below = directory_beneath(home, path.parent)
    with _usable(path), suppress(FileNotFoundError), below as directory:
        return _opened(path.name, os.O_RDONLY, directory)
    return None


def _opened(name: str, flags: int, directory: int) -> int:
    fd = os.open(name, flags | _SAFE, 0o600, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("it is not a plain file")
    return fd


def _length(directory: int, name: str) -> int | None:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_size
    except FileNotFoundError:
        return None


def _rotate(directory: int, path: Path) -> None:
    """Give each log the next older name; what stands there and is no file is moved aside."""
    names = [path.name, *(f"{path.name}.{number}" for number in range(1, ROTATED_FILES + 1))]
    for newer, older in reversed(list(itertools.pairwise(names))):
        clear_in(directory, path.with_name(older), keep_file=True)
        if _length(directory, newer) is not None:
            os.rename(newer, older, src_dir_fd=directory, dst_dir_fd=directory)


def _usable(path: Path) -> AbstractContextManager[None]:
    fix = f"move {path} away; a new one is created"
    return file_errors(f"cannot use the log {path}", fix, kind=WorkspaceError)


@contextmanager
def host_log(path: Path, user_id: str, level: "LogLevel") -> Iterator[None]:
    """Also write the log messages of `runner` and `wire` to `path`, as JSON lines."""
    fd = open_for_append(path, path.parent)
    with os.fdopen(fd, "a", encoding="utf-8", errors="replace") as file:
        handler = logging.StreamHandler(file)
        handler.setFormatter(JsonFormatter("host", user_id))
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        before = [logger.level for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.setLevel(level.upper())
        try:
            yield
        finally:
            for logger, old in zip(loggers, before, strict=True):
                logger.removeHandler(handler)
                logger.setLevel(old)

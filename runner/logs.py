"""Log files of guests and hosts: opened safely, rotated at start, read back for people."""

import json
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wire.errors import Code
from wire.logs import JsonFormatter

from runner.errors import WorkspaceError

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


def open_for_append(path: Path) -> int:
    """Open `path` for appending and return the descriptor; rotate it first if it is large.

    Raises `WorkspaceError` if `path` is not a plain file or not writable.
    """
    try:
        if path.lstat().st_size > ROTATE_BYTES:
            _rotate(path)
    except FileNotFoundError:
        pass
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, 0o600)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unusable(path, "it is not a plain file")
    os.set_blocking(fd, True)
    return fd


def size(path: Path) -> int:
    """The length of a log in bytes; 0 if it does not exist yet."""
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def next_offset(path: Path) -> int:
    """The offset at which the next `open_for_append` will write."""
    found = size(path)
    return 0 if found > ROTATE_BYTES else found


def read_from(path: Path, offset: int, limit: int = _LINE_MAX) -> str:
    """At most the last `limit` bytes of what was written after `offset`."""
    fd = _open_for_reading(path)
    if fd is None:
        return ""
    with os.fdopen(fd, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(min(offset, end), end - limit))
        return file.read(limit).decode(errors="replace")


def tail(path: Path, count: int) -> tuple[list[str], int]:
    """The last `count` lines and the offset after them."""
    fd = _open_for_reading(path)
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


def follow(path: Path, offset: int) -> Iterator[str]:
    """Yield lines as they are written after `offset`, forever, also across rotation.

    Blocks between lines, so run it in a thread of its own or as the only work of a program.
    """
    rest = b""
    inode: int | None = None
    while True:
        fd = _open_for_reading(path)
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
    """A JSON log line as time, level, logger and message. Other lines are returned unchanged."""
    try:
        record: Any = json.loads(line)
        text = f"{record['time'][:19]} {record['level']:7} {record['logger']}: {record['message']}"
        extras = [
            f"{key}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in record.items()
            if key not in _FIXED
        ]
        text = " ".join([text, *extras])
        if "traceback" in record:
            text += "\n" + str(record["traceback"])
    except (ValueError, KeyError, TypeError):
        text = line
    return printable(text)


def printable(text: str) -> str:
    """`text` with control characters made visible, so that the terminal does not obey them."""
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def _open_for_reading(path: Path) -> int | None:
    try:
        fd = os.open(path, os.O_RDONLY | _SAFE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unusable(path, "it is not a plain file")
    return fd


def _rotate(path: Path) -> None:
    for number in range(ROTATED_FILES - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if os.path.lexists(older):
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    path.replace(path.with_name(f"{path.name}.1"))


def _unusable(path: Path, why: str) -> WorkspaceError:
    return WorkspaceError(
        Code.FAILED_PRECONDITION,
        f"cannot use the log {path}",
        details=why,
        resolution=f"move {path} away; a new one is created",
    )


@contextmanager
def host_log(path: Path, user_id: str, level: "LogLevel") -> Iterator[None]:
    """Also write the log messages of `runner` and `wire` to `path`, as JSON lines."""
    with os.fdopen(open_for_append(path), "a", encoding="utf-8", errors="replace") as file:
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

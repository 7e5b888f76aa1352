"""The audit log of one user, as the running host writes it.

    <workspace_root>/.audit/<user_id>/000000000001.jsonl   lines, named after the first one
                                      head.json            where the log begins and ends
    <workspace_root>/.audit-begun/<user_id>                an empty file: there is a log

A line is a JSON object: `n`, its number; `prev`, the hash of the line before; what happened; and
`hash`, the SHA-256 of all bytes before it. So no byte of a line can change, and no line be added,
moved or removed, without a contradiction in the lines that follow, or with the head.

No guest mounts that directory. Only the host that holds the user's lock writes. A line is in the
kernel's hands when `append` returns, so it survives the end of this process however that comes, and
is on the disk within `SYNC_S`. Room for lines is set aside in advance: a command that fills the
disk does not end the recording of calls at once.
"""

import asyncio
import contextlib
import ctypes
import errno
import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from wire.errors import Code
from wire.text import parsed_json

from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.errors import HostError
from runner.workspace.directories import check_root, check_tree, create_tree

log = logging.getLogger(__name__)

DIRECTORY: Final = ".audit"
HEAD: Final = "head.json"
BEGUN: Final = ".audit-begun"
MISSING: Final = "it had begun, and all of it is missing"
ROTATE_BYTES: Final = 4 * 1024 * 1024
ROTATE_S: Final = 7 * 86_400
SYNC_S: Final = 1.0
_AHEAD_BYTES: Final = 512 * 1024
_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_LINE_MAX_BYTES: Final = 64 * 1024
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
GENESIS: Final = "0" * 64
"""What stands in for the hash before the first line."""
HEAD_BYTES: Final = 512
_BEFORE_HASH: Final = b',"hash":"'
_AFTER_HASH: Final = b'"}\n'
_SEAL_BYTES: Final = len(_BEFORE_HASH) + 64 + len(_AFTER_HASH)


@dataclass(frozen=True)
class LogLine:
    """One line: its number, the hash before, its own hash, and what it says."""

    number: int
    previous: str
    hash: str
    entry: Mapping[str, Any]


def sealed(number: int, previous: str, entry: Mapping[str, Any]) -> tuple[bytes, str]:
    whole = json.dumps({"n": number, "prev": previous, **entry}, separators=(",", ":"))
    body = whole[:-1].encode()
    digest = hashlib.sha256(body).hexdigest()
    return body + _BEFORE_HASH + digest.encode() + _AFTER_HASH, digest


def opened(line: bytes) -> LogLine:
    """What a whole line says. Raises `ValueError` if it is not as it was written."""
    body, seal = line[:-_SEAL_BYTES], line[-_SEAL_BYTES:]
    digest = hashlib.sha256(body).hexdigest()
    if seal != _BEFORE_HASH + digest.encode() + _AFTER_HASH:
        raise ValueError("its hash does not fit its content")
    found = parsed_json(body.decode() + "}")
    number, previous = found.pop("n", None), found.pop("prev", None)
    if not isinstance(number, int) or not isinstance(previous, str):
        raise ValueError("it has no number or no hash of the line before")
    return LogLine(number, previous, digest, found)


@dataclass(frozen=True)
class Head:
    """Where a log begins and ends: the number of its first line with the hash before that, and the
    number and hash of its last line."""

    first: int = 1
    before: str = GENESIS
    last: int = 0
    hash: str = GENESIS

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `FileNotFoundError` where there is none, `ValueError` where it is damaged."""
        content = path.read_bytes()
        try:
            found = cls(**parsed_json(content.decode()))
        except TypeError as error:
            raise ValueError(str(error)) from None
        if found.encoded() != content:
            raise ValueError("it is not what this program writes")
        return found

    def encoded(self) -> bytes:
        """As it is kept: always of the same length, so that it is written in place."""
        return json.dumps(asdict(self)).encode().ljust(HEAD_BYTES - 1) + b"\n"


class LogLocation:
    """Where the log of one user lies. Touches nothing on disk by itself."""

    def __init__(self, root: Path, user_id: str) -> None:
        self.root = root
        self.user_id = check_user_id(user_id)
        self.directory = root / DIRECTORY / self.user_id
        self.head = self.directory / HEAD
        self.begun = root / BEGUN / self.user_id
        self._relative = (DIRECTORY, f"{DIRECTORY}/{self.user_id}")

    @classmethod
    def locate(cls, config: Config, user_id: str) -> Self:
        return cls(config.workspace_root, user_id)

    def check(self) -> None:
        """Check that the directories belong to us. Raises `WorkspaceError`."""
        check_tree(self.root, (*self._relative, BEGUN))

    def create(self) -> None:
        """Create the directories, private to this account. Idempotent."""
        check_root(self.root, private=False)
        create_tree(self.root, (*self._relative, BEGUN))

    @property
    def is_missing(self) -> bool:
        """Whether a log had begun here of which nothing is left."""
        if not self.begun.exists() or any(each.stat().st_size for each in self.files()):
            return False
        return not self.head.exists() or self.head.read_bytes() == Head().encoded()

    def files(self) -> list[Path]:
        """The files of lines, oldest first."""
        return sorted(self.directory.glob("[0-9]" * 12 + ".jsonl"))


class AuditLog:
    """Appends to a user's log. The caller holds the user's lock.

    Args:
        place: Where it lies.
        keep_days: Files whose last line is older are removed, which the log itself says.

    Attributes:
        head: The anchors of the log as it is now.
    """

    def __init__(self, place: LogLocation, keep_days: int) -> None:
        self.place = place
        self._keep_s = keep_days * 86_400
        self.head = Head()
        self._head_fd = -1
        self._fd = -1
        self._size = self._room = 0
        self._begun = 0.0
        self._unsynced = False

    def open(self) -> str:
        """Take up the log, or begin one. Returns what is wrong with it; empty: nothing.

        A line that a crash has cut off is removed, and one that the head had missed is taken in:
        both are noted in the log. What a crash cannot have done is noted too, and found again by
        each verification. Raises `WorkspaceError` or `OSError` if the place cannot be used.
        """
        self.place.create()
        missing = MISSING if self.place.is_missing else ""
        self.head, torn, wrong = self._taken_up()
        wrong = wrong or missing
        self._head_fd = os.open(self.place.head, _APPEND & ~os.O_APPEND, 0o600)
        self._open_file(rotate=False)
        self.place.begun.touch(0o600)
        unfinished = self._unfinished()
        self.note("opened", torn_bytes=torn, wrong=wrong)
        for number, call in unfinished.items():
            if call:
                self.note("end", begin=number, call=call, outcome="interrupted", duration_ms=0)
            else:
                self.note("egress-end", begin=number, outcome="cut", duration_ms=0)
        self._drop_old()
        return wrong

    def close(self) -> None:
        """Note the end of the recording, and write everything to the disk. Idempotent."""
        if self._fd >= 0:
            try:
                self.note("closed")
            except HostError as error:
                log.error("%s: %s", error.brief, error.details)
        for fd in (self._fd, self._head_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.fsync(fd)
                os.close(fd)
        self._fd = self._head_fd = -1

    def note(self, event: str, **fields: Any) -> int:
        """Append what has happened now to this user's calls; returns the line's number.

        Raises `HostError` (UNAVAILABLE) if it cannot be written; then nothing of it is there.
        """
        if self._size > ROTATE_BYTES or (self._size and time.time() - self._begun > ROTATE_S):
            self._open_file(rotate=True)
            self._drop_old()
        number = self.head.last + 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {"event": event, "time": now, "user": self.place.user_id, **fields}
        line, digest = sealed(number, self.head.hash, entry)
        head = Head(self.head.first, self.head.before, number, digest)
        try:
            self._set_aside()
            _write_all(self._fd, line)
            os.pwrite(self._head_fd, head.encoded(), 0)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
                self._room = self._size
            raise _unwritable(self.place.directory, error) from None
        self._size += len(line)
        self.head = head
        self._unsynced = True
        return number

    async def keep_synced(self) -> None:
        """Write to the disk again and again what was appended, until cancelled."""
        while True:
            await asyncio.sleep(SYNC_S)
            if self._unsynced:
                self._unsynced = False
                try:
                    await asyncio.to_thread(os.fdatasync, self._fd)
                    await asyncio.to_thread(os.fdatasync, self._head_fd)
                except OSError as error:
                    log.error("the audit log is not on the disk: %s", error)

    def _unfinished(self) -> dict[int, str]:
        """What the last recording has left open, by the numbers of the lines: the ids of calls, and
        nothing for requests that left by egress."""
        begun: dict[int, str] = {}
        ended: set[int] = set()
        for path in reversed(self.place.files()):
            for line in reversed(path.read_bytes().splitlines(keepends=True)):
                try:
                    link = opened(line)
                except ValueError:
                    continue
                match link.entry:
                    case {"event": "opened" | "closed"}:
                        return dict(reversed(begun.items()))
                    case {"event": "end" | "egress-end", "begin": int(number)}:
                        ended.add(number)
                    case {"event": "egress", "decision": "allowed"} if link.number not in ended:
                        begun[link.number] = ""
                    case {"event": "begin", "call": str(call)} if link.number not in ended:
                        begun[link.number] = call
        return dict(reversed(begun.items()))

    def _taken_up(self) -> tuple[Head, int, str]:
        """The head to go on from, how many bytes of a cut-off line there are, what is wrong."""
        files, wrong = self.place.files(), ""
        try:
            head = Head.read(self.place.head)
        except (FileNotFoundError, ValueError) as error:
            head = Head()
            if files or not isinstance(error, FileNotFoundError):
                wrong = f"its head is missing or damaged ({error})"
        while files and not wrong and int(files[0].stem) < head.first:
            files.pop(0).unlink()  # it was dropped, and the host died before it was gone
        if not files:
            return head, 0, wrong or (f"all lines up to {head.last} are gone" if head.last else "")
        end = _FileEnd.of(files[-1])
        if wrong:
            head = Head(int(files[0].stem), GENESIS)
        if end.last is None:
            if end.whole or head.last != int(files[-1].stem) - 1:
                wrong = wrong or f"the last line of {files[-1].name} is missing or damaged"
            return replace(head, last=max(head.last, int(files[-1].stem) - 1)), end.torn, wrong
        number, digest = end.last.number, end.last.hash
        next_one = number == head.last + 1 and end.last.previous == head.hash
        if not wrong and not next_one and (number, digest) != (head.last, head.hash):
            wrong = f"it ends with line {number}, and its head says {head.last}"
        return replace(head, last=max(number, head.last), hash=digest), end.torn, wrong

    def _open_file(self, *, rotate: bool) -> None:
        """Open the file that the next line goes to. On a full disk the old one is used on."""
        files = self.place.files()
        end = _FileEnd.of(files[-1]) if files and not rotate else None
        if end is not None and end.last is None and end.whole:
            end = None  # nothing can follow what is damaged
        path = files[-1] if end is not None else self._next_file(files)
        fd = os.open(path, _APPEND, 0o600)
        if rotate and not _set_aside(fd, 0):
            os.close(fd)
            path.unlink()
            return
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
        self._fd, self._size = fd, end.whole if end is not None else 0
        self._room = self._size
        os.ftruncate(fd, self._size)
        self._begun = _begun(path) if self._size else time.time()

    def _next_file(self, files: list[Path]) -> Path:
        if files and int(files[-1].stem) > self.head.last:
            self.head = replace(self.head, last=int(files[-1].stem))
        return self.place.directory / f"{self.head.last + 1:012d}.jsonl"

    def _set_aside(self) -> None:
        """Keep room for lines beyond the end of the file."""
        if self._room - self._size < _AHEAD_BYTES // 2 and _set_aside(self._fd, self._size):
            self._room = self._size + _AHEAD_BYTES

    def _drop_old(self) -> None:
        """Remove files that are too old. First the log says so, then the head, then they go."""
        files = self.place.files()
        limit = time.time() - self._keep_s
        old = [path for path in files[:-1] if path.stat().st_mtime < limit]
        kept = files[len(old) :]
        if not old or files[: len(old)] != old:
            return
        first = int(kept[0].stem)
        self.note("dropped", lines=first - self.head.first, before=first)
        with kept[0].open("rb") as file:
            before = opened(file.readline(_LINE_MAX_BYTES)).previous
        head = Head(first, before, self.head.last, self.head.hash)
        os.pwrite(self._head_fd, head.encoded(), 0)
        self.head = head
        for path in old:
            path.unlink()


@dataclass(frozen=True)
class _FileEnd:
    """The end of a file: how many bytes of it are whole lines, the last of these (None: there is
    none, or it is damaged), and how many bytes of a cut-off line follow."""

    whole: int
    last: LogLine | None
    torn: int

    @classmethod
    def of(cls, path: Path) -> Self:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - 2 * _LINE_MAX_BYTES))
            content = file.read()
        end = content.rfind(b"\n") + 1
        line = content[content.rfind(b"\n", 0, max(0, end - 1)) + 1 : end]
        last = None
        with contextlib.suppress(ValueError):
            last = opened(line)
        return cls(start + end, last, len(content) - end)


def _begun(path: Path) -> float:
    """When a file was begun, as its first line says; now, where that is damaged."""
    with path.open("rb") as file, contextlib.suppress(ValueError, KeyError, TypeError):
        return datetime.fromisoformat(
            opened(file.readline(_LINE_MAX_BYTES)).entry["time"]
        ).timestamp()
    return time.time()


def _set_aside(fd: int, start: int) -> bool:
    """Keep room on the disk for a file beyond `start`, where it ends; false on a full disk."""
    span = ctypes.c_longlong(start), ctypes.c_longlong(_AHEAD_BYTES)
    return _LIBC.fallocate(fd, _KEEP_SIZE, *span) == 0 or ctypes.get_errno() not in _FULL


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def _unwritable(directory: Path, error: OSError) -> HostError:
    return HostError(
        Code.UNAVAILABLE,
        "the record of tool calls cannot be written",
        details=f"{directory}: {error.strerror or error}",
        resolution=f"make room and access for {directory}; until then only tools run that change "
        "nothing",
    )


assert len(Head(2**53, GENESIS, 2**53, GENESIS).encoded()) == HEAD_BYTES

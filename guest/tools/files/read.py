"""file_read: a range of lines of a text file, or the kind of a binary file."""

import io
import json
import os
from dataclasses import dataclass
from typing import Final

from pydantic import Field

from guest.errors import ToolError
from guest.tools.base import EXCERPT_CONTEXT_CHARS, Arguments, Excerpt, ToolOutput
from guest.tools.files.roots import Roots

PATH_MAX_CHARS: Final = 4096
LINES_MAX: Final = 2000
_CONTENT_MAX_BYTES: Final = 12 * 1024
_LOOK_BYTES: Final = 8192
_SCAN_MAX_BYTES: Final = 64 * 1024 * 1024
_KINDS: Final = (
    (b"\x89PNG\r\n\x1a\n", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF-", "PDF document"),
    (b"PK\x03\x04", "ZIP archive or office document"),
    (b"\x1f\x8b", "gzip archive"),
    (b"BZh", "bzip2 archive"),
    (b"\xfd7zXZ\x00", "xz archive"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\x00", "SQLite database"),
)


class ReadArguments(Arguments):
    path: str = Field(max_length=PATH_MAX_CHARS, description="For example /shared/notes.txt.")
    offset: int = Field(default=1, ge=1, le=2**31 - 1, description="First line, counted from 1.")
    limit: int = Field(default=500, ge=1, le=LINES_MAX, description="How many lines at most.")


@dataclass
class _Range:
    """Lines of a file.

    Attributes:
        before: The end of the text before them.
        content: The lines.
        after: The beginning of the text after them.
        last: The number of the last line; 0 if there are none.
        more: Whether the file goes on.
        cut: Whether only the beginning of the last line is in `content`.
        room: How many bytes of JSON the answer can still hold.
    """

    before: bytes = b""
    content: bytes = b""
    after: bytes = b""
    last: int = 0
    more: bool = False
    cut: bool = False
    room: int = _CONTENT_MAX_BYTES


def read(roots: Roots, arguments: ReadArguments) -> ToolOutput:
    """The requested lines, as far as they fit into an answer, and where to continue."""
    location = roots.paths.parse(arguments.path)
    with roots.file(location) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        size = os.fstat(descriptor).st_size
        head = file.read(_LOOK_BYTES)
        if not is_text(head):
            kind = kind_of(head)
            data = {"path": location.virtual, "binary": True, "kind": kind, "size_bytes": size}
            summary = f"binary file: {kind}, {size} bytes"
            return ToolOutput(data=data, summary=summary, material=(location.virtual,))
        file.seek(0)
        found = _lines(file, arguments.offset, arguments.limit)
    if found.last == 0 and arguments.offset > 1:
        raise ToolError(f"{location.given} has fewer than {arguments.offset} lines")
    data = {
        "path": location.virtual,
        "content": Excerpt(
            _text(found.content),
            before=_text(found.before)[-EXCERPT_CONTEXT_CHARS:],
            after=_text(found.after)[:EXCERPT_CONTEXT_CHARS],
        ),
        "first_line": arguments.offset if found.last else 0,
        "last_line": found.last,
        "next_offset": found.last + 1 if found.more else None,
        "size_bytes": size,
    }
    return ToolOutput(
        data, _notes(found), _summary(arguments.offset, found), material=(location.virtual,)
    )


def is_text(head: bytes) -> bool:
    """Whether the beginning of a file is UTF-8 text; its last character may be incomplete."""
    if b"\0" in head:
        return False
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data" and error.start > len(head) - 4
    return True


def kind_of(head: bytes) -> str:
    """The kind of a binary file, by its first bytes."""
    return next((kind for magic, kind in _KINDS if head.startswith(magic)), "unknown binary data")


def _lines(file: io.BufferedReader, first: int, limit: int) -> _Range:
    found = _Range()
    number = 1
    scanned = 0
    while line := file.readline(_CONTENT_MAX_BYTES + 1):
        scanned += len(line)
        if scanned > _SCAN_MAX_BYTES:
            raise ToolError(f"line {first} lies beyond the first {_SCAN_MAX_BYTES >> 20} MiB")
        if number < first:
            found.before = (found.before + line)[-4 * EXCERPT_CONTEXT_CHARS :]
        elif number == first + limit or _cost(line) > found.room:
            found.more = True
            unread = line
            if number == first:
                found.content = _fitting(line, found.room)
                unread = line[len(found.content) :]
                found.cut, found.last = True, number
                found.more = bool(_byte_after_line(file, line))
            found.after = unread + file.read(4 * EXCERPT_CONTEXT_CHARS)
            break
        else:
            found.content += line
            found.room -= _cost(line)
            found.last = number
        number += line.endswith(b"\n")
    return found


def _cost(line: bytes) -> int:
    """How many bytes `line` takes in an answer, which is JSON."""
    return len(json.dumps(_text(line), ensure_ascii=False).encode()) - 2


def _fitting(line: bytes, room: int) -> bytes:
    """The beginning of `line` that fits into `room` bytes, cut between characters."""
    part = line[:room].decode(errors="ignore")
    while _cost(part.encode()) > room:
        part = part[: len(part) * 3 // 4]
    return part.encode()


def _byte_after_line(file: io.BufferedReader, line: bytes) -> bytes:
    """The first byte after the line that begins with `line`; the file's position stays."""
    place = file.tell()
    left = _SCAN_MAX_BYTES
    while line and not line.endswith(b"\n") and left > 0:
        line = file.readline(_LOOK_BYTES)
        left -= len(line)
    following = file.read(1)
    file.seek(place)
    return following


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _notes(found: _Range) -> tuple[str, ...]:
    notes = []
    if found.cut:
        notes.append(f"line {found.last} is too long for an answer; only its beginning is shown")
    if found.more:
        notes.append(f"the file goes on; continue with offset {found.last + 1}")
    if "\N{REPLACEMENT CHARACTER}" in _text(found.content):
        notes.append("bytes that are not UTF-8 are shown as \N{REPLACEMENT CHARACTER}")
    return tuple(notes)


def _summary(first: int, found: _Range) -> str:
    return f"lines {first}-{found.last}" if found.last else "empty file"

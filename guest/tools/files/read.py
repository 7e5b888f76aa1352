"""file_read: a range of lines of a text, also of a document's; or the kind of a binary file."""

import io
import json
import os
from dataclasses import dataclass
from typing import BinaryIO, Final

from pydantic import Field

from guest.errors import ToolError
from guest.tools.base import EXCERPT_CONTEXT_CHARS, Arguments, Excerpt, ToolOutput
from guest.tools.files.content import LOOK_BYTES, MAIL, PDF, UTF_8, encoding_of, kind_of
from guest.tools.files.roots import Location, Roots

PATH_MAX_CHARS: Final = 4096
LINES_MAX: Final = 2000
_CONTENT_MAX_BYTES: Final = 12 * 1024
_LINE_BYTES: Final = 8192
_PICTURE_BYTES: Final = 4 * 1024 * 1024
"""More than any that a model takes."""
_DECODED_MAX_BYTES: Final = 16 * 1024 * 1024
_SCAN_MAX_BYTES: Final = 64 * 1024 * 1024


class ReadArguments(Arguments):
    path: str = Field(max_length=PATH_MAX_CHARS, description="For example /shared/notes.txt.")
    offset: int = Field(default=1, ge=1, le=2**31 - 1, description="First line, counted from 1.")
    limit: int = Field(default=500, ge=1, le=LINES_MAX, description="How many lines at most.")
    pages: str = Field(
        default="",
        pattern=r"^([1-9][0-9]{0,6}(-([1-9][0-9]{0,6})?)?)?$",
        description="Of a document, e.g. 3-5.",
    )


@dataclass
class _Range:
    """Lines of a file.

    Attributes:
        before: The end of the text before them.
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
    """The requested lines, as far as they fit into an answer, and where to continue; of what is no
    text, its kind."""
    location = roots.paths.parse(arguments.path)
    with roots.file(location) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
        size = os.fstat(descriptor).st_size
        head = file.read(LOOK_BYTES)
        document = MAIL if location.path.lower().endswith(".eml") else kind_of(head)
        encoding = "" if document in (MAIL, PDF) else encoding_of(head)
        if not encoding:
            kind = document or "unknown binary data"
            data = {"path": location.virtual, "binary": True, "kind": kind, "size_bytes": size}
            summary = f"{location.virtual}: {kind}, {size} bytes"
            file.seek(0)
            pictures = (file.read(_PICTURE_BYTES),) if kind.endswith(" image") else ()
            material = (location.virtual,)
            return ToolOutput(data, summary=summary, material=material, pictures=pictures)
        file.seek(0)
        if encoding == UTF_8:
            return lines_of(location, file, size, arguments)
        content = file.read(_DECODED_MAX_BYTES)
    text = io.BytesIO(content.decode(encoding, errors="replace").encode())
    return lines_of(location, text, size, arguments, encoding=encoding)


def lines_of(
    location: Location,
    file: BinaryIO,
    size: int,
    arguments: ReadArguments,
    **more: object,
) -> ToolOutput:
    """The requested lines of a text as UTF-8; `more` is what is told of it besides."""
    found = _lines(file, arguments.offset, arguments.limit)
    if found.last == 0 and arguments.offset > 1:
        raise ToolError(f"{location.given} has fewer than {arguments.offset} lines")
    data = {
        "path": location.virtual,
        **more,
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
    summary = f"lines {arguments.offset}-{found.last}" if found.last else "empty file"
    return ToolOutput(data, _notes(found), summary, material=(location.virtual,))


def _lines(file: BinaryIO, first: int, limit: int) -> _Range:
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


def _byte_after_line(file: BinaryIO, line: bytes) -> bytes:
    """The first byte after the line that begins with `line`; the file's position stays."""
    place = file.tell()
    left = _SCAN_MAX_BYTES
    while line and not line.endswith(b"\n") and left > 0:
        line = file.readline(_LINE_BYTES)
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

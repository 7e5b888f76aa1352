"""Files that a person brings into the shared directory and into projects and takes out of them,
whole and as they are.

A file arrives in pieces under a temporary name beside its place and is put there when all of it has
come, so that nobody sees half of one. It replaces another file only where that was asked for.

Images are looked at as models take them: their kind, and why one cannot be shown, from the content
alone. Nothing is decoded. What a provider refuses would fail the whole request, and so does a file
that ends before its end.
"""

import os
import re
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from wire.errors import Code
from wire.text import visible_name
from wire.tools import PROJECTS, SHARED

from guest.errors import ToolError
from guest.memory.models import at
from guest.tools.base import ToolOutput
from guest.tools.files.change import DeleteArguments, delete, dress, must_be_replaceable
from guest.tools.files.read import PATH_MAX_CHARS
from guest.tools.files.roots import Location, Roots, listed

IMAGE_MAX_BYTES: Final = 3_932_160
"""The least that a provider takes is 5 MiB as base64; so many bytes are as much."""
SIDE_MAX_PIXELS: Final = 8_000
"""The least that the providers take, besides those that scale an image down themselves."""
HEAD_BYTES: Final = 32
_KINDS: Final = (
    ("image/png", rb"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", rb"\xff\xd8\xff"),
    ("image/gif", rb"GIF8[79]a"),
    ("image/webp", rb"RIFF....WEBP"),
    ("image/heic", rb"....ftyp(hei[cmsx]|hev[cmsx]|mif1|msf1)"),
    ("image/avif", rb"....ftypavi[fs]"),
    ("image/tiff", rb"II\*\0|MM\0\*"),
    ("image/bmp", rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0"),
)
SHOWN: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_CONVERT: Final = "convert it, as with: magick FILE FILE.jpg"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's markers of segments that have its size."""


def kind_of(head: bytes) -> str:
    """The kind of an image by the beginning of its content; empty if it is none that is known."""
    return next((kind for kind, magic in _KINDS if re.match(magic, head, re.DOTALL)), "")


def fault_of(kind: str, size: int, content: bytes) -> str:
    """Why an image of `size` bytes is shown to no model; empty if it can be. Of one that is too
    large or of another kind, `content` need not be there."""
    if kind not in SHOWN:
        name = kind.removeprefix("image/").upper()
        return f"models take PNG, JPEG, GIF and WebP, and this is {name}; {_CONVERT}"
    if size > IMAGE_MAX_BYTES:
        return f"it has {size:,} bytes, and an image may have {IMAGE_MAX_BYTES:,}; make it smaller"
    try:
        sides = _SIDES[kind](content)
    except (IndexError, ValueError):
        sides = None
    if not sides or not all(sides):
        return "it is damaged: its end is missing, or its size; save it again"
    if max(sides) > SIDE_MAX_PIXELS:
        return (
            f"it has {sides[0]:,} × {sides[1]:,} pixels, and a side may have "
            f"{SIDE_MAX_PIXELS:,}; make it smaller"
        )
    return ""


PICTURES_MAX: Final = 8
PICTURES_MAX_BYTES: Final = 10 * 1024 * 1024
"""How many pictures one result may have, and how large they may be together."""


def with_pictures(output: ToolOutput) -> ToolOutput:
    """A result with those of its pictures that a model takes, and notes that tell of them."""
    shown: list[bytes] = []
    notes: list[str] = []
    for picture in output.pictures:
        if len(shown) == PICTURES_MAX or sum(map(len, shown)) + len(picture) > PICTURES_MAX_BYTES:
            notes.append("more pictures than one result may have: the others are not shown")
            break
        kind = kind_of(picture[:HEAD_BYTES])
        why = fault_of(kind, len(picture), picture) if kind else "it is no image"
        notes += [f"a picture is not shown: {why}"] if why else []
        shown += [] if why else [picture]
    if shown:
        notes.append(f"pictures that follow, in this turn alone: {len(shown)}")
    return replace(output, pictures=tuple(shown), notes=(*output.notes, *notes))


def _number(content: bytes, first: int, last: int, *, little: bool = False) -> int:
    if last > len(content):
        raise IndexError
    return int.from_bytes(content[first:last], "little" if little else "big")


def _png(content: bytes) -> tuple[int, int]:
    place = content.index(b"IHDR", 12, 16) - 4
    while content[place + 4 : place + 8] != b"IEND":
        place += _number(content, place, place + 4) + 12
    _number(content, place, place + 12)
    return _number(content, 16, 20), _number(content, 20, 24)


def _jpeg(content: bytes) -> tuple[int, int]:
    place, sides = 2, (0, 0)
    while True:
        while content[place] == content[place + 1] == 0xFF:
            place += 1
        marker, length = content[place + 1], _number(content, place + 2, place + 4)
        if content[place] != 0xFF or length < 2:
            raise ValueError
        if marker in _FRAMES:
            sides = _number(content, place + 7, place + 9), _number(content, place + 5, place + 7)
        place += 2 + length
        if marker == 0xDA:  # the picture itself, up to the mark of the end
            content.index(b"\xff\xd9", place)
            return sides


def _gif(content: bytes) -> tuple[int, int]:
    if not content.rstrip(b"\0").endswith(b";"):
        raise ValueError
    return _number(content, 6, 8, little=True), _number(content, 8, 10, little=True)


def _webp(content: bytes) -> tuple[int, int]:
    if _number(content, 4, 8, little=True) + 8 > len(content):
        raise ValueError
    match content[12:16]:
        case b"VP8X":
            width, height = (_number(content, at, at + 3, little=True) + 1 for at in (24, 27))
        case b"VP8L":
            bits = _number(content, 21, 25, little=True)
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case _:
            width, height = (_number(content, at, at + 2, little=True) & 0x3FFF for at in (26, 28))
    return width, height


_SIDES: Final = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}


LISTED_MAX: Final = 1_000
PART_BYTES: Final = 256 * 1024
UPLOADS_MAX: Final = 8
UPLOAD_IDLE_S: Final = 600.0
_SCANNED_MAX: Final = 20_000


@dataclass(frozen=True)
class Entry:
    """What lies in a directory. `path` is empty where its name cannot be sent back."""

    name: str
    path: str
    kind: str
    bytes: int
    modified_at: str


@dataclass
class _Upload:
    """A file that arrives. `directory` is the descriptor of where it will lie."""

    location: Location
    directory: int
    temporary: str
    descriptor: int
    received: int = 0
    touched: float = 0.0

    def drop(self) -> None:
        """Close it; what has come is removed."""
        os.close(self.descriptor)
        with suppress(FileNotFoundError):
            os.unlink(self.temporary, dir_fd=self.directory)
        os.close(self.directory)


class SharedFiles:
    """The files below /shared and in projects, behind the path guards of the file tools. Its
    methods block; uploads are for one thread at a time.

    Paths are refused with `ToolError`: outside of these, through a link that leads out, or what
    is no regular file. A file has at most `max_bytes`.
    """

    def __init__(self, roots: Roots, max_bytes: int) -> None:
        self._roots = roots
        self._max_bytes = max_bytes
        self._uploads: dict[str, _Upload] = {}

    def close(self) -> None:
        """Drop what has not arrived in full. Idempotent."""
        while self._uploads:
            self._uploads.popitem()[1].drop()

    def list(self, path: str) -> tuple[list[Entry], int]:
        """The entries of a directory, directories first, and how many more there are."""
        if path.strip("/") == PROJECTS:
            projects = self._roots.paths.projects
            return [
                Entry(each.path.rpartition("/")[2], each.path, "directory", 0, "")
                for each in projects
            ], 0
        location = self._shared(path or SHARED.path)
        found: list[Entry] = []
        with self._roots.directory(location) as descriptor, os.scandir(descriptor) as entries:
            for number, entry in enumerate(entries):
                if number == _SCANNED_MAX:
                    break
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(_entry(f"{location.path}/{entry.name}", status))
        found.sort(key=lambda each: (each.kind != "directory", each.name))
        return found[:LISTED_MAX], max(len(found) - LISTED_MAX, 0)

    def read(self, path: str, offset: int = 0) -> Generator[tuple[Entry, bytes], None, None]:
        """A regular file from `offset` on, in parts; of an empty one, one empty part."""
        location = self._shared(path)
        with self._roots.file(location) as descriptor:
            entry = _entry(location.path, os.fstat(descriptor))
            data = os.pread(descriptor, PART_BYTES, offset)
            yield entry, data
            while data:
                offset += len(data)
                if data := os.pread(descriptor, PART_BYTES, offset):
                    yield entry, data

    def look_at(self, path: str) -> tuple[Entry, str, bytes | None, str]:
        """A regular file: its kind of image by its content, empty for none; the image itself if a
        model can be shown it, else why not."""
        location = self._shared(path)
        with self._roots.file(location) as descriptor:
            entry = _entry(location.path, os.fstat(descriptor))
            media_type = kind_of(os.pread(descriptor, HEAD_BYTES, 0))
            if not media_type:
                return entry, "", None, ""
            with os.fdopen(os.dup(descriptor), "rb") as file:
                content = file.read(IMAGE_MAX_BYTES + 1)
        why = fault_of(media_type, max(entry.bytes, len(content)), content)
        return entry, media_type, None if why else content, why

    def begin(self, path: str) -> str:
        """Begin to write a file; returns the id of the upload."""
        location = self._shared(path)
        if path != visible_name(path):
            raise ToolError(f"a file's name must be of visible characters: {location.given}")
        self._drop_idle()
        if len(self._uploads) >= UPLOADS_MAX:
            raise ToolError(
                f"{UPLOADS_MAX} files are arriving already; finish them first",
                Code.RESOURCE_EXHAUSTED,
            )
        with self._roots.parent(location, create=True) as (directory, name):
            must_be_replaceable(location, self._roots.existing(location, directory, name))
            temporary = f".{secrets.token_hex(8)}.partial"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            upload = _Upload(location, os.dup(directory), temporary, descriptor)
        upload_id = f"upload-{secrets.token_hex(16)}"
        upload.touched = time.monotonic()
        self._uploads[upload_id] = upload
        return upload_id

    def add(self, upload_id: str, offset: int, data: bytes) -> int:
        """Add a piece; returns how many bytes there are. A piece may be repeated.

        What cannot be added because of its size ends the upload.
        """
        upload = self._upload(upload_id)
        if offset > upload.received:
            raise ToolError(
                f"bad offset: {offset} is beyond the {upload.received} bytes that have come",
                Code.CONFLICT,
            )
        end = offset + len(data)
        try:
            if end > self._max_bytes:
                raise ToolError(
                    f"{upload.location.given} is larger than {self._max_bytes // 2**20} MiB "
                    "(tools.upload_max_mb in runner.toml)",
                    Code.RESOURCE_EXHAUSTED,
                )
            self._roots.require_room(upload.location, len(data))
            while data:
                written = os.pwrite(upload.descriptor, data, offset)
                data, offset = data[written:], offset + written
        except (ToolError, OSError):
            self.drop(upload_id)
            raise
        upload.received = max(upload.received, end)
        return upload.received

    def finish(self, upload_id: str, *, overwrite: bool) -> Entry:
        """Put the file in its place. Where another one is there and `overwrite` is not asked for,
        nothing is changed, and the upload can be finished anew."""
        upload = self._upload(upload_id)
        location, directory, name = upload.location, upload.directory, upload.location.parts[-1]
        with self._roots.changing:
            self._roots.must_be_changeable(location, directory, name)
            before = self._roots.existing(location, directory, name)
            must_be_replaceable(location, before)
            if before is not None and not overwrite:
                raise _there_already(location)
            dress(
                location, directory, upload.descriptor, before if location.root.is_project else None
            )
            os.fsync(upload.descriptor)
            if overwrite:
                os.rename(upload.temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            else:
                _put(upload.temporary, name, directory, location)
            os.fsync(directory)
            entry = _entry(location.path, os.fstat(upload.descriptor))
        self.drop(upload_id)
        return entry

    def drop(self, upload_id: str) -> None:
        """End an upload; what has come is removed. Does nothing for one that is unknown."""
        if (upload := self._uploads.pop(upload_id, None)) is not None:
            upload.drop()

    def delete(self, path: str) -> None:
        """Remove a file, a link itself, or an empty directory."""
        self._shared(path)
        delete(self._roots, DeleteArguments(path=path))

    def _shared(self, path: str) -> Location:
        if len(path) > PATH_MAX_CHARS:
            raise ToolError(f"path is too long: {visible_name(path[:200])}…")
        location = self._roots.paths.parse(path)
        if location.root != SHARED and not location.root.is_project:
            named = listed((SHARED, *self._roots.paths.projects))
            raise ToolError(f"only {named} can be reached here: {location.given}")
        return location

    def _upload(self, upload_id: str) -> _Upload:
        upload = self._uploads.get(upload_id)
        if upload is None:
            raise ToolError(
                "this upload is not known: it has ended, or was idle for too long; begin it anew",
                Code.NOT_FOUND,
            )
        upload.touched = time.monotonic()
        return upload

    def _drop_idle(self) -> None:
        oldest = time.monotonic() - UPLOAD_IDLE_S
        for upload_id in [key for key, each in self._uploads.items() if each.touched < oldest]:
            self.drop(upload_id)


def _entry(path: str, status: os.stat_result) -> Entry:
    kind = "other"
    if stat.S_ISDIR(status.st_mode):
        kind = "directory"
    elif stat.S_ISREG(status.st_mode):
        kind = "file"
    shown = visible_name(path)
    name = shown.rpartition("/")[2]
    return Entry(name, path if path == shown else "", kind, status.st_size, _time(status.st_mtime))


def _time(seconds: float) -> str:
    try:
        return at(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError):  # a command may set any time
        return ""


def _put(temporary: str, name: str, directory: int, location: Location) -> None:
    """Give the file its name, which must be free. Never follows or replaces anything."""
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise _there_already(location) from None


def _there_already(location: Location) -> ToolError:
    return ToolError(
        f"{location.given} exists already; choose another name, or ask to replace it",
        Code.ALREADY_EXISTS,
    )

"""file_write, file_edit and file_delete: atomic, and only in writable roots.

A write makes a new file beside the old one and renames it into place. A reader sees the old text
or the new one, and a crash leaves one of them complete.
"""

import os
import stat
from codecs import BOM_UTF8
from contextlib import ExitStack, suppress
from typing import Final

from pydantic import Field
from wire.disk import whole_file

from guest.errors import ToolError
from guest.tools.base import Arguments, ToolOutput
from guest.tools.files.content import decoded, encoded, encoding_of
from guest.tools.files.read import PATH_MAX_CHARS
from guest.tools.files.roots import Location, NoSuchFileError, Roots

CONTENT_MAX_CHARS: Final = 1_000_000
_EDIT_MAX_BYTES: Final = 8 * 1024 * 1024
_OCCURRENCES_MAX: Final = 100
_NEW_MODE: Final = 0o644


class WriteArguments(Arguments):
    path: str = Field(max_length=PATH_MAX_CHARS, description="Under /shared or /tmp.")
    content: str = Field(max_length=CONTENT_MAX_CHARS, description="The whole new text.")
    create_parents: bool = Field(default=False, description="Make missing directories on the way.")


class EditArguments(Arguments):
    path: str = Field(max_length=PATH_MAX_CHARS, description="Under /shared or /tmp.")
    old: str = Field(
        min_length=1,
        max_length=CONTENT_MAX_CHARS,
        description="The text to replace, exactly as it stands, once in the file.",
    )
    new: str = Field(max_length=CONTENT_MAX_CHARS, description="What stands there afterwards.")


class DeleteArguments(Arguments):
    path: str = Field(
        max_length=PATH_MAX_CHARS, description="A file or an empty directory under /shared or /tmp."
    )


def write(roots: Roots, arguments: WriteArguments) -> ToolOutput:
    location = roots.paths.parse(arguments.path)
    content = arguments.content.encode()
    with roots.changing, ExitStack() as stack:
        roots.require_room(location, len(content))
        try:
            directory, name = stack.enter_context(
                roots.parent(location, create=arguments.create_parents)
            )
        except NoSuchFileError:
            raise ToolError(
                f"no such directory for {location.given}; set create_parents to make it"
            ) from None
        before = roots.existing(location, directory, name)
        must_be_replaceable(location, before)
        replace(location, directory, name, content, before)
    done = "created" if before is None else "replaced"
    return ToolOutput(
        {"path": location.virtual, "outcome": done, "bytes": len(content)},
        summary=f"{done}: {len(content)} bytes",
    )


def edit(roots: Roots, arguments: EditArguments) -> ToolOutput:
    """Replace exactly one occurrence of a text. Line ends of either kind count as the same, and
    those of the file are kept, unless the arguments have a carriage return."""
    location = roots.paths.parse(arguments.path)
    old, new = arguments.old.encode(), arguments.new.encode()
    if len(old) > len(BOM_UTF8) and old.startswith(BOM_UTF8):
        old, new = old.removeprefix(BOM_UTF8), new.removeprefix(BOM_UTF8)
    with roots.changing, roots.parent(location) as (directory, name):
        with roots.file(location) as descriptor:
            before = os.fstat(descriptor)
            if before.st_size > _EDIT_MAX_BYTES:
                raise ToolError(
                    f"{location.given} has {before.st_size} bytes; "
                    f"file_edit takes files up to {_EDIT_MAX_BYTES}"
                )
            with os.fdopen(os.dup(descriptor), "rb") as file:
                content = file.read()
        encoding = encoding_of(content)
        if not encoding:
            raise ToolError(f"{location.given} is no text and cannot be edited")
        content = decoded(content, encoding, location.given)
        if b"\r" in content and b"\n" not in content and b"\r" not in old + new:
            old, new = old.replace(b"\n", b"\r"), new.replace(b"\n", b"\r")
        count, begin, end = _found(content, old)
        now = roots.existing(location, directory, name)
        must_be_replaceable(location, now)
        if count != 1:
            raise ToolError(_wrong_count(location, count))
        if _state(now) != _state(before):
            raise ToolError(
                f"{location.given} was changed by somebody else just now; read it again"
            )
        if b"\r" not in old + new:
            new = new.replace(b"\n", _line_end(content, begin, end))
        changed = encoded(content[:begin] + new + content[end:], encoding, location.given)
        roots.require_room(location, len(changed))
        replace(location, directory, name, changed, before)
    line = content.count(b"\n", 0, begin) + 1
    return ToolOutput(
        {"path": location.virtual, "line": line, "bytes": len(changed)},
        summary=f"edited line {line}",
    )


def delete(roots: Roots, arguments: DeleteArguments) -> ToolOutput:
    """Remove a file, a symbolic link itself, or an empty directory."""
    location = roots.paths.parse(arguments.path)
    with roots.changing, roots.parent(location) as (directory, name):
        status = roots.existing(location, directory, name)
        if status is None:
            raise NoSuchFileError(f"no such file: {location.given}")
        if stat.S_ISDIR(status.st_mode):
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError:
                raise ToolError(
                    f"{location.given} is not empty; delete what is in it first"
                ) from None
        else:
            os.unlink(name, dir_fd=directory)
    return ToolOutput({"path": location.virtual, "outcome": "deleted"}, summary="deleted")


def _found(content: bytes, old: bytes) -> tuple[int, int, int]:
    """How often `old` occurs in `content`, and from where to where the first one is. If it does not
    occur as it is, its line ends count as those of the file."""
    if count := _occurrences(content, old):
        begin = content.index(old)
        within = old.startswith(b"\n") and content[max(0, begin - 1) : begin] == b"\r"
        return count, begin - within, begin + len(old)
    plain, wanted = content.replace(b"\r\n", b"\n"), old.replace(b"\r\n", b"\n")
    if not (count := _occurrences(plain, wanted)):
        return 0, 0, 0
    first = plain.index(wanted)

    def place(of: int) -> int:
        line = plain.rfind(b"\n", 0, of) + 1
        rest = content.split(b"\n", plain.count(b"\n", 0, of))[-1]
        return len(content) - len(rest) + of - line

    return count, place(first), place(first + len(wanted))


def _line_end(content: bytes, begin: int, end: int) -> bytes:
    """How lines end from `begin` to `end`; else there next, else before."""
    place = content.find(b"\n", begin, end)
    place = content.find(b"\n", end) if place < 0 else place
    place = content.rfind(b"\n", 0, begin) if place < 0 else place
    return b"\r\n" if content[max(0, place - 1) : place] == b"\r" else b"\n"


def _occurrences(content: bytes, old: bytes) -> int:
    """How often `old` occurs in `content`, overlapping too; to count very many takes minutes."""
    count, place = 0, content.find(old)
    while place >= 0 and count < _OCCURRENCES_MAX:
        count, place = count + 1, content.find(old, place + 1)
    return count


def _wrong_count(location: Location, count: int) -> str:
    if count == 0:
        return f"the text to replace is not in {location.given}; read the file and copy it exactly"
    return (
        f"the text to replace occurs {count} times{' or more' * (count == _OCCURRENCES_MAX)} in "
        f"{location.given}; give more of its surroundings, so that it occurs once"
    )


def must_be_replaceable(location: Location, status: os.stat_result | None) -> None:
    """Check that a file may take the place of what `status` describes, which may be nothing.
    Raises `ToolError`."""
    if status is None or stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise ToolError(f"is a directory: {location.given}")
    if stat.S_ISLNK(status.st_mode):
        raise ToolError(f"is a symbolic link: {location.given}; name the file it leads to")
    raise ToolError(f"not a regular file: {location.given}")


def _state(status: os.stat_result | None) -> tuple[int, ...]:
    """Values that differ if the file was changed or replaced."""
    if status is None:
        return ()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def dress(
    location: Location, directory: int, descriptor: int, before: os.stat_result | None
) -> None:
    """Give a new file the mode of the one that it replaces, and in a project its owner, else that
    of its directory, where this process may: files of a project stay their owner's."""
    os.fchmod(descriptor, _NEW_MODE if before is None else stat.S_IMODE(before.st_mode) & 0o777)
    if location.root.is_project and os.geteuid() == 0:
        of = before or os.fstat(directory)
        with suppress(PermissionError):
            os.fchown(descriptor, of.st_uid, of.st_gid)


def replace(
    location: Location,
    directory: int,
    name: str,
    content: bytes,
    before: os.stat_result | None,
    mode: int | None = None,
) -> None:
    """Put a file with this content into its place, with the owner and the mode of what was there
    `before`, or another `mode`."""
    with whole_file(name, directory) as file:
        file.write(content)
        dress(location, directory, file.fileno(), before)
        if mode is not None:
            os.fchmod(file.fileno(), mode)
    os.fsync(directory)

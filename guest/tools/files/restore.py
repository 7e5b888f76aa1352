"""Takes back what a turn changed in the files of projects: beneath the project, over no link, and
nothing that has changed since, unless a person wants it."""

import os
import secrets
import stat
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Final

from wire.kernel.beneath import PathEscapeError
from wire.text import visible_name
from wire.v1 import gateway_pb2 as pb

from guest.errors import ToolError
from guest.projects.changes import LISTED_MAX, Changes
from guest.projects.file_versions import Changed
from guest.projects.look import Version, version_of
from guest.projects.watch import Directories
from guest.tools.files.change import replace
from guest.tools.files.roots import Location, Roots

_SINCE: Final = "it has changed since that turn"
_JUST_NOW: Final = "it has changed just now"
_DURING: Final = "it changed during the turn, by a command or by somebody else"


class _AsksError(Exception):
    """A file is left as it is. The message says why."""


class Restorer:
    """Puts files back. Any thread may call."""

    def __init__(self, roots: Roots, changes: Changes) -> None:
        self.roots = roots
        self.changes = changes
        self._directories = {
            project.name: Directories(root, project)
            for root, project in roots.open_projects
            if project.writable
        }

    def take_back(
        self,
        session_id: str,
        changed: Collection[Changed],
        *,
        not_only_tools: bool,
        overwrite: bool,
    ) -> pb.UndoFilesReply:
        """Put back what these files were. Raises `GuestError` if a turn runs that changes files."""
        reply, turn_id = pb.UndoFilesReply(), f"undo-{uuid.uuid4()}"
        turn, removed = f"{session_id} {turn_id}", set[str]()
        with self.roots.changing, self.changes.taking_back(turn):
            for each in changed:
                if each.is_directory:
                    continue
                try:
                    self._put_back(each, not_only_tools=not_only_tools, overwrite=overwrite)
                    self.changes.touched(turn, each.whole)
                    removed |= {each.whole} if each.before is None else set()
                except (_AsksError, ToolError, OSError) as error:
                    if len(reply.asks) < LISTED_MAX:
                        reply.asks.append(self.changes.change(each))
                        reply.reasons.append(getattr(error, "strerror", "") or str(error))
                        if not isinstance(error, _AsksError):
                            reply.asks[-1].undoable = False
            for each in sorted(changed, key=lambda each: -each.path.count("/")):
                if each.is_directory and any(path.startswith(f"{each.whole}/") for path in removed):
                    self._remove_empty(each)
            receipt = self.changes.end(turn, session_id, turn_id)
        if receipt is not None and receipt.files:
            reply.turn_id = turn_id
            reply.restored.extend(receipt.changes)
        return reply

    def _put_back(self, each: Changed, *, not_only_tools: bool, overwrite: bool) -> None:
        if each.project not in self._directories:
            raise ToolError(f"the project {each.project} is not open, or can only be read")
        now = self.changes.version(each)
        if now == each.before:
            return
        data = self.changes.versions.data(each.before)
        if each.before is not None and data is None:
            raise ToolError("what it was is not kept: too large, too old, or not readable")
        if now != each.after and not overwrite:
            raise _AsksError(_SINCE)
        if not (each.by_tool or not_only_tools):
            raise _AsksError(_DURING)
        location = self.roots.paths.parse(each.whole)
        with self._directory(each.project, location, create=each.before is not None) as directory:
            name = location.parts[-1]
            self.roots.must_be_changeable(location, directory, name)
            status = self._as_seen(directory, name, now)
            if each.before is None:
                os.unlink(name, dir_fd=directory)
            elif each.before.kind == "l":
                self._link(directory, location, data or b"")
            else:
                self.roots.require_room(location, len(data or b""))
                regular = status if status and stat.S_ISREG(status.st_mode) else None
                mode = int(each.before.kind[1:], 8) & 0o777
                replace(location, directory, name, data or b"", regular, mode)

    @staticmethod
    def _as_seen(directory: int, name: str, now: Version | None) -> os.stat_result | None:
        """What is there, which must be what the last look has seen."""
        try:
            status = os.lstat(name, dir_fd=directory)
        except FileNotFoundError:
            if now is not None:
                raise _AsksError(_JUST_NOW) from None
            return None
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise ToolError("something else than a file is there now")
        if version_of(directory, name, status)[0] != now:
            raise _AsksError(_JUST_NOW)
        return status

    def _link(self, directory: int, location: Location, data: bytes) -> None:
        target = os.fsdecode(data)
        place = list(location.parts[:-1])
        for part in target.split("/"):
            if part == ".." and place:
                place.pop()
            elif part == ".." or target.startswith("/"):
                raise ToolError(f"it was a link that leads out: {visible_name(target)}")
            elif part not in ("", "."):
                place.append(part)
        temporary = f".{secrets.token_hex(8)}.partial"
        os.symlink(target, temporary, dir_fd=directory)
        try:
            _give(directory, temporary)
            os.rename(temporary, location.parts[-1], src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)
            raise

    @contextmanager
    def _directory(self, project: str, location: Location, *, create: bool) -> Iterator[int]:
        """The directory that a file is in, opened over no link and into no other file system."""
        above, directories = location.parts[:-1], self._directories[project]
        try:
            for depth, part in enumerate(above if create else ()):
                with directories.open("/".join(above[:depth])) as here, suppress(FileExistsError):
                    self.roots.must_be_changeable(location, here, part)
                    os.mkdir(part, 0o755, dir_fd=here)
                    _give(here, part)
            with directories.open("/".join(above)) as here:
                yield here
        except (PathEscapeError, NotADirectoryError):
            why = "a link, a file or another file system is where its directory was"
            raise ToolError(why) from None

    def _remove_empty(self, each: Changed) -> None:
        with suppress(OSError, ToolError):
            location = self.roots.paths.parse(each.whole)
            with self._directory(each.project, location, create=False) as directory:
                name = PurePosixPath(each.path).name
                self.roots.must_be_changeable(location, directory, name)
                os.rmdir(name, dir_fd=directory)


def _give(directory: int, name: str) -> None:
    """Give a new entry to the owner of its directory, where this process may."""
    if os.geteuid() == 0:
        of = os.fstat(directory)
        with suppress(PermissionError):
            os.chown(name, of.st_uid, of.st_gid, dir_fd=directory, follow_symlinks=False)

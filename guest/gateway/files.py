"""Files in and out of a user's shared directory, and exports, imports and backups of memory, behind
the gateway."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from wire.errors import Code
from wire.limits import EXPORT_LINE_MAX_BYTES
from wire.v1 import gateway_pb2 as pb

from guest.agent.turn import Attachment
from guest.errors import GuestError, ToolError
from guest.gateway import convert
from guest.memory.memory import Memory
from guest.memory.storage.files.backup import Backups
from guest.tools.files.exchange import Entry, SharedFiles
from guest.tools.files.roots import NoSuchFileError

ATTACHMENTS_MAX: Final = 16
IMAGES_MAX_BYTES: Final = 10 * 1024 * 1024


class Files:
    """The files of one user. What a person asks for goes through the path guards of the tools."""

    def __init__(self, shared: SharedFiles) -> None:
        self._shared = shared
        self._writing = threading.Lock()

    async def list(self, request: pb.ListFilesRequest) -> pb.ListFilesReply:
        with _refused("path"):
            entries, more = await asyncio.to_thread(self._shared.list, request.path)
        return pb.ListFilesReply(files=map(_file, entries), more=more)

    async def read(self, request: pb.ReadFileRequest) -> AsyncIterator[pb.FilePart]:
        parts = self._shared.read(request.path, request.offset)
        first = True
        while True:
            with _refused("path"):
                part = await asyncio.to_thread(next, parts, None)
            if part is None:
                return
            entry, data = part
            yield pb.FilePart(file=_file(entry) if first else None, data=data)
            first = False

    async def write(self, request: pb.WriteFileRequest) -> pb.WriteFileReply:
        with _refused("path"):
            return await asyncio.to_thread(self._write, request)

    async def attached(self, paths: Sequence[str]) -> tuple[Attachment, ...]:
        """The files that a turn's request attaches. Images are shown in order, as long as all of
        them together have at most `IMAGES_MAX_BYTES`."""
        if len(paths) > ATTACHMENTS_MAX:
            raise GuestError(
                Code.INVALID_ARGUMENT,
                f"bad attachments: {len(paths)} are over the maximum of {ATTACHMENTS_MAX}",
            )
        found: list[Attachment] = []
        room = IMAGES_MAX_BYTES
        for path in dict.fromkeys(paths):
            with _refused("attachments"):
                entry, media_type, image, why = await asyncio.to_thread(self._shared.look_at, path)
            if not entry.path:
                raise GuestError(
                    Code.INVALID_ARGUMENT,
                    f"bad attachments: the name has hidden characters: {entry.name}",
                )
            if image is not None and len(image) > room:
                most = f"the images of one message may have {IMAGES_MAX_BYTES:,} bytes together"
                image, why = None, f"{most}; send it with the next one"
            room -= len(image or b"")
            found.append(Attachment(entry.path, media_type, image, why))
        return tuple(found)

    async def delete(self, request: pb.DeleteFileRequest) -> pb.DeleteFileReply:
        with _refused("path"):
            await asyncio.to_thread(self._shared.delete, request.path)
        return pb.DeleteFileReply()

    def close(self) -> None:
        """Drop files that have not arrived in full."""
        with self._writing:
            self._shared.close()

    def _write(self, request: pb.WriteFileRequest) -> pb.WriteFileReply:
        with self._writing:
            upload_id = request.upload_id or self._shared.begin(request.path)
            received = self._shared.add(upload_id, request.offset, request.data)
            reply = pb.WriteFileReply(upload_id=upload_id, received=received)
            if request.last:
                entry = self._shared.finish(upload_id, overwrite=request.overwrite)
                reply.file.CopyFrom(_file(entry))
        return reply


def _file(entry: Entry) -> pb.File:
    return convert.message(pb.File, entry)


@contextmanager
def _refused(field: str) -> Iterator[None]:
    """Turn what file tools refuse into errors of the contract. `field` of the request has the
    path."""
    try:
        yield
    except NoSuchFileError as error:
        raise GuestError(Code.NOT_FOUND, str(error), resolution="list the directory") from None
    except ToolError as error:
        named = f"bad {field}: " if error.code is Code.INVALID_ARGUMENT else ""
        raise GuestError(error.code, f"{named}{error}") from None
    except OSError as error:
        raise GuestError(
            Code.FAILED_PRECONDITION,
            f"the file system refused it: {error.strerror}",
            details="nothing was changed at the file's path",
            resolution="look at the directory's permissions and the disk",
        ) from None


if TYPE_CHECKING:
    from guest.memory.transfer.importer import Importer

_REQUEST_MAX_BYTES = EXPORT_LINE_MAX_BYTES + 64 * 1024
"""The longest line, and the header before it."""


class Transfer:
    """One user's memory as lines of text, or as a file. Both are exact: nothing is redacted."""

    def __init__(self, memory: Memory, backups: Backups) -> None:
        self._memory = memory
        self._backups = backups

    @cached_property
    def _importer(self) -> "Importer":
        return self._memory.importer()

    async def export(self) -> AsyncIterator[pb.ExportMemoryReply]:
        async for part in self._memory.export():
            yield convert.message(pb.ExportMemoryReply, part)

    async def import_(self, request: pb.ImportMemoryRequest) -> pb.ImportMemoryReply:
        if len(request.lines) > _REQUEST_MAX_BYTES:
            raise GuestError(
                Code.INVALID_ARGUMENT,
                f"bad lines: {len(request.lines)} bytes are over the maximum of "
                f"{_REQUEST_MAX_BYTES}",
            )
        if not request.dry_run:
            self._memory.require_room(len(request.lines))
        report = await self._importer.feed(request.lines, dry_run=request.dry_run)
        problems = [
            pb.ImportProblem(line=line, problem=problem) for line, problem in report.problems
        ]
        return convert.message(pb.ImportMemoryReply, report, problems=problems)

    async def back_up(self, _: pb.BackupMemoryRequest) -> pb.BackupMemoryReply:
        return convert.message(pb.BackupMemoryReply, await self._backups.make())

    async def read_backup(self, request: pb.ReadBackupRequest) -> AsyncIterator[pb.BackupPart]:
        parts = self._backups.read(request.name)
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            yield pb.BackupPart(data=part)

    async def remove_backup(self, request: pb.RemoveBackupRequest) -> pb.RemoveBackupReply:
        await asyncio.to_thread(self._backups.remove, request.name)
        return pb.RemoveBackupReply()

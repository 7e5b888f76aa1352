"""Exports, imports and backups behind the gateway."""

import asyncio
from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING

from wire.errors import Code
from wire.limits import EXPORT_LINE_MAX_BYTES
from wire.v1 import gateway_pb2 as pb

from guest.errors import GuestError
from guest.gateway import convert
from guest.memory.memory import Memory
from guest.memory.storage.files.backup import Backups

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

"""Exports and backups of a memory as files outside the workspace."""

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import grpc
from wire.errors import Code
from wire.limits import EXPORT_LINE_MAX_BYTES, EXPORT_PART_BYTES
from wire.status import from_rpc_error
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.errors import HostError
from runner.workspace.workspace import Workspace

_PART_S: Final = 600.0
"""How long one part may take: storing a mebibyte on a slow server takes a while."""

_T = TypeVar("_T")


class NotWhole(Exception):  # noqa: N818 - a condition that callers expect and report
    """The lines of a file are not those that were exported."""


@dataclass
class Imported:
    """What an import did, or would do. Problems name the line of the file, from 1."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def add(self, reply: gateway_pb2.ImportMemoryReply, numbers: list[int]) -> None:
        """`numbers` are those of the lines that the reply is about."""
        self.created += reply.created
        self.updated += reply.updated
        self.unchanged += reply.unchanged
        for each in reply.problems:
            self.problems.append((numbers[each.line - 1], each.problem))


class Seal:
    """Compares what lies between the first and the last line with what the last one says."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._seen = 0
        self.last = b""

    def take(self, line: bytes) -> None:
        """The next line, with its line break."""
        if self._seen > 1:
            self._digest.update(self.last)
        self.last = line
        self._seen += 1

    def check(self) -> dict[str, int]:
        """How many there are of each kind. Raises `NotWhole` where lines are missing, added
        or changed."""
        end = _object(self.last)
        if end.get("kind") != "end":
            raise NotWhole("the end line is missing: the file was cut off here")
        if end.get("lines") != self._seen - 2:
            raise NotWhole(
                f"{end.get('lines')} lines were exported, and {self._seen - 2} are in the file"
            )
        if end.get("sha256") != self._digest.hexdigest():
            raise NotWhole("lines of the file were changed since they were exported")
        return {name: count for name, count in end.get("counts", {}).items() if count}


async def export_into(
    stub: "gateway_pb2_grpc.GatewayAsyncStub",
    write: Callable[[bytes], object],
    progress: Callable[[int, int], None],
) -> dict[str, int]:
    """Write a whole export; how many there are of each kind.

    `progress` is told how many entries were written, of how many. Raises `WireError`; then
    what was written is not whole.
    """
    seal = Seal()
    call = stub.ExportMemory(gateway_pb2.ExportMemoryRequest())
    try:
        while isinstance(part := await _soon(call.read()), gateway_pb2.ExportMemoryReply):
            write(part.lines)
            for line in part.lines.removesuffix(b"\n").split(b"\n"):
                seal.take(line + b"\n")
            progress(part.entries, part.entries_total)
        return seal.check()
    except NotWhole as error:
        raise HostError(
            Code.DATA_LOSS, "the export is not whole", details=str(error), resolution="try again"
        ) from None
    finally:
        call.cancel()


async def import_from(
    stub: "gateway_pb2_grpc.GatewayAsyncStub",
    file: BinaryIO,
    report: Imported,
    progress: Callable[[int], None],
    *,
    dry_run: bool,
) -> None:
    """Send the lines of `file` and add to `report` what became of them.

    `progress` is told how many bytes are done. Raises `WireError`; then `report` tells what
    was done until then, and the same file can be imported again.
    """
    seal, done, number = Seal(), 0, 0
    for lines, numbers in _parts(file, seal, report):
        request = gateway_pb2.ImportMemoryRequest(lines=lines, dry_run=dry_run)
        report.add(await _soon(stub.ImportMemory(request)), numbers)
        done, number = file.tell() if file.seekable() else done + len(lines), numbers[-1]
        progress(done)
    try:
        seal.check()
    except NotWhole as error:
        report.problems.append((number, str(error)))


def _parts(file: BinaryIO, seal: Seal, report: Imported) -> Iterator[tuple[bytes, list[int]]]:
    """The lines in parts that one request may hold, each after the header; and their numbers."""
    header = b""
    part, numbers = bytearray(), [1]
    for number, line in _lines(file, seal, report):
        if not header:
            header = line
            part += header
            continue
        if len(part) + len(line) > EXPORT_PART_BYTES and len(numbers) > 1:
            yield bytes(part), numbers
            part, numbers = bytearray(header), [1]
        part += line
        numbers.append(number)
    yield bytes(part), numbers


def _lines(file: BinaryIO, seal: Seal, report: Imported) -> Iterator[tuple[int, bytes]]:
    """The numbered lines that are neither blank nor too long."""
    number = 0
    while line := file.readline(EXPORT_LINE_MAX_BYTES):
        number += 1
        whole = len(line) < EXPORT_LINE_MAX_BYTES or line.endswith(b"\n")
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(EXPORT_LINE_MAX_BYTES)):
            pass
        if line.isspace():
            continue
        seal.take(line)
        if whole:
            yield number, line if line.endswith(b"\n") else line + b"\n"
        else:
            report.problems.append((number, f"is longer than {EXPORT_LINE_MAX_BYTES} bytes"))


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def _soon(call: Awaitable[_T]) -> _T:
    try:
        return await asyncio.wait_for(call, _PART_S)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None
    except TimeoutError:
        raise HostError(
            Code.TIMEOUT,
            f"the agent has not answered for {_PART_S:.0f} seconds",
            resolution="runner logs",
        ) from None


DIRECTORY: Final = "backups"
_SAFE: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK: Final = 1024 * 1024


def path_of(workspace: Workspace, name: str) -> Path:
    """Where the guest has put the backup `name`."""
    return workspace.internal / DIRECTORY / name


def take_out(workspace: Workspace, name: str, sha256: str, target: Path) -> None:
    """Copy the backup `name` to `target`, whole or not at all, private to us.

    The guest may have put anything there, so links are not followed and the content
    must be what it announced. Raises `HostError`.
    """
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with _open(workspace, name) as source:
            fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600)
            with os.fdopen(fd, "wb") as copy:
                digest = _copy(source, copy)
                os.fsync(copy.fileno())
        if digest != sha256:
            raise _failed(target, "its content is not what the agent said it had written")
        draft.replace(target)
    except OSError as error:
        raise _failed(target, f"{error.filename or target}: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)


def _open(workspace: Workspace, name: str) -> BinaryIO:
    directory = os.O_RDONLY | os.O_DIRECTORY | _SAFE
    internal = os.open(workspace.internal, directory)
    try:
        inside = os.open(DIRECTORY, directory, dir_fd=internal)
    finally:
        os.close(internal)
    try:
        file = os.open(os.path.basename(name), os.O_RDONLY | os.O_NONBLOCK | _SAFE, dir_fd=inside)  # noqa: PTH119 - a name, not a path
    finally:
        os.close(inside)
    return os.fdopen(file, "rb")


def _copy(source: BinaryIO, target: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
        target.write(block)
    target.flush()
    return digest.hexdigest()


def _failed(target: Path, why: str) -> HostError:
    return HostError(
        Code.FAILED_PRECONDITION,
        f"the backup could not be brought to {target}",
        details=why,
        resolution=f"ls -ld {target.parent}; df -h {target.parent}; then try again",
    )

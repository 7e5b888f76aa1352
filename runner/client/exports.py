"""A memory as a file of JSON lines: complete export, import, and the check of its last line."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from wire.errors import Code
from wire.limits import EXPORT_LINE_MAX_BYTES, EXPORT_PART_BYTES
from wire.text import parsed_json
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient
from runner.errors import HostError


@dataclass
class Imported:
    """What an import did or, in a dry run, would do. Line numbers in problems start at 1."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)

    def add(self, reply: gateway_pb2.ImportMemoryReply, numbers: list[int]) -> None:
        """Add one reply. `numbers` are the line numbers that the reply is about."""
        self.created += reply.created
        self.updated += reply.updated
        self.unchanged += reply.unchanged
        for each in reply.problems:
            self.problems.append((numbers[each.line - 1], each.problem))


class Seal:
    """Checks the lines of an export against the count and the hash in its last line."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._seen = 0
        self.last = b""

    def take(self, line: bytes) -> None:
        """Add the next line, including its line break."""
        if self._seen > 1:
            self._digest.update(self.last)
        self.last = line
        self._seen += 1

    def check(self) -> dict[str, int]:
        """Return how many entries there are of each kind.

        Raises `ValueError` if lines are missing, added or changed.
        """
        end = _object(self.last)
        if end.get("kind") != "end":
            raise ValueError("the end line is missing: the file was cut off here")
        if end.get("lines") != self._seen - 2:
            raise ValueError(
                f"{end.get('lines')} lines were exported, and {self._seen - 2} are in the file"
            )
        if end.get("sha256") != self._digest.hexdigest():
            raise ValueError("lines of the file were changed since they were exported")
        return {name: count for name, count in end.get("counts", {}).items() if count}


@dataclass(frozen=True)
class Exported:
    """How many entries of each kind an export has, and what it leaves out, in words."""

    counts: Mapping[str, int]
    left_out: Sequence[str]


async def write_export(
    agent: GatewayClient,
    write: Callable[[bytes], object],
    progress: Callable[[int, int], None],
) -> Exported:
    """Write a complete export.

    `progress` is called with the entries written so far and the total. Raises `WireError` if the
    export failed; what was written is then incomplete.
    """
    seal = Seal()
    left_out: list[str] = []
    async with aclosing(agent.export_memory()) as parts:
        async for part in parts:
            write(part.lines)
            for line in part.lines.removesuffix(b"\n").split(b"\n"):
                seal.take(line + b"\n")
            left_out += part.left_out
            progress(part.entries, part.entries_total)
    try:
        return Exported(seal.check(), left_out)
    except ValueError as error:
        raise HostError(
            Code.DATA_LOSS, "the export is incomplete", details=str(error), resolution="try again"
        ) from None


async def read_export(
    agent: GatewayClient,
    file: BinaryIO,
    report: Imported,
    progress: Callable[[int], None],
    *,
    dry_run: bool,
) -> None:
    """Send the lines of an export to the agent.

    `report` receives the result, also when the import breaks off; `progress` is called with the
    number of bytes done. Raises `WireError` if the import broke off; the same file can be imported
    again.
    """
    seal, done, number = Seal(), 0, 0
    for lines, numbers in _parts(_lines(file, seal, report)):
        report.add(await agent.import_memory(lines, dry_run=dry_run), numbers)
        done, number = file.tell() if file.seekable() else done + len(lines), numbers[-1]
        progress(done)
    try:
        seal.check()
    except ValueError as error:
        report.problems.append((number, str(error)))


def _parts(numbered: Iterator[tuple[int, bytes]]) -> Iterator[tuple[bytes, list[int]]]:
    """Group the lines into requests that each begin with the header; with their line numbers."""
    header = b""
    part, numbers = bytearray(), [1]
    for number, line in numbered:
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
    """The lines, with their numbers, that are neither blank nor too long."""
    number, max_bytes = 0, EXPORT_LINE_MAX_BYTES
    while line := file.readline(max_bytes):
        number += 1
        whole = len(line) < max_bytes or line.endswith(b"\n")
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(max_bytes)):
            pass
        if line.isspace():
            continue
        seal.take(line)
        if whole:
            yield number, line if line.endswith(b"\n") else line + b"\n"
        else:
            report.problems.append((number, f"is longer than {max_bytes} bytes"))


def _object(line: bytes) -> dict[str, Any]:
    try:
        value = parsed_json(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}

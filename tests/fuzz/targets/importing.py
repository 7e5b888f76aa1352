"""Files that are imported into a real memory.

A rehearsal says exactly what the import then does, unless two lines are about the same. Problems
name a line. Importing twice changes nothing, and what is exported afterwards can be imported
elsewhere without a problem.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from wire.errors import Code
from wire.text import visible_name

from guest.errors import GuestError
from guest.memory.memory import Memory
from guest.memory.storage.files.inspection import inspect
from guest.memory.transfer.format import (
    BadLine,
    EventLine,
    HistoryLine,
    NoteLine,
    SessionLine,
    read,
)
from guest.memory.transfer.importer import Report
from tests.fuzz.material import Choices, OneInput, Target, chosen
from tests.fuzz.targets.export_lines import BASES, changed
from tests.support.memory.exports import exported, header
from tests.support.memory.store import opened

_FRESH_AFTER = 100
"""So many files are imported into one memory: the more there is, the slower is an export."""
_LINES_MAX = 4


class _Memories:
    """A memory that takes all that is imported for a while, and then another."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._stack = AsyncExitStack()
        self._files = 0
        self._imported = _FRESH_AFTER
        self._memory: Memory

    async def one_input(self, data: bytes) -> None:
        if self._imported >= _FRESH_AFTER:
            await self.close()
            self._files += 1
            path = self._scratch / f"{self._files}.db"
            self._memory = await self._stack.enter_async_context(opened(path, max_notes=500))
            self._imported = 0
        self._imported += 1
        file = _file(Choices(data))
        rehearsed = await self._fed(file, dry_run=True)
        report = await self._fed(file)
        assert rehearsed == report or _says_twice(file)
        if report is None:
            return
        lines = file.count(b"\n") + 1
        assert all(1 < line <= lines for line, _ in report.problems)
        assert all(visible_name(told) == told for _, told in report.problems)
        again = await self._fed(file)
        assert again is not None
        assert report.problems or again.created == again.updated == 0

    async def _fed(self, file: bytes, *, dry_run: bool = False) -> Report | None:
        try:
            return await self._memory.importer().feed(file, dry_run=dry_run)
        except GuestError as error:
            assert error.code is Code.INVALID_ARGUMENT
            assert error.details.startswith("line 1: ")
            return None

    async def close(self) -> None:
        """Leave the memory, once it was seen to be whole and to be whole elsewhere, too."""
        if not self._files:
            return
        export = await exported(self._memory)
        elsewhere = self._scratch / "elsewhere.db"
        async with opened(elsewhere) as other:
            assert (await other.importer().feed(export)).problems == []
            second = await exported(other)
            assert second.splitlines()[1:] == export.splitlines()[1:]
        await self._stack.aclose()
        inspect(self._scratch / f"{self._files}.db", "")
        for path in self._scratch.iterdir():
            path.unlink()


def _file(choices: Choices) -> bytes:
    if choices.below(4) == 3:
        return choices.rest()
    parts = [header(choices.one_of(("alice", "bob")))]
    for _ in range(1 + choices.below(_LINES_MAX)):
        parts.append(changed(choices) + b"\n")
    return b"".join(parts)


def _says_twice(file: bytes) -> bool:
    """Whether two lines are about the same, of which a rehearsal knows nothing."""
    subjects: list[object] = []
    for text in file.splitlines()[1:]:
        try:
            line = read(text)
        except BadLine:
            continue
        match line:
            case NoteLine():
                subjects += [line.note_id, line.key or line.note_id + " ", line.current.content]
            case EventLine():
                subjects.append((line.session_id, line.sequence))
            case SessionLine():
                subjects.append((line.session_id,))
            case HistoryLine():
                subjects.append((line.note_id, "history"))
    return len(set(subjects)) < len(subjects)


@contextmanager
def _opened(scratch: Path) -> Iterator[OneInput]:
    with asyncio.Runner() as runner:
        memories = _Memories(scratch)
        yield lambda data: runner.run(memories.one_input(data))
        runner.run(memories.close())


def _seeds() -> Mapping[str, bytes]:
    several = b"".join(json.dumps(line).encode() + b"\n" for line in BASES[:-2])
    whole = {
        "whole": chosen(3, header() + several),
        "of-another": chosen(3, header("bob") + several),
        "newer": chosen(3, header(version=2)),
        "no-header": chosen(3, several),
    }
    lines = {
        f"line-{number}": bytes([0, number % 2, 1, number, 0, (number + 3) % 8, 0])
        for number in range(8)
    }
    odd = {
        f"odd-{number}": bytes([0, 0, 0, number, 1, 7 * number, 3, number]) for number in range(16)
    }
    return whole | lines | odd


TARGET = Target("import", 12, _opened, _seeds)

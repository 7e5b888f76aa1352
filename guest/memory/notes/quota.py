"""Quotas of one user: the number of notes, and the amount of text."""

from dataclasses import dataclass
from typing import Final, cast

from guest.memory.models import MemoryConfig, MemoryFull
from guest.memory.storage.base import INTEGER_MAX, Database, Result, Statement

_KEEP: Final = """
INSERT INTO guards (ok)
    SELECT 0 FROM usage WHERE namespace = ? AND (notes > ? OR bytes > ?)
"""
_HOW_TO_FREE: Final = "delete notes that are not needed (memory_delete, or runner memory forget)"
USED: Final = "SELECT notes, bytes FROM usage WHERE namespace = ?"


@dataclass(frozen=True)
class Used:
    """A number of notes, and the UTF-8 bytes of their text in all versions; in total or as
    growth."""

    notes: int = 0
    text_bytes: int = 0

    def __add__(self, more: "Used") -> "Used":
        return Used(self.notes + more.notes, self.text_bytes + more.text_bytes)


ANOTHER_NOTE: Final = Used(1, 1)
ANOTHER_VERSION: Final = Used(0, 1)


@dataclass(frozen=True)
class Quota:
    """What one user may store: notes of every kind, and UTF-8 bytes of text. Superseded notes
    and earlier versions count, so that repeated writes cannot fill the disk."""

    notes: int
    text_bytes: int

    @classmethod
    def of(cls, config: MemoryConfig) -> "Quota":
        return cls(config.settings.max_notes, round(config.settings.max_text_mb * 2**20))

    def keep(self, namespace: str, more: Used) -> Statement:
        """A statement that fails its batch if the `more` added before it exceeds the quota."""
        notes = self.notes if more.notes > 0 else INTEGER_MAX
        text_bytes = self.text_bytes if more.text_bytes > 0 else INTEGER_MAX
        return Statement(_KEEP, (namespace, notes, text_bytes))

    async def check(self, database: Database, namespace: str, more: Used) -> None:
        """Raise `MemoryFull` if `more` does not fit beside what is stored."""
        self.refuse(used_of(await database.execute(USED, (namespace,))), more)

    def refuse(self, used: Used, more: Used) -> None:
        """Raise `MemoryFull`, with the figures, if `more` does not fit beside `used`."""
        if more.notes > 0 and used.notes + more.notes > self.notes:
            raise MemoryFull(
                f"the memory is full: {used.notes:,} notes of at most {self.notes:,}; superseded "
                f"ones count too: {_HOW_TO_FREE}, or raise memory.max_notes"
            )
        if more.text_bytes > 0 and used.text_bytes + more.text_bytes > self.text_bytes:
            raise MemoryFull(
                f"the memory is full: {used.text_bytes:,} bytes of text of at most "
                f"{self.text_bytes:,}, and this needs {more.text_bytes:,} more; earlier versions "
                f"and superseded notes count too: {_HOW_TO_FREE}, which frees all of their text, "
                "or raise memory.max_text_mb"
            )


def used_of(result: Result) -> Used:
    return Used(*cast("tuple[int, int]", result.rows[0])) if result.rows else Used()


UNBOUNDED: Final = Quota(INTEGER_MAX, INTEGER_MAX)

"""How much one user may keep: a full memory says so, it neither grows on nor forgets by itself.

Triggers keep the table `usage`, so that a change pays for one row of it.
"""

from dataclasses import dataclass
from typing import Final, cast

from guest.memory.database.base import Database, Result, Statement
from guest.memory.database.values import INTEGER_MAX
from guest.memory.types import MemoryConfig, MemoryFull

_KEEP: Final = """
INSERT INTO guards (ok)
    SELECT 0 FROM usage WHERE namespace = ? AND (notes > ? OR bytes > ?)
"""
_KEEP_GROWING: Final = """
INSERT INTO guards (ok)
    SELECT 0 FROM notes JOIN usage USING (namespace)
        WHERE namespace = ?1 AND note_id = ?2 AND ?3 > length(CAST(content AS BLOB))
            AND bytes + ?3 - length(CAST(content AS BLOB)) > ?4
"""
USED: Final = "SELECT notes, bytes FROM usage WHERE namespace = ?"


@dataclass(frozen=True)
class Used:
    """How many notes there are, and the UTF-8 bytes of their text; or how much more."""

    notes: int = 0
    text_bytes: int = 0

    def __add__(self, more: "Used") -> "Used":
        return Used(self.notes + more.notes, self.text_bytes + more.text_bytes)


_ONE: Final = Used(1, 1)


@dataclass(frozen=True)
class Quota:
    """What one user may keep: notes of any kind, superseded ones too, and UTF-8 bytes of
    their text as it reads now. Versions before do not count."""

    notes: int
    text_bytes: int

    @classmethod
    def of(cls, config: MemoryConfig) -> "Quota":
        return cls(config.max_notes, config.max_text_bytes)

    def keep(self, namespace: str, more: Used = _ONE) -> Statement:
        """Fail the batch that has added `more` before this statement, if there is too much
        now of what it has added."""
        notes = self.notes if more.notes > 0 else INTEGER_MAX
        text_bytes = self.text_bytes if more.text_bytes > 0 else INTEGER_MAX
        return Statement(_KEEP, (namespace, notes, text_bytes))

    def keep_growing(self, namespace: str, note_id: str, text: str) -> Statement:
        """Fail the batch that is about to give a note a longer text, if that is too much."""
        size = len(text.encode())
        return Statement(_KEEP_GROWING, (namespace, note_id, size, self.text_bytes))

    async def check(
        self, database: Database, namespace: str, *, notes: int, text_bytes: int
    ) -> None:
        """Raise `MemoryFull` where so much more does not fit, with the numbers."""
        result = await database.execute(USED, (namespace,))
        self.refuse(used_of(result), Used(notes, text_bytes))

    def refuse(self, used: Used, more: Used) -> None:
        """Raise `MemoryFull` where `more` does not fit beside `used`, with the numbers."""
        if more.notes > 0 and used.notes + more.notes > self.notes:
            raise MemoryFull(
                f"the memory is full: {used.notes:,} notes of at most {self.notes:,}; forget "
                "notes that are not needed, or raise memory.max_notes"
            )
        if more.text_bytes > 0 and used.text_bytes + more.text_bytes > self.text_bytes:
            raise MemoryFull(
                f"the memory is full: {used.text_bytes:,} bytes of text of at most "
                f"{self.text_bytes:,}, and this needs {more.text_bytes:,} more; forget notes "
                "that are not needed, or raise memory.max_text_mb"
            )


def used_of(result: Result) -> Used:
    """What `USED` has given."""
    return Used(*cast("tuple[int, int]", result.rows[0])) if result.rows else Used()

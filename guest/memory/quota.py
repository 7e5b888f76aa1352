"""How much one user may keep: a full memory says so, it neither grows on nor forgets by itself.

Triggers keep the table `usage`, so that a change pays for one row of it.
"""

from dataclasses import dataclass
from typing import Final, cast

from guest.memory.database.base import Database, Statement
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
_USED: Final = "SELECT notes, bytes FROM usage WHERE namespace = ?"


@dataclass(frozen=True)
class Quota:
    """What one user may keep: notes of any kind, superseded ones too, and UTF-8 bytes of
    their text as it reads now. Versions before do not count."""

    notes: int
    text_bytes: int

    @classmethod
    def of(cls, config: MemoryConfig) -> "Quota":
        return cls(config.max_notes, config.max_text_bytes)

    def keep(self, namespace: str) -> Statement:
        """Fail the batch that has added notes before this statement, if they are too many."""
        return Statement(_KEEP, (namespace, self.notes, self.text_bytes))

    def keep_growing(self, namespace: str, note_id: str, text: str) -> Statement:
        """Fail the batch that is about to give a note a longer text, if that is too much."""
        size = len(text.encode())
        return Statement(_KEEP_GROWING, (namespace, note_id, size, self.text_bytes))

    async def check(
        self, database: Database, namespace: str, *, notes: int, text_bytes: int
    ) -> None:
        """Raise `MemoryFull` where so much more does not fit, with the numbers."""
        result = await database.execute(_USED, (namespace,))
        used, size = cast("tuple[int, int]", result.rows[0]) if result.rows else (0, 0)
        if notes > 0 and used + notes > self.notes:
            raise MemoryFull(
                f"the memory is full: {used:,} notes of at most {self.notes:,}; forget notes "
                "that are not needed, or raise memory.max_notes"
            )
        if text_bytes > 0 and size + text_bytes > self.text_bytes:
            raise MemoryFull(
                f"the memory is full: {size:,} bytes of text of at most {self.text_bytes:,}, and "
                f"this needs {text_bytes:,} more; forget notes that are not needed, or raise "
                "memory.max_text_bytes"
            )

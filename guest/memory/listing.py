"""Notes page by page, newest first."""

from dataclasses import dataclass
from typing import Final, cast

from guest.memory import notes
from guest.memory.database.base import Database, Value
from guest.memory.types import Note

_PAGE: Final = f"""
SELECT {notes.COLUMNS}, notes.seq FROM notes WHERE seq IN (
    SELECT seq FROM notes WHERE namespace = ? AND seq < ? {{only}} ORDER BY seq DESC LIMIT ?)
    ORDER BY seq DESC
"""  # noqa: S608
_TAGGED: Final = "EXISTS (SELECT 1 FROM json_each(notes.tags) WHERE value = ?)"


@dataclass(frozen=True)
class Filter:
    """Which notes a list has; empty: whichever. Notes of every session's scope are among
    them: a list is for the person whose notes they are."""

    include_superseded: bool = False
    type: str = ""
    actor: str = ""
    material_only: bool = False
    tag: str = ""

    def conditions(self) -> tuple[str, tuple[Value, ...]]:
        """SQL that follows other conditions, and its arguments."""
        chosen: list[str] = []
        if not self.include_superseded:
            chosen.append("superseded_by IS NULL")
        if self.material_only:
            chosen.append("origin_material = 1")
        arguments: list[Value] = []
        for condition, value in (
            ("type = ?", self.type),
            ("origin_actor = ?", self.actor),
            (_TAGGED, self.tag),
        ):
            if value:
                chosen.append(condition)
                arguments.append(value)
        return "".join(f" AND {condition}" for condition in chosen), tuple(arguments)


async def page(
    database: Database, namespace: str, user_id: str, limit: int, before: int, only: Filter
) -> tuple[list[Note], int]:
    """Up to `limit` notes, newest first, and where the next page begins; 0 at the end."""
    conditions, arguments = only.conditions()
    sql = _PAGE.format(only=conditions)
    result = await database.execute(sql, (namespace, before, *arguments, limit + 1))
    rows = result.rows[:limit]
    following = cast(int, rows[-1][-1]) if len(result.rows) > limit else 0
    return [notes.note_of(user_id, row) for row in rows], following

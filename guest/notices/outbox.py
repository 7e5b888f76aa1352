"""The outbox of one user: what a person is told outside of turns.

A notice is stored before anybody is told, and told at least once to each surface that has asked,
until the person has read it on one of them. It goes with the session and the note that it is about.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

from wire.text import shortened

from guest.memory.models import now
from guest.memory.storage.base import (
    INTEGER_MAX,
    Database,
    Result,
    Statement,
    apply,
    nearest,
)

Kind = Literal["schedule", "reminder", "approval", "budget", "guest", "delegation", "command"]
KINDS: Final = get_args(Kind)
KEPT_MAX: Final = 1_000
"""How many notices of a user are kept; the oldest go first, and the oldest that is left says it if
some had not been read."""
TEXT_MAX_CHARS: Final = 2_000
KEY_MAX_CHARS: Final = 200
SURFACES_MAX: Final = 100
_PAGE: Final = 100
_LOOK_AGAIN_S: Final = 60.0
"""A notice that another agent stores on the same memory server is found so late."""

_COLUMNS: Final = "number, kind, text, key, session_id, turn_id, note_id, created_at, read_at"
_ADD: Final = """
INSERT INTO notices (user_id, key, kind, text, session_id, turn_id, note_id, created_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user_id, key) DO NOTHING
"""
_TRIM: Final = """
DELETE FROM notices WHERE user_id = ?1 AND number <= (
    SELECT number FROM notices WHERE user_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)
"""
_SAY: Final = """
UPDATE notices SET text = substr(text, 1, ?3) || ?4 WHERE user_id = ?1 AND number = (
    SELECT number FROM notices WHERE user_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2 - 1)
    AND EXISTS (SELECT 1 FROM notices AS old
        WHERE old.user_id = ?1 AND old.number < notices.number AND old.read_at = '')
"""
_GONE: Final = " (older notices have gone unread: there were too many)"
_OF_KEY: Final = f"SELECT {_COLUMNS} FROM notices WHERE user_id = ? AND key = ?"  # noqa: S608
_AFTER: Final = f"""
SELECT {_COLUMNS} FROM notices WHERE user_id = ? AND number > ? AND (? = 0 OR read_at = '')
    ORDER BY number LIMIT ?
"""  # noqa: S608
_BEFORE: Final = f"""
SELECT {_COLUMNS} FROM notices WHERE user_id = ? AND number < ? AND (? = 0 OR read_at = '')
    ORDER BY number DESC LIMIT ?
"""  # noqa: S608
_UNREAD: Final = "SELECT COUNT(*) FROM notices WHERE user_id = ? AND read_at = ''"
_READ: Final = """
UPDATE notices SET read_at = ? WHERE user_id = ? AND read_at = '' AND (
    number <= ? OR number IN (SELECT value FROM json_each(?)))
"""
_TOLD: Final = "SELECT told FROM notice_marks WHERE user_id = ? AND surface = ?"
_TELL: Final = """
INSERT INTO notice_marks (user_id, surface, told, updated_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (user_id, surface) DO UPDATE
        SET told = max(told, excluded.told), updated_at = excluded.updated_at
"""
_TRIM_MARKS: Final = """
DELETE FROM notice_marks WHERE user_id = ?1 AND surface NOT IN (
    SELECT surface FROM notice_marks WHERE user_id = ?1 ORDER BY updated_at DESC LIMIT ?2)
"""


@dataclass(frozen=True)
class Notice:
    """Something that a person is to be told. `number` orders notices; `key` names what happened.
    `read_at` is empty until the person has read it."""

    number: int
    kind: str
    text: str
    key: str
    session_id: str
    turn_id: str
    note_id: str
    created_at: str
    read_at: str


class Outbox:
    """The notices of one user. There is one in a process: it wakes those who follow.

    Every method raises `StorageError`.
    """

    def __init__(self, database: Database, user_id: str) -> None:
        self._database = database
        self._user_id = user_id
        self._added = asyncio.Event()

    async def add(
        self,
        kind: Kind,
        text: str,
        *,
        key: str,
        session_id: str = "",
        turn_id: str = "",
        note_id: str = "",
    ) -> Notice:
        """Store a notice durably. While one with this `key` is kept, that is returned unchanged.

        `text` is shortened to `TEXT_MAX_CHARS`. The notice goes when its session or note is
        forgotten. Raises `ValueError` for a `key` that is empty or too long.
        """
        if not 0 < len(key) <= KEY_MAX_CHARS:
            raise ValueError(f"key: it must have 1 to {KEY_MAX_CHARS} characters")
        told = shortened(str(nearest(text)), TEXT_MAX_CHARS - 1)
        row = (self._user_id, key, kind, told, session_id, turn_id, note_id, now())
        kept = (self._user_id, KEPT_MAX)
        said = (*kept, TEXT_MAX_CHARS - len(_GONE), _GONE)
        await apply(
            self._database, Statement(_ADD, row), Statement(_SAY, said), Statement(_TRIM, kept)
        )
        added, self._added = self._added, asyncio.Event()
        added.set()
        return _notices(await self._database.execute(_OF_KEY, (self._user_id, key)))[0]

    async def after(self, number: int, limit: int, *, unread: bool = False) -> list[Notice]:
        """Up to `limit` notices after that number, oldest first."""
        return await self._page(_AFTER, number, limit, unread=unread)

    async def newest(
        self, limit: int, before: int = INTEGER_MAX, *, unread: bool = False
    ) -> list[Notice]:
        """Up to `limit` notices before that number, newest first."""
        return await self._page(_BEFORE, before, limit, unread=unread)

    async def _page(self, sql: str, number: int, limit: int, *, unread: bool) -> list[Notice]:
        which = (self._user_id, min(number, INTEGER_MAX), int(unread), limit)
        return _notices(await self._database.execute(sql, which))

    async def unread(self) -> int:
        result = await self._database.execute(_UNREAD, (self._user_id,))
        return cast(int, result.rows[0][0])

    async def read(self, numbers: Sequence[int] = (), *, up_to: int = 0) -> int:
        """Mark notices as read: those with these numbers, and all up to one. Returns how many are
        unread now."""
        which = (now(), self._user_id, up_to, json.dumps(list(numbers)))
        await apply(self._database, Statement(_READ, which))
        return await self.unread()

    async def told(self, surface: str) -> int:
        """The number up to which a surface has told notices; 0 for one that never has."""
        result = await self._database.execute(_TOLD, (self._user_id, surface))
        return cast(int, result.rows[0][0]) if result.rows else 0

    async def tell(self, surface: str, number: int) -> None:
        """Note that a surface has told all notices up to a number.

        Of more than `SURFACES_MAX` surfaces, those go that have told nothing for longest.
        """
        await apply(
            self._database,
            Statement(_TELL, (self._user_id, surface, number, now())),
            Statement(_TRIM_MARKS, (self._user_id, SURFACES_MAX)),
        )

    async def follow(self, after: int, *, unread: bool = False) -> AsyncGenerator[Notice]:
        """Notices after that number, and then those that come, without end."""
        while True:
            added = self._added
            page = await self.after(after, _PAGE, unread=unread)
            for notice in page:
                after = notice.number
                yield notice
            if not page:
                with suppress(TimeoutError):
                    await asyncio.wait_for(added.wait(), _LOOK_AGAIN_S)


def _notices(result: Result) -> list[Notice]:
    return [Notice(*row) for row in cast("tuple[tuple[Any, ...], ...]", result.rows)]

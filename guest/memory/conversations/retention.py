"""Forgets conversations that are too old, unless the clock is implausible.

Only the clock makes a conversation old, and clocks can be wrong. So:

- If memory holds a date in the future, the clock is or was wrong. Nothing is forgotten until that
  date has passed.
- If the clock has advanced by more than `_LEAP`, or by the whole retention, since the last known
  time, the machine may have been off, or its clock may have jumped. Nothing is forgotten for a day,
  and the log says why.
- A conversation stored after one that is not due is not due either, whatever its own date: it was
  written while the clock was behind, or imported.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from guest.memory.conversations.sessions import SessionAdmin
from guest.memory.models import User, at
from guest.memory.storage.base import Database, Statement, apply
from guest.memory.storage.changes import Background

log = logging.getLogger(__name__)

_EVERY_S: Final = 3600.0
_LEAP: Final = timedelta(days=7)
_PATIENCE: Final = timedelta(days=1)
SLICE: Final = 500

_KNOWN: Final = """
SELECT COALESCE((SELECT MAX(updated_at) FROM sessions WHERE user_id = ?1), ''),
       COALESCE((SELECT MAX(updated_at) FROM notes WHERE namespace = ?2), ''),
       COALESCE(checked_at, ''), COALESCE(not_before, '')
    FROM (SELECT 1) LEFT JOIN retention_checks ON user_id = ?1
"""
_REMEMBER: Final = """
INSERT INTO retention_checks (user_id, checked_at, not_before) VALUES (?, ?, ?)
    ON CONFLICT (user_id) DO UPDATE
        SET checked_at = excluded.checked_at, not_before = excluded.not_before
"""
_DUE: Final = """
WITH last AS (
    SELECT session_id, updated_at,
           (SELECT event_id FROM conversation_events
               WHERE conversation_events.session_id = sessions.session_id
               ORDER BY sequence DESC LIMIT 1) AS stored
        FROM sessions WHERE user_id = ?1)
SELECT session_id FROM last
    WHERE updated_at BETWEEN '0' AND ?2 AND (stored IS NULL OR stored < COALESCE(
        (SELECT MIN(stored) FROM last WHERE updated_at BETWEEN ?2 AND ?3), stored + 1))
    ORDER BY updated_at LIMIT ?4
"""


@dataclass(repr=False, eq=False)
class Retention:
    """Forgets one user's conversations that were last used more than `days` ago."""

    database: Database
    sessions: SessionAdmin
    user: User
    days: int
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        self._age = timedelta(days=self.days)
        self._background = Background()
        self.stop = self._background.stop
        """Stop checking; a removal that has begun continues. Idempotent."""
        self._said = ""

    def start(self) -> None:
        """Check now, and then every hour."""
        self._background.begin(self._run())

    async def look(self) -> int:
        """Forget the sessions that are due, unless the clock is implausible; returns how many."""
        now = self.clock()
        problem = await self._problem(now)
        if problem and problem != self._said:
            log.warning("old conversations are not forgotten now: %s", problem)
        self._said = problem
        return 0 if problem else await self._forget(now)

    async def _forget(self, now: datetime) -> int:
        forgotten = 0
        while True:
            before = (self.user.id, at(now - self._age), at(now + _PATIENCE), SLICE)
            found = await self.database.execute(_DUE, before)
            due = [cast(str, row[0]) for row in found.rows]
            done = await self.sessions.forget_all(due)
            forgotten += done
            if not done or len(due) < SLICE:
                break
        if forgotten:
            log.info(
                "%d conversations were forgotten: last used more than %d days ago",
                forgotten,
                self._age.days,
                extra={"count": forgotten},
            )
        return forgotten

    async def _problem(self, now: datetime) -> str:
        """Why nothing may be forgotten now; empty if nothing forbids it."""
        result = await self.database.execute(_KNOWN, (self.user.id, self.user.notes))
        sessions, notes, looked, not_before = cast("tuple[str, ...]", result.rows[0])
        content = max(sessions, notes)
        if content > at(now + _PATIENCE):
            return f"the clock says {at(now)[:10]}, but memory holds something dated {content[:10]}"
        if "" < max(content, looked) < at(now - min(_LEAP, self._age)):
            not_before = at(now + _PATIENCE)
        waits = at(now) < not_before <= at(now + _PATIENCE)
        checked = (self.user.id, at(now), not_before if waits else "")
        await apply(self.database, Statement(_REMEMBER, checked))
        if not waits:
            return ""
        return (
            "the clock has advanced by a long time since memory was last used; if it is right, "
            f"they are forgotten after {not_before[:16]}Z"
        )

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:
                log.exception("the check for old conversations failed")
            await asyncio.sleep(_EVERY_S)

"""Small values that belong to a session, changed only by who knows the latest of them."""

from typing import Final, cast

from guest.memory.database.base import AnswerLost, Database
from guest.memory.instant import now

_READ: Final = """
SELECT value, epoch FROM session_state
    WHERE session_id = ?1 AND name = ?2
    AND EXISTS (SELECT 1 FROM sessions WHERE session_id = ?1 AND user_id = ?3)
"""
_SWAP: Final = """
INSERT INTO session_state (session_id, name, value, epoch, updated_at)
    SELECT ?1, ?2, ?4, ?5 + 1, ?6
    WHERE EXISTS (SELECT 1 FROM sessions WHERE session_id = ?1 AND user_id = ?3)
    AND COALESCE((SELECT epoch FROM session_state WHERE session_id = ?1 AND name = ?2), 0) = ?5
    ON CONFLICT (session_id, name) DO UPDATE
        SET value = excluded.value, epoch = excluded.epoch, updated_at = excluded.updated_at
"""


class SessionState:
    """Named values of all users' sessions; they go when their session is forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, user_id: str, session_id: str, name: str) -> tuple[str, int] | None:
        """The value and its epoch, which is 1 for the first one; None where there is none,
        or no such session of the user. Raises `StorageError`."""
        result = await self._database.execute(_READ, (session_id, name, user_id))
        return cast("tuple[str, int]", result.rows[0]) if result.rows else None

    async def swap(
        self, user_id: str, session_id: str, name: str, value: str, expected_epoch: int
    ) -> bool:
        """Replace the value that has `expected_epoch`, 0 meaning that there is none yet.

        False, and nothing changed, where another epoch is there or the user has no
        such session: read again then. Raises `StorageError`.
        """
        change = (session_id, name, user_id, value, expected_epoch, now())
        try:
            return (await self._database.execute(_SWAP, change)).rows_affected == 1
        except AnswerLost:
            return await self.read(user_id, session_id, name) == (value, expected_epoch + 1)

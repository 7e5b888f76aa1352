"""What sessions have handed on to sessions of their own, until its result is told."""

from dataclasses import dataclass
from typing import Final, cast

from guest.memory.conversations.sessions import SessionState
from guest.memory.models import User
from guest.memory.storage.base import Database

_NAME: Final = "handed-on"
_OPEN: Final = "open "
_TOLD: Final = "told "
_FIND: Final = """
SELECT session_id, parent_id, value FROM session_state JOIN sessions USING (session_id)
    WHERE name = ?1 AND user_id = ?2 AND value LIKE 'open %' AND parent_id <> ''
        AND ?3 IN ('', parent_id) AND (
            value NOT LIKE 'open % %' OR value LIKE '% ' || ?5
            OR sessions.created_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 day'))
    ORDER BY sessions.created_at LIMIT ?4
"""
_AT_ONCE: Final = 64


@dataclass(frozen=True)
class HandedOn:
    """Work of the session `session_id` for a turn of the session `parent_id`."""

    session_id: str
    parent_id: str
    turn_id: str


class Work:
    """The open work of one user's sessions. It goes with the session that does it. What the agent
    of another host has begun is that agent's for a day. Every method raises `StorageError`."""

    def __init__(self, database: Database, state: SessionState, user: User) -> None:
        self.owner = ""
        self._database = database
        self._state = state
        self._user = user

    async def begin(self, work: HandedOn) -> None:
        """Note work before it begins. Raises `ValueError` if it was noted before."""
        value = f"{_OPEN}{work.turn_id} {self.owner}".rstrip()
        if not await self._state.swap(work.session_id, _NAME, value, 0):
            raise ValueError(f"{work.session_id} has work already")

    async def told(self, work: HandedOn) -> None:
        """Its result is told, or nobody is to be told of it."""
        found = await self._state.read(work.session_id, _NAME)
        if found is not None:
            await self._state.swap(work.session_id, _NAME, _TOLD + work.turn_id, found[1])

    async def open(self, parent_id: str = "") -> list[HandedOn]:
        """The oldest work that is not told, for one session or for all."""
        which = (_NAME, self._user.id, parent_id, _AT_ONCE, self.owner)
        rows = (await self._database.execute(_FIND, which)).rows
        found = [cast("tuple[str, str, str]", row) for row in rows]
        return [HandedOn(own, parent, value.split(" ")[1]) for own, parent, value in found]

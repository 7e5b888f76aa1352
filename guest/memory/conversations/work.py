"""What sessions have handed on to sessions of their own, until its result is told."""

from dataclasses import dataclass
from typing import Final, cast

from guest.memory.conversations.sessions import LOST, SessionState
from guest.memory.models import User
from guest.memory.storage.base import Database

_NAME: Final = "handed-on"
_FIND: Final = f"""
SELECT session_id, parent_id, value FROM session_state JOIN sessions USING (session_id)
    WHERE name = ?1 AND user_id = ?2 AND value LIKE 'open %' AND parent_id <> ''
        AND ?3 IN ('', parent_id) AND (value LIKE '% ' || ?4 OR {LOST})
    ORDER BY sessions.created_at
"""  # noqa: S608


@dataclass(frozen=True)
class HandedOn:
    """Work of the session `session_id` for a turn of the session `parent_id`."""

    session_id: str
    parent_id: str
    turn_id: str


class Work:
    """The open work of one user's sessions. It goes with the session that does it. What the agent
    of another host has begun is that agent's while it renews it. Every method raises
    `StorageError`."""

    def __init__(self, database: Database, state: SessionState, user: User) -> None:
        self.owner = ""
        self._database = database
        self._state = state
        self._user = user

    async def begin(self, work: HandedOn) -> None:
        """Note work before it begins."""
        await self._state.swap(work.session_id, _NAME, f"open {work.turn_id} {self.owner}", 0)

    async def renew(self, work: HandedOn) -> None:
        """Say that the work is on."""
        await self._state.update(work.session_id, _NAME, str)

    async def told(self, work: HandedOn) -> None:
        """Its result is told, or nobody is to be told of it."""
        await self._state.update(work.session_id, _NAME, lambda _: "told")

    async def open(self, parent_id: str = "") -> list[HandedOn]:
        """The work that is not told, for one session or for all, the oldest first."""
        which = (_NAME, self._user.id, parent_id, self.owner)
        rows = (await self._database.execute(_FIND, which)).rows
        found = [cast("tuple[str, str, str]", row) for row in rows]
        return [HandedOn(own, parent, value.split(" ")[1]) for own, parent, value in found]

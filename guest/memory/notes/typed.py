"""Typed memory: notes recalled by what kind of statement they are, and superseded rather
than erased."""

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from guest.errors import StorageError
from guest.memory import validation
from guest.memory.factory import Finder, Store
from guest.memory.models import Note, NoteType, Only, Origin, Superseded, User, now
from guest.memory.notes import repository
from guest.memory.notes.supersession import Supersession
from guest.memory.replica.search import instead_of_server
from guest.memory.storage.availability import is_away
from guest.memory.storage.base import Database, Statement, apply

log = logging.getLogger(__name__)

RECALL_MAX: Final = 50

_NEWEST: Final = f"""
SELECT {repository.COLUMNS} FROM notes
    WHERE namespace = ?1 AND scope_session IN ('', ?2) AND (superseded_by IS NULL OR ?3)
        AND confidence >= ?4 AND (?5 = '[]' OR type IN (SELECT value FROM json_each(?5)))
        AND (key IS NULL OR key NOT IN {repository.FIXED})
    ORDER BY updated_at DESC, seq DESC LIMIT ?6
"""  # noqa: S608
_ACCESSED: Final = """
UPDATE notes SET access_count = access_count + 1, accessed_at = ?
    WHERE namespace = ? AND note_id IN (SELECT value FROM json_each(?))
"""


@dataclass(frozen=True)
class Recalled:
    """Notes in the order asked for, and what the caller must know about them."""

    notes: tuple[Note, ...]
    warnings: tuple[str, ...] = ()


class TypedNotes:
    """A user's notes by type and confidence. All families' notes are among them."""

    def __init__(self, store: Store, search: Finder, user: User) -> None:
        self._store = store
        self._search = search
        self._user = user
        self._supersession = Supersession(store.database, store.vectors, user)

    async def recall(
        self,
        *,
        query: str = "",
        types: Sequence[NoteType] = (),
        min_confidence: float = 0.0,
        limit: int = 10,
        include_superseded: bool = False,
        session_id: str = "",
    ) -> Recalled:
        """Notes by relevance to `query`, or without one the last written first.

        Empty `types`: every type. `session_id` is the session that asks. The handoff
        note and the scratchpad are no memories. That each note was recalled is counted,
        with the time, after it was read; while a memory server is away it is not, and
        the notes are those of the copy on this machine. Raises `ValueError`,
        `StorageError`.
        """
        validation.check_range("limit", limit, RECALL_MAX)
        validation.check_fraction("min_confidence", min_confidence)
        for wanted in types:
            validation.check_type(wanted)
        only = Only(session_id, tuple(types), min_confidence, include_superseded)
        if query.strip():
            recalled = await self._relevant(query, limit, only)
        else:
            recalled = await self._newest(limit, only)
        await self._record(recalled.notes)
        return recalled

    async def supersede(
        self,
        note_id: str,
        *,
        reason: str = "",
        replacement_id: str = "",
        session_id: str = "",
        origin: Origin | None = None,
    ) -> Superseded | None:
        """Let a note count no more, replaced by another one or by none. Nothing is erased.

        The same again changes nothing: given is then how it is superseded already, else
        None. Raises `NoteNotFound` for the note or the replacement, also where only another
        session sees it; `SupersedeRefused` for a note that is superseded otherwise already,
        and where notes would replace each other in a circle; `ValueError`, `StorageError`.
        """
        return await self._supersession.supersede(
            note_id,
            reason=reason,
            replacement_id=replacement_id,
            session_id=session_id,
            origin=origin,
        )

    async def _relevant(self, query: str, limit: int, only: Only) -> Recalled:
        found = await self._search.search(query, limit + len(repository.FIXED), (), False, only)
        wanted = [hit.note_id for hit in found.hits if hit.key not in repository.FIXED][:limit]
        namespace = self._user.notes
        recalled = await self._read(
            namespace, lambda database: repository.get_many(database, namespace, wanted)
        )
        return Recalled(recalled.notes, found.warnings or recalled.warnings)

    async def _newest(self, limit: int, only: Only) -> Recalled:
        namespace = self._user.notes
        wanted = (
            namespace,
            only.session_id,
            only.superseded,
            only.min_confidence,
            json.dumps(only.types),
            limit,
        )

        async def newest(database: Database) -> list[Note]:
            result = await database.execute(_NEWEST, wanted)
            return [repository.note_of(row) for row in result.rows]

        return await self._read(namespace, newest)

    async def _read(
        self, namespace: str, reading: Callable[[Database], Awaitable[list[Note]]]
    ) -> Recalled:
        """Notes of the store, or of the copy where the server is away."""
        try:
            return Recalled(tuple(await reading(self._store.database)))
        except StorageError as error:
            server = self._store.server
            if server is None or not is_away(error):
                raise
            warning = instead_of_server(server.replica, [namespace], error)
            return Recalled(tuple(await reading(server.replica.database)), (warning,))

    async def _record(self, recalled: Sequence[Note]) -> None:
        if not recalled:
            return
        note_ids = json.dumps([note.note_id for note in recalled])
        accessed = Statement(_ACCESSED, (now(), self._user.notes, note_ids))
        try:
            await apply(self._store.database, accessed)
        except StorageError as error:
            log.info("that %d notes were recalled is not recorded: %s", len(recalled), error.brief)

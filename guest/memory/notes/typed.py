"""Typed memory: notes recalled by type, and superseded instead of deleted."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from guest.errors import StorageError
from guest.memory import validation
from guest.memory.models import (
    FIXED,
    Note,
    NoteNotFound,
    NoteType,
    Only,
    Origin,
    Superseded,
    SupersedeRefused,
)
from guest.memory.notes.repository import NoteRepository
from guest.memory.search.engine import Search
from guest.memory.storage.changes import RETRIES, unexplained

log = logging.getLogger(__name__)

RECALL_MAX: Final = 50


@dataclass(frozen=True)
class Recalled:
    """Recalled notes in order, and warnings for the caller."""

    notes: tuple[Note, ...]
    warnings: tuple[str, ...] = ()


Reading = Callable[[NoteRepository], Awaitable[list[Note]]]
NoteReader = Callable[[Reading], Awaitable[tuple[list[Note], str]]]
"""Reads notes from the store, or from the replica while a server is away: the result, and then a
warning; else the warning is empty."""


class TypedNotes:
    """A user's notes by type and confidence, including those saved by other tools.

    `by_words` says that nothing finds meaning: then parts of words are looked for, too.
    """

    def __init__(
        self, notes: NoteRepository, search: Search, read: NoteReader, *, by_words: bool
    ) -> None:
        self._notes = notes
        self._search = search
        self._read = read
        self._by_words = by_words

    async def recall(
        self,
        *,
        query: str = "",
        types: Sequence[NoteType] = (),
        min_confidence: float = 0.0,
        limit: int = 10,
        include_superseded: bool = False,
        session_id: str = "",
        project_tag: str = "",
    ) -> Recalled:
        """Notes by relevance to `query`, or without a query the last written first.

        Empty `types` means every type. `session_id` is the session that asks, and notes with
        `project_tag` are those of its project. The handoff note and the scratchpad are left out.
        While a memory server is away, the notes come from the replica.
        Raises `ValueError`, `StorageError`.
        """
        validation.check_range("limit", limit, RECALL_MAX)
        validation.check_fraction("min_confidence", min_confidence)
        for wanted in types:
            validation.check_type(wanted)
        only = Only(
            *(session_id, tuple(types), min_confidence, include_superseded), project_tag=project_tag
        )
        if query.strip():
            return await self._relevant(query, limit, only)
        notes, warning = await self._read(lambda notes: notes.newest(limit, only))
        return Recalled(tuple(notes), _warnings(warning))

    async def supersede(
        self,
        note_id: str,
        *,
        reason: str = "",
        replacement_id: str = "",
        session_id: str = "",
        origin: Origin | None = None,
    ) -> Superseded | None:
        """Mark a note as superseded, with or without a replacement. Nothing is erased.

        Returns:
            The existing state if the note is already superseded in exactly this way; else None.

        Raises:
            NoteNotFound: The note or the replacement does not exist, or only another session sees
                it.
            SupersedeRefused: The note is already superseded otherwise, or replacements would form a
                circle.
            ValueError: An argument is invalid.
            StorageError: The store failed.
        """
        if reason:
            validation.check_length("reason", reason, validation.REASON_MAX_CHARS)
            validation.check_text("reason", reason)
        for _ in range(RETRIES):
            done = await self._superseded(note_id, replacement_id, session_id)
            if done is not None:
                return done
            if await self._notes.supersede(
                note_id,
                reason=reason,
                replacement_id=replacement_id,
                session_id=session_id,
                origin=origin,
            ):
                return None
        raise unexplained(f"{note_id} cannot be superseded")

    async def _relevant(self, query: str, limit: int, only: Only) -> Recalled:
        found = await self._search.search(query, limit + len(FIXED), (), False, only)
        wanted = [hit.note_id for hit in found.results if hit.key not in FIXED][:limit]
        notes, warning = await self._read(lambda notes: notes.get_many(wanted))
        if self._by_words:
            holding, warning = await self._read(
                lambda notes: notes.newest(limit, only, query.strip())
            )
            notes = [*notes, *(note for note in holding if note.note_id not in wanted)][:limit]
        return Recalled(tuple(notes), found.warnings or _warnings(warning))

    async def count(self, recalled: Sequence[Note]) -> None:
        """Record that these notes were recalled now, as far as the store can be reached."""
        if not recalled:
            return
        try:
            await self._notes.count_recall([note.note_id for note in recalled])
        except StorageError as error:
            log.info("that %d notes were recalled is not recorded: %s", len(recalled), error.brief)

    async def _superseded(
        self, note_id: str, replacement_id: str, session_id: str
    ) -> Superseded | None:
        """The existing state if the note is superseded in exactly this way, else None. Raises
        what forbids it."""
        seen = await self._notes.supersession((note_id, replacement_id), session_id)
        if note_id not in seen:
            raise NoteNotFound(note_id)
        by, scope, reason, at = seen[note_id]
        if by is not None and by == replacement_id:
            return Superseded(by, reason, at)
        if note_id == replacement_id:
            raise SupersedeRefused(f"{note_id} cannot be replaced by itself")
        if replacement_id and replacement_id not in seen:
            raise NoteNotFound(replacement_id)
        if by is not None:
            if not by:
                raise SupersedeRefused(f"{note_id} was forgotten already")
            raise SupersedeRefused(
                f"{note_id} was replaced by {by} already; if that is out of date, forget {by}"
            )
        if replacement_id and seen[replacement_id][1] not in ("", scope):
            raise SupersedeRefused(
                f"{replacement_id} belongs to one session, and {note_id} to all of them: the "
                "others would lose it"
            )
        if replacement_id and await self._notes.leads_to(replacement_id, note_id):
            raise SupersedeRefused(
                f"{replacement_id} is itself replaced, in the end, by {note_id}; "
                "notes cannot replace each other in a circle"
            )
        return None


def _warnings(warning: str) -> tuple[str, ...]:
    return (warning,) if warning else ()

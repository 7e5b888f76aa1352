"""Writes notes: validates, stores them in one batch, embeds them, and erases deleted ones."""

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from guest.embedding.backends import Embedded
from guest.errors import StorageError
from guest.memory import models
from guest.memory.indexing.indexer import Indexer
from guest.memory.models import Hit, Note, NoteNotFound, Origin, SaveOutcome, StaleVersion
from guest.memory.notes.repository import Draft, NoteRepository
from guest.memory.search.engine import Search
from guest.memory.storage.changes import (
    RETRIES,
    UNFOLLOWED,
    Background,
    bug,
    change_was_made,
    unexplained,
)
from guest.memory.storage.erasure import Eraser

log = logging.getLogger(__name__)

_DELETED_MAX: Final = 1_000


@dataclass(repr=False, eq=False)
class NoteWriter:
    """The one way to write notes, shared by all memory tools."""

    notes: NoteRepository
    search: Search
    indexer: Indexer
    eraser: Eraser
    background: Background
    embed_wait_s: float

    def __post_init__(self) -> None:
        self.deleted = deque[str](maxlen=_DELETED_MAX)

    async def save(self, draft: Draft) -> SaveOutcome:
        """Store a new note durably, then wait briefly for its vector.

        `created` is false if a note with this text or key already existed; it is returned
        unchanged. Raises `MemoryFull`, `StorageError`.
        """
        copying = self.search.copying
        for _ in range(RETRIES):
            passages = await self.notes.insert(draft)
            if passages is not None:
                break
            existing = await self.notes.find_existing(draft)
            if existing is not None:
                return SaveOutcome(existing, False, "semantic" if existing.embedded else "keyword")
            await self.notes.check_quota(draft, notes=1)
        else:
            raise unexplained(f"{draft.note_id} cannot be stored")
        embedded = await self._embed(draft, passages)
        note = draft.as_saved(embedded=embedded is not None)
        if embedded is None:
            return SaveOutcome(note, True, "keyword", uncompared=self.indexer.out_of_order)
        await self.search.copied(copying)
        session_id = note.details.scope_session or note.origin.session_id
        return SaveOutcome(note, True, "semantic", await self.similar(note, embedded, session_id))

    async def update(self, draft: Draft) -> tuple[Note, Embedded | None]:
        """Store the next version of a note and keep the previous one.

        Returns:
            The note as this update left it, and its vectors if they came in time.

        Raises:
            NoteNotFound: There is no such note.
            StaleVersion: The note is not at the version that the draft replaces, or replaces by now
                what the draft would let replace it.
            MemoryFull: The quota does not allow it; never for an undo.
            StorageError: The store failed.
        """
        for _ in range(RETRIES):
            updated = await self.notes.update(draft)
            if updated is not None:
                break
            current = await self.notes.get(draft.note_id)
            if draft.replaces not in (None, current.version):
                raise StaleVersion(current)
            ended = draft.superseded
            if ended is not None and await self.notes.leads_to(ended.by, draft.note_id):
                raise StaleVersion(current)
            if draft.change != "undo":
                await self.notes.check_quota(draft)
        else:
            raise unexplained(f"{draft.note_id} cannot be stored")
        if models.stays_here(updated.note.tags):  # it stands unmarked beside earlier messages
            self.deleted.append(f"{draft.note_id} {updated.note.version}")
        if updated.outdated:
            self.eraser.erase_soon()
        embedded = await self._embed(draft, updated.passages)
        note = updated.note
        return replace(note, embedded=note.embedded or embedded is not None), embedded

    async def similar(self, note: Note, embedded: Embedded, session_id: str) -> tuple[Hit, ...]:
        """Notes nearly the same as `note` that the session sees; none if the lookup fails."""
        try:
            return await self.search.similar(note, embedded, session_id)
        except StorageError as error:
            log.warning("notes similar to %s could not be looked up: %s", note.note_id, error.brief)
            return ()

    async def delete(
        self, note_id: str, version: int | None = None, origin: Origin | None = None
    ) -> None:
        """Delete and erase a note, even if the caller is cancelled; see `Memory.delete`. Raises
        `StaleVersion` if the note is not at the given version."""
        try:
            await self.background.run(self._delete(note_id, version, origin))
        except NoteNotFound:
            if version is None:
                raise
            raise StaleVersion(await self.notes.get(note_id)) from None

    async def _delete(self, note_id: str, version: int | None, origin: Origin | None) -> None:
        removed = await self.notes.delete(note_id, version, origin)
        self.deleted.append(note_id)
        with change_was_made(f"{note_id} is deleted; removing every byte is not finished"):
            left = await self.notes.traces(note_id, removed)
            if left:
                raise bug(f"{left} rows of the deleted note {note_id} are still there", UNFOLLOWED)
            await self.eraser.erase()

    async def _embed(self, draft: Draft, chunk_ids: Sequence[int]) -> Embedded | None:
        """The note's vectors, if they come in time. The note is stored either way."""
        return await self.indexer.embed_now(
            self.notes.namespace, chunk_ids, draft.passages, self.embed_wait_s
        )

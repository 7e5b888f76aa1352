"""Writing notes: stored first, then found by meaning, and erased to the last byte."""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import Final

from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS

from guest.embedding.backends import Embedded
from guest.errors import GuestError, StorageError
from guest.memory import validation
from guest.memory.factory import Finder, Store
from guest.memory.models import (
    Change,
    Details,
    Hit,
    Note,
    NoteNotFound,
    Origin,
    SaveOutcome,
    StaleVersion,
    User,
)
from guest.memory.notes import repository
from guest.memory.notes.repository import Draft, Passages, Quota, Used
from guest.memory.search.chunking import passages_of
from guest.memory.storage.base import AnswerLost, ConstraintViolated
from guest.memory.storage.changes import ATTEMPTS, afterwards, unexplained

log = logging.getLogger(__name__)

ERASE_AFTER_S: Final = 30.0


class NoteWriter:
    """What all families write notes through, so that each finds what the others wrote."""

    def __init__(self, store: Store, search: Finder, user: User) -> None:
        self._store = store
        self._search = search
        self._user = user
        self._database = store.database
        self._vectors = store.vectors
        self._embed_wait_s = store.config.settings.embed_wait_ms / 1000
        self._quota = Quota.of(store.config)
        self._deletions = store.deletions
        self._erasure: asyncio.TimerHandle | None = None

    def draft(
        self,
        text: str,
        tags: Sequence[str] | None,
        origin: Origin,
        *,
        note_id: str = "",
        replaces: int | None = None,
        details: Details | None = None,
        key: str = "",
        change: Change = "save",
        restores: int = 0,
    ) -> Draft:
        """A checked draft; of a new note where no `note_id` is given.

        Raises `ValueError`, which names the argument that cannot be accepted.
        """
        validation.check_text("text", text)
        validation.check_length("text", text, NOTE_MAX_CHARS)
        if details is not None:
            validation.check_details(details)
        return Draft(
            note_id=note_id or f"note-{uuid.uuid4()}",
            text=text,
            tags=None if tags is None else validation.checked_tags(tags),
            origin=origin,
            passages=passages_of(text),
            replaces=replaces,
            details=details,
            key=key,
            change=change,
            restores=restores,
        )

    async def save(self, draft: Draft) -> SaveOutcome:
        """Store a new note, durably, and then wait briefly for its vector.

        `created` is false where a note with this text, or this key, is there already: it
        is the one given, as it is. Raises `MemoryFull`, `StorageError`.
        """
        namespace = self._user.notes
        earlier = self._store.following
        for _ in range(ATTEMPTS):
            passages = await self._insert(namespace, draft)
            if passages is not None:
                break
            present = await self._present(namespace, draft)
            if present is not None:
                return SaveOutcome(present, False, "semantic" if present.embedded else "keyword")
            await self._check_quota(namespace, draft, notes=1)
        else:
            raise unexplained(f"{draft.note_id} cannot be stored")
        embedded = await self._embed(namespace, draft, passages)
        note = draft.as_saved(embedded=embedded is not None)
        if embedded is None:
            return SaveOutcome(note, True, "keyword")
        await self._store.caught_up(earlier)
        session_id = note.details.scope_session or note.origin.session_id
        return SaveOutcome(note, True, "semantic", await self.similar(note, embedded, session_id))

    async def update(self, draft: Draft) -> tuple[Note, Embedded | None]:
        """Store the next version of a note, keeping the one before; with its vectors, if
        they came in time.

        Raises `NoteNotFound`; `StaleVersion` where the note has another version than
        the draft replaces; `MemoryFull`, unless it is an undo; `StorageError`.
        """
        namespace = self._user.notes
        for _ in range(ATTEMPTS):
            passages = await self._update(namespace, draft)
            if passages is not None:
                break
            current = await repository.get(self._database, namespace, draft.note_id)
            if draft.replaces not in (None, current.version):
                raise StaleVersion(current)
            if draft.change != "undo":
                await self._check_quota(namespace, draft)
        else:
            raise unexplained(f"{draft.note_id} cannot be stored")
        if passages.outdated:
            self._erase_later()
        embedded = await self._embed(namespace, draft, passages)
        with afterwards(f"{draft.note_id} is updated; it could not be read again"):
            return await repository.get(self._database, namespace, draft.note_id), embedded

    async def similar(self, note: Note, embedded: Embedded, session_id: str) -> tuple[Hit, ...]:
        """Notes nearly the same as `note`, of those that the session sees; none where they
        cannot be looked up."""
        try:
            return await self._search.similar(note.note_id, embedded, session_id)
        except StorageError as error:
            log.warning("notes similar to %s could not be looked up: %s", note.note_id, error.brief)
            return ()

    async def delete(
        self, note_id: str, version: int | None = None, origin: Origin | None = None
    ) -> None:
        """See `Memory.delete`. Raises `StaleVersion` where a version is given and the note
        has another one by now."""
        try:
            await self._deletions.run(self._delete(self._user.notes, note_id, version, origin))
        except NoteNotFound:
            if version is None:
                raise
            namespace = self._user.notes
            raise StaleVersion(await repository.get(self._database, namespace, note_id)) from None

    def close(self) -> None:
        """Begin nothing any more. What is to be erased still, is at the next start."""
        if self._erasure is not None:
            self._erasure.cancel()

    async def _insert(self, namespace: str, draft: Draft) -> Passages | None:
        """Store a new note; None where one says the same already, or there is no room."""
        try:
            async with self._vectors.changing(namespace):
                passages = await repository.insert(self._database, namespace, draft, self._quota)
                self._vectors.added(namespace, len(passages.added))
                return passages
        except ConstraintViolated:
            return None
        except AnswerLost:
            return await repository.find_passages(self._database, namespace, draft)

    async def _update(self, namespace: str, draft: Draft) -> Passages | None:
        """Change a note; None where it is not what it should be, or there is no room."""
        try:
            async with self._vectors.changing(namespace):
                passages = await repository.update(self._database, namespace, draft, self._quota)
                self._vectors.removed(namespace, passages.removed)
                self._vectors.added(namespace, len(passages.added))
                return passages
        except ConstraintViolated:
            return None
        except AnswerLost:
            return await repository.find_passages(self._database, namespace, draft)

    async def _present(self, namespace: str, draft: Draft) -> Note | None:
        """The note that is there in place of one that could not be added."""
        if draft.key:
            return await repository.find_by_key(self._database, namespace, draft.key)
        return await repository.find_by_text(self._database, namespace, draft)

    async def _check_quota(self, namespace: str, draft: Draft, *, notes: int = 0) -> None:
        size = len(draft.text.encode())
        await self._quota.check(self._database, namespace, Used(notes, size))

    async def _delete(
        self, namespace: str, note_id: str, version: int | None, origin: Origin | None
    ) -> None:
        passages = Passages(added=())
        try:
            async with self._vectors.changing(namespace):
                passages = await repository.delete(
                    self._database, namespace, note_id, version, origin
                )
                self._vectors.removed(namespace, passages.removed)
        except ConstraintViolated:
            raise NoteNotFound(note_id) from None
        except AnswerLost:
            log.info("the answer to the deletion of %s was lost; it is gone", note_id)
        with afterwards(f"{note_id} is deleted; removing every byte is not finished"):
            left = await repository.traces(self._database, namespace, note_id, passages.removed)
            if left:
                raise StorageError(
                    Code.INTERNAL,
                    f"{left} rows of the deleted note {note_id} are still there",
                    details="the database did not follow its own foreign keys",
                    resolution="report this, with the log, as a bug",
                )
            await self._store.eraser.erase()

    def _erase_later(self) -> None:
        """Erase removed versions, of many writes at once: that goes through the whole file."""
        if self._erasure is None:
            loop = asyncio.get_running_loop()
            self._erasure = loop.call_later(ERASE_AFTER_S, self._begin_erasure)

    def _begin_erasure(self) -> None:
        self._erasure = None
        self._deletions.begin(self._erase())

    async def _erase(self) -> None:
        try:
            await self._store.eraser.erase()
        except StorageError as error:
            log.warning("removed versions are not erased yet: %s", error)

    async def _embed(self, namespace: str, draft: Draft, passages: Passages) -> Embedded | None:
        """Give fresh passages their vectors if they come in time, else leave it to the indexer.

        The note is stored already, so nothing that goes wrong here is a failure.
        """
        added = passages.added
        if not added:
            return None
        stored = False
        try:
            embedded = await self._store.vectorizer.embed(draft.passages, self._embed_wait_s)
            await self._vectors.store(namespace, embedded.model_id, added, embedded.vectors)
            stored = True
        except GuestError as error:
            log.info("the vector of %s will follow: %s", draft.note_id, error.brief)
            return None
        finally:
            if not stored:
                self._store.indexer.wake(added)
        return embedded

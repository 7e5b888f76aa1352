"""Memory as the rest of the guest uses it."""

import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS, TOP_K_MAX

from guest.embedding.base import Embedded, Embedder
from guest.errors import GuestError, StorageError
from guest.memory import arguments, namespaces, notes
from guest.memory.afterwards import afterwards
from guest.memory.backup import copy_store
from guest.memory.chunking import passages_of
from guest.memory.database.base import AnswerLost, ConstraintViolated
from guest.memory.database.values import INTEGER_MAX
from guest.memory.parts import Parts, open_parts
from guest.memory.portable.exporting import Part, export
from guest.memory.portable.importing import Importer
from guest.memory.reembedding import Reembedding
from guest.memory.sessions.admin import SessionAdmin
from guest.memory.sessions.in_use import InUse
from guest.memory.sessions.retention import Retention
from guest.memory.types import (
    Hit,
    MemoryConfig,
    Note,
    NoteNotFound,
    Origin,
    SaveOutcome,
    SearchOutcome,
    StaleVersion,
    Statistics,
)
from guest.memory.unbroken import Unbroken

log = logging.getLogger(__name__)

LIST_MAX: Final = 1000


class Memory:
    """Notes and conversations of users who never see each other's.

    Every method takes the user it acts for. `ValueError` names an argument that
    cannot be accepted; `StorageError` says that nothing was done and why.
    """

    def __init__(self, parts: Parts, config: MemoryConfig) -> None:
        self._parts = parts
        self._database = parts.database
        self._config = config
        self._vectorizer = parts.vectorizer
        self._vectors = parts.vectors
        self._indexer = parts.indexer
        self._search = parts.search
        self._reembedding = Reembedding(self._vectors, self._vectorizer, self._indexer)
        self._eraser = parts.eraser
        self._deletions = Unbroken()
        self.conversations = parts.conversations
        self.in_use = InUse()
        self.sessions = SessionAdmin(
            self._database,
            self.conversations,
            self._vectors,
            self._eraser,
            self.in_use,
            self._deletions,
        )

    @classmethod
    async def open(
        cls, config: MemoryConfig, embedder: Embedder | None, user_id: str = ""
    ) -> "Memory":
        """Open the store, bring its schema up to date and start the indexer.

        Waits neither for the embedder, which stays the caller's to close, nor for a
        memory server that is away. `user_id` says whose memory on a server is
        fetched ahead for searching. Raises `StorageError`.
        """
        return cls(await open_parts(config, embedder, user_id), config)

    async def close(self) -> None:
        """Let running changes finish, and release the database. Idempotent."""
        await self._indexer.stop()
        await self._deletions.finish()
        await self._parts.close()

    async def save(
        self, user_id: str, text: str, tags: Sequence[str], origin: Origin
    ) -> SaveOutcome:
        """Store a note, durably, and then wait briefly for its vector.

        The same text again, also at the same moment, answers with the note that
        holds it. Without a vector in time the note is found by keyword and the
        vector follows.
        """
        namespace = namespaces.notes_of(user_id)
        draft = self._draft(f"note-{uuid.uuid4()}", text, tags, origin)
        earlier = self._parts.following
        while (change := await self._insert(namespace, draft)) is None:
            present = await notes.find_by_text(self._database, namespace, user_id, draft)
            if present is not None:
                return SaveOutcome(present, False, "semantic" if present.embedded else "keyword")
        embedded = await self._embed(namespace, draft, change)
        note = draft.as_saved(user_id, embedded=embedded is not None)
        if embedded is None:
            return SaveOutcome(note, True, "keyword")
        await self._parts.caught_up(earlier)
        return SaveOutcome(note, True, "semantic", await self._similar(user_id, note, embedded))

    async def update(
        self,
        user_id: str,
        note_id: str,
        text: str,
        tags: Sequence[str] | None,
        origin: Origin,
        *,
        expected_version: int | None = None,
    ) -> Note:
        """Replace a note's text, and its tags unless None, under the same id.

        What it said before is kept as a version. Concurrent updates follow each
        other and the last one stands, unless `expected_version` says which version
        this one replaces. Raises `NoteNotFound`; `StaleVersion` where the note has
        another version by now.
        """
        namespace = namespaces.notes_of(user_id)
        draft = replace(self._draft(note_id, text, tags, origin), replaces=expected_version)
        try:
            change = await self._update(namespace, draft)
        except NoteNotFound:
            if expected_version is None:
                raise
            current = await notes.get(self._database, namespace, user_id, note_id)
            raise StaleVersion(current) from None
        await self._embed(namespace, draft, change)
        with afterwards(f"{note_id} is updated; it could not be read again"):
            return await notes.get(self._database, namespace, user_id, note_id)

    async def delete(self, user_id: str, note_id: str) -> None:
        """Remove a note with its versions, passages and vectors; no byte of it stays.

        Checked by looking again. Raises `NoteNotFound`. A `StorageError` that
        comes after the removal says so; the erasure is then finished by the
        next deletion or at the next start.
        """
        await self._deletions.run(self._delete(namespaces.notes_of(user_id), note_id))

    async def get(self, user_id: str, note_id: str) -> Note:
        """One note. Raises `NoteNotFound`."""
        return await notes.get(self._database, namespaces.notes_of(user_id), user_id, note_id)

    async def list(self, user_id: str, limit: int, cursor: str = "") -> tuple[list[Note], str]:
        """Up to `limit` notes, newest first, and the cursor of the next page.

        The cursor is empty at the end. Superseded notes are not listed.
        """
        arguments.check_range("limit", limit, LIST_MAX)
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
            raise ValueError("cursor: not one that an earlier list has given")
        before = int(cursor) if cursor else INTEGER_MAX
        page, following = await notes.page(
            self._database, namespaces.notes_of(user_id), user_id, limit, before
        )
        return page, str(following) if following else ""

    async def search(
        self,
        user_id: str,
        query: str,
        *,
        top_k: int = 5,
        tags: Sequence[str] = (),
        include_conversation: bool = False,
    ) -> SearchOutcome:
        """The notes that answer `query` best, each once, by its best passage.

        Any text is a valid query. `tags` limits the search to notes that carry
        all of them. `include_conversation` adds what was said in the user's
        conversations. What the result lacks is said in its warnings.
        """
        arguments.check_range("top_k", top_k, TOP_K_MAX)
        return await self._search.search(
            user_id, query, top_k, arguments.checked_tags(tags), include_conversation
        )

    @property
    def encrypted(self) -> bool:
        """Whether the files of this memory are encrypted."""
        return bool(self._config.encryption_key)

    async def statistics(self, user_id: str) -> Statistics:
        """Counts for one user."""
        return await self._parts.statistics(user_id)

    @property
    def state(self) -> str:
        """ "ready", or one sentence that says what is wrong with the store."""
        return self._parts.state

    async def set_token(self, auth_token: str) -> None:
        """Use another token with the memory server, once that has accepted it; else
        the one before stays in use. Raises `StorageError`."""
        await self._parts.set_token(auth_token)

    def export(self, user_id: str) -> AsyncIterator[Part]:
        """Everything of a user as lines that `importer` takes, here or elsewhere."""
        return export(self._database, user_id)

    def importer(self, user_id: str) -> Importer:
        """What stores exported lines for a user."""
        return Importer(self._database, self._vectors, self._config, user_id, self._indexer.wake)

    def retention(self, user_id: str) -> Retention:
        """What forgets a user's conversations when they are too old, yet to be started."""
        return Retention(self._database, self.sessions, user_id, self._config.retention_days)

    async def copy_to(self, user_id: str, target: Path) -> None:
        """Write one user's whole memory, as it is now, to a database file at `target`.

        It has the key of the memory's own files, and may hold other users of the same
        file. Raises `StorageError`, and leaves nothing then.
        """
        await copy_store(self._database, self._config, user_id, target)

    async def reembed(self, user_id: str) -> int:
        """Have all of a user's vectors made anew, in the background; of how many passages.

        Meanwhile searches find by keyword what has none yet. Raises `EmbedderError`
        where nobody could make them; nothing is changed then.
        """
        return await self._reembedding.begin(user_id)

    async def embedder_state(self) -> str:
        """ "ready", "loading", or one sentence that says why there are no vectors."""
        return await self._vectorizer.state()

    def _draft(
        self, note_id: str, text: str, tags: Sequence[str] | None, origin: Origin
    ) -> notes.Draft:
        arguments.check_text("text", text)
        if len(text) > NOTE_MAX_CHARS:
            raise ValueError(f"text: {len(text)} characters are more than {NOTE_MAX_CHARS}")
        passages = passages_of(self._config, text)
        checked = None if tags is None else arguments.checked_tags(tags)
        return notes.Draft(note_id, text, checked, origin, passages)

    async def _insert(self, namespace: str, draft: notes.Draft) -> notes.Change | None:
        """Store a new note; None where one says the same already."""
        try:
            async with self._vectors.changing(namespace):
                change = await notes.insert(self._database, namespace, draft)
                self._vectors.added(namespace, len(change.added))
                return change
        except ConstraintViolated:
            return None
        except AnswerLost:
            return await notes.find_change(self._database, namespace, draft)

    async def _update(self, namespace: str, draft: notes.Draft) -> notes.Change:
        try:
            async with self._vectors.changing(namespace):
                change = await notes.update(self._database, namespace, draft)
                self._vectors.removed(namespace, change.removed)
                self._vectors.added(namespace, len(change.added))
                return change
        except ConstraintViolated:
            raise NoteNotFound(draft.note_id) from None
        except AnswerLost:
            return await notes.find_change(self._database, namespace, draft)

    async def _delete(self, namespace: str, note_id: str) -> None:
        change = notes.Change(added=())
        try:
            async with self._vectors.changing(namespace):
                change = await notes.delete(self._database, namespace, note_id)
                self._vectors.removed(namespace, change.removed)
        except ConstraintViolated:
            raise NoteNotFound(note_id) from None
        except AnswerLost:
            log.info("the answer to the deletion of %s was lost; it is gone", note_id)
        with afterwards(f"{note_id} is deleted; removing every byte is not finished"):
            left = await notes.traces(self._database, namespace, note_id, change.removed)
            if left:
                raise StorageError(
                    Code.INTERNAL,
                    f"{left} rows of the deleted note {note_id} are still there",
                    details="the database did not follow its own foreign keys",
                    resolution="report this, with the log, as a bug",
                )
            await self._eraser.erase()

    async def _embed(
        self, namespace: str, draft: notes.Draft, change: notes.Change
    ) -> Embedded | None:
        """Give fresh passages their vectors if they come in time, else leave it to the indexer.

        The note is stored already, so nothing that goes wrong here is a failure.
        """
        if not change.added:
            return None
        stored = False
        try:
            embedded = await self._vectorizer.embed(draft.passages, self._config.embed_wait_s)
            await self._vectors.store(namespace, embedded.model_id, change.added, embedded.vectors)
            stored = True
        except GuestError as error:
            log.info("the vector of %s will follow: %s", draft.note_id, error.brief)
            return None
        finally:
            if not stored:
                self._indexer.wake(change.added)
        return embedded

    async def _similar(self, user_id: str, note: Note, embedded: Embedded) -> tuple[Hit, ...]:
        try:
            return await self._search.similar(user_id, note.note_id, embedded)
        except StorageError as error:
            log.warning("notes similar to %s could not be looked up: %s", note.note_id, error.brief)
            return ()

"""Memory as the rest of the guest uses it."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from guest.embedding.backends import Embedder
from guest.memory import models, validation
from guest.memory.conversations.retention import Retention
from guest.memory.conversations.sessions import InUse, SessionAdmin, SessionState
from guest.memory.factory import Parts, open_parts
from guest.memory.indexing.indexer import Reembedding
from guest.memory.models import (
    Details,
    MemoryConfig,
    Note,
    Only,
    Origin,
    SaveOutcome,
    SearchOutcome,
    Statistics,
    Updated,
)
from guest.memory.notes import repository
from guest.memory.notes.history import NoteHistory
from guest.memory.notes.keyed import KeyedNotes
from guest.memory.notes.repository import Quota
from guest.memory.notes.review import Reviewed, review
from guest.memory.notes.typed import TypedNotes
from guest.memory.notes.writer import NoteWriter
from guest.memory.storage.backup import copy_store
from guest.memory.storage.base import INTEGER_MAX
from guest.memory.storage.changes import Unbroken
from guest.memory.transfer.exporter import Part, export
from guest.memory.transfer.importer import Importer

LIST_MAX: Final = 1000
SEARCH_MAX: Final = 50


class Memory:
    """Notes and conversations of users who never see each other's.

    Every method takes the user it acts for. `ValueError` names an argument that
    cannot be accepted; `StorageError` says that nothing was done and why.
    """

    def __init__(self, parts: Parts, config: MemoryConfig) -> None:
        self._parts = parts
        self._database = parts.database
        self._config = config
        self._vectors = parts.vectors
        self._indexer = parts.indexer
        self._reembedding = Reembedding(self._vectors, parts.vectorizer, self._indexer)
        self._deletions = Unbroken()
        self._writer = NoteWriter(parts, config, self._deletions)
        self.keyed = KeyedNotes(self._database, self._writer)
        self.typed = TypedNotes(parts)
        self.history = NoteHistory(self._database, self._vectors, self._writer)
        self.state_of = SessionState(self._database)
        self.conversations = parts.conversations
        self.in_use = InUse()
        self.sessions = SessionAdmin(
            self._database,
            self.conversations,
            self._vectors,
            parts.eraser,
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
        self._writer.close()
        await self._deletions.finish()
        await self._parts.close()

    async def save(
        self,
        user_id: str,
        text: str,
        tags: Sequence[str],
        origin: Origin,
        details: Details = Details(),  # noqa: B008 - it cannot change
    ) -> SaveOutcome:
        """Store a note, durably, and then wait briefly for its vector.

        The same text again, also at the same moment, answers with the note that holds
        it, unless that has a key, another scope or counts no more. Without a vector in
        time the note is found by keyword and the vector follows. Raises `MemoryFull`.
        """
        draft = self._writer.draft(text, tags, origin, details=details)
        return await self._writer.save(user_id, draft)

    async def update(
        self,
        user_id: str,
        note_id: str,
        text: str,
        tags: Sequence[str] | None,
        origin: Origin,
        *,
        expected_version: int | None = None,
    ) -> Updated:
        """Replace a note's text, and its tags unless None, under the same id.

        What it said before is kept as a version. Concurrent updates follow each
        other and the last one stands, unless `expected_version` says which version
        this one replaces. A note that counted no more counts again. Raises
        `NoteNotFound`; `StaleVersion` where the note has another version by now;
        `MemoryFull`.
        """
        draft = self._writer.draft(
            text, tags, origin, note_id=note_id, replaces=expected_version, change="update"
        )
        note, embedded = await self._writer.update(user_id, draft)
        if embedded is None:
            return Updated(note)
        return Updated(note, await self._writer.similar(note, embedded, origin.session_id))

    async def delete(self, user_id: str, note_id: str) -> None:
        """Remove a note with its versions, passages and vectors; no byte of it stays.

        Checked by looking again. Raises `NoteNotFound`. A `StorageError` that
        comes after the removal says so; the erasure is then finished by the
        next deletion or at the next start.
        """
        await self._writer.delete(user_id, note_id)

    async def get(self, user_id: str, note_id: str) -> Note:
        """One note. Raises `NoteNotFound`."""
        return await repository.get(self._database, models.notes_of(user_id), user_id, note_id)

    async def twin_of(self, note: Note, text: str) -> str:
        """The id of another note that says exactly `text`, for the same sessions as `note`;
        empty where there is none."""
        namespace = models.notes_of(note.user_id)
        return await repository.twin_of(self._database, namespace, note, text)

    async def get_many(self, user_id: str, note_ids: Sequence[str]) -> list[Note]:
        """Those of the notes that there are, in the order asked for."""
        namespace = models.notes_of(user_id)
        return await repository.get_many(self._database, namespace, user_id, note_ids)

    async def list(
        self,
        user_id: str,
        limit: int,
        cursor: str = "",
        *,
        include_superseded: bool = False,
        type: str = "",  # noqa: A002 - what it is called everywhere
        actor: str = "",
        material_only: bool = False,
        tag: str = "",
    ) -> tuple[list[Note], str]:
        """Up to `limit` notes, newest first, and the cursor of the next page.

        The cursor is empty at the end. `type`, `actor` and `tag` limit the list where
        they are not empty, `material_only` to what was read. Notes of every session's
        scope are listed; superseded ones only where they are asked for.
        """
        validation.check_range("limit", limit, LIST_MAX)
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
            raise ValueError("cursor: not one that an earlier list has given")
        if type:
            validation.check_type(type)
        before = int(cursor) if cursor else INTEGER_MAX
        only = repository.Filter(include_superseded, type, actor, material_only, tag)
        page, following = await repository.page(
            self._database, models.notes_of(user_id), user_id, limit, before, only
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
        only: Only = Only(),  # noqa: B008 - it cannot change
    ) -> SearchOutcome:
        """The notes that answer `query` best, each once, by its best passage.

        Any text is a valid query. `tags` limits the search to notes that carry
        all of them, `only` to those it describes. `include_conversation` adds what was
        said in the user's conversations. What the result lacks is said in its warnings.
        """
        validation.check_range("top_k", top_k, SEARCH_MAX)
        validation.check_fraction("min_confidence", only.min_confidence)
        for wanted in only.types:
            validation.check_type(wanted)
        checked = validation.checked_tags(tags)
        return await self._parts.search.search(
            user_id, query, top_k, checked, include_conversation, only
        )

    async def review(self, user_id: str, *, stale_days: int = 180, limit: int = 50) -> Reviewed:
        """Notes that say nearly the same, nearest first, and notes that for so many days
        were neither written nor recalled, oldest first; up to `limit` of each.

        Only notes without a key that every one of the same sessions sees are compared.
        What was not compared is said in its warnings. Nothing is changed.
        """
        return await review(self._parts, user_id, stale_days=stale_days, limit=limit)

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
        return Importer(
            self._database, self._vectors, user_id, Quota.of(self._config), self._indexer.wake
        )

    def retention(self, user_id: str) -> Retention:
        """What forgets a user's conversations when they are too old, yet to be started."""
        return Retention(
            self._database, self.sessions, user_id, self._config.settings.retention_days
        )

    async def copy_to(self, user_id: str, target: Path) -> None:
        """Write one user's whole memory, as it is now, to a database file at `target`.

        It has the key of the memory's own files, and may hold other users of the same
        file. Raises `StorageError`, and leaves nothing then.
        """
        await copy_store(self._database, self._config.encryption_key, user_id, target)

    async def reembed(self, user_id: str) -> int:
        """Have all of a user's vectors made anew, in the background; of how many passages.

        Meanwhile searches find by keyword what has none yet. Raises `EmbedderError`
        where nobody could make them; nothing is changed then.
        """
        return await self._reembedding.begin(user_id)

    async def embedder_state(self) -> str:
        """ "ready", "loading", or one sentence that says why there are no vectors."""
        return await self._parts.vectorizer.state()

"""The memory of one user, as the rest of the guest uses it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guest import watch
from guest.embedding.backends import Embedder
from guest.memory import validation
from guest.memory.conversations.retention import Retention
from guest.memory.conversations.sessions import SessionAdmin, SessionState
from guest.memory.conversations.work import Work
from guest.memory.factory import Store, in_ram, open_store
from guest.memory.indexing.embedder import Tell
from guest.memory.models import (
    Details,
    Filter,
    MemoryConfig,
    Note,
    Only,
    Origin,
    SaveOutcome,
    SearchOutcome,
    Statistics,
    Updated,
    User,
)
from guest.memory.notes.history import NoteHistory
from guest.memory.notes.keyed import KeyedNotes
from guest.memory.notes.quota import Quota
from guest.memory.notes.receipts import Receipts
from guest.memory.notes.repository import Draft
from guest.memory.notes.review import NoteReview
from guest.memory.notes.typed import TypedNotes
from guest.memory.notes.writer import NoteWriter
from guest.memory.search.shown import Shown
from guest.memory.storage.base import INTEGER_MAX
from guest.memory.storage.reserve import require_room
from guest.memory.usage import Usage

if TYPE_CHECKING:
    from guest.memory.transfer.exporter import ExportPart
    from guest.memory.transfer.importer import Importer

LIST_MAX: Final = 1000
SEARCH_MAX: Final = 50
NOTHING_THEN: Final = "nothing is from that time: these results are from any time"


class Memory:
    """Notes and conversations of one user; other users on the same store are invisible here.

    `ValueError` names an invalid argument; `StorageError` says why nothing was done.
    """

    def __init__(self, store: Store, user_id: str) -> None:
        self.store: Final = store
        self.patience: Final = store.config.patience
        self._user = user = User(user_id)
        self.notes = store.notes(user)
        self._search = store.search(user)
        self._writer = NoteWriter(
            self.notes,
            self._search,
            store.indexer,
            store.eraser,
            store.background,
            store.config.settings.embed_wait_ms / 1000,
        )
        self.review = NoteReview(
            self.notes, partial(store.note_vectors, user), wanted=store.vectorizer.wanted
        ).review
        self.keyed = KeyedNotes(self.notes, self._writer)
        self.typed = TypedNotes(
            *(self.notes, self._search, partial(store.read_notes, user)),
            by_words=not store.vectorizer.wanted,
        )
        self.history = NoteHistory(self.notes, self._writer)
        self.state_of = SessionState(store.database, user)
        self.work = Work(store.database, self.state_of, user)
        self.conversations = store.conversations(user)
        self.receipts = Receipts(store.database, user)
        self.usage = Usage(store.database, user)
        self.in_use = store.in_use
        self.due_changed = asyncio.Event()
        self.sessions = SessionAdmin(
            store.database,
            self.conversations,
            store.vectors,
            store.eraser,
            store.in_use,
            store.background,
            self.notes,
            user,
        )
        store.serve(user)

    @classmethod
    async def open(cls, config: MemoryConfig, embedder: Embedder | None, user_id: str) -> "Memory":
        """Open the store, migrate its schema and start the indexer.

        Does not wait for the embedder, which the caller closes, or for a memory server that is
        away. Raises `StorageError`; `ValueError` for an invalid user id.
        """
        User(user_id)
        return cls(await open_store(config, embedder), user_id)

    @property
    def user_id(self) -> str:
        return self._user.id

    @classmethod
    def temporary(cls, config: MemoryConfig, user_id: str) -> "Memory":
        """An empty memory in this process alone; it is gone when it is closed."""
        return cls(in_ram(config), user_id)

    def with_conversations_in(self, other: "Memory") -> "Memory":
        """The notes of this memory, with the conversations, their receipts and their state of the
        `other`. Both are still to be closed."""
        view = copy(self)
        view.conversations, view.receipts = other.conversations, other.receipts
        view.state_of, view.sessions = other.state_of, other.sessions
        return view

    @property
    def deleted(self) -> Sequence[str]:
        """The ids of the notes that were deleted here last."""
        return self._writer.deleted

    async def close(self) -> None:
        """Wait for running changes, then close the store. Idempotent."""
        await self.store.close()

    async def save(
        self,
        text: str,
        tags: Sequence[str],
        origin: Origin,
        details: Details = Details(),  # noqa: B008 - it cannot change
    ) -> SaveOutcome:
        """Store a note durably, then wait briefly for its vector.

        Saving the same text again, even concurrently, returns the existing note, unless that has a
        key, another scope or is superseded. Without a vector in time, the note is found by keyword
        until the vector follows. Raises `MemoryFull`.
        """
        draft = Draft(text, tags, origin, details=details)
        with watch.step("memory", operation="save"):
            saved = await self._writer.save(draft)
        if details.due_at:
            self.due_changed.set()
        return saved

    async def update(
        self,
        note_id: str,
        text: str,
        tags: Sequence[str] | None,
        origin: Origin,
        *,
        expected_version: int | None = None,
        details: Details | None = None,
    ) -> Updated:
        """Replace a note's text, and its tags and details unless None, under the same id.

        The previous text is kept as a version. Of concurrent updates the last one wins, unless
        `expected_version` names the version to replace. A superseded note becomes current again.
        Raises `NoteNotFound`, `StaleVersion` and `MemoryFull`.
        """
        draft = Draft(
            *(text, tags, origin, note_id, expected_version, details),
            change="update",
        )
        with watch.step("memory", operation="update"):
            note, embedded = await self._writer.update(draft)
        if details is not None:
            self.due_changed.set()
        if embedded is None:
            return Updated(note)
        return Updated(note, await self._writer.similar(note, embedded, origin.session_id))

    async def delete(
        self, note_id: str, origin: Origin | None = None, *, expected_version: int | None = None
    ) -> None:
        """Remove a note with its versions, passages and vectors, and erase every byte of its text.

        Its id stays in the receipts of the turns that changed it.

        The removal is verified. Raises `NoteNotFound`, and `StaleVersion` if the note is not at
        `expected_version`. A `StorageError` after the removal says so;
        the erasure is then finished by the next deletion or at the next start.
        """
        await self._writer.delete(note_id, expected_version, origin)

    async def list(
        self,
        limit: int,
        cursor: str = "",
        only: Filter = Filter(),  # noqa: B008 - it cannot change
        *,
        include_superseded: bool = False,
    ) -> tuple[list[Note], str]:
        """Up to `limit` notes, newest first, and the cursor of the next page; empty at the end.

        Notes of every scope are listed, superseded ones only on request.
        """
        validation.check_range("limit", limit, LIST_MAX)
        if cursor and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 16):
            raise ValueError("cursor: not from an earlier list")
        if only.type:
            validation.check_type(only.type)
        before = int(cursor) if cursor else INTEGER_MAX
        page, following = await self.notes.page(
            limit, before, only, include_superseded=include_superseded
        )
        return page, str(following) if following else ""

    async def search(
        self,
        query: str,
        *,
        top_k: int = 5,
        tags: Sequence[str] = (),
        include_conversation: bool = False,
        only: Only = Only(),  # noqa: B008 - it cannot change
        weak: bool = False,
        or_anytime: bool = False,
        cursor: str = "",
    ) -> SearchOutcome:
        """The notes that answer `query` best, each once, by its best passage.

        Any text is a valid query. `tags` limits the search to notes that have all of them; `only`
        limits it further. `include_conversation` also searches the user's conversations. The
        outcome's warnings say what is missing. With `weak`, a search that finds nothing gives the
        nearest notes, at most three, if they are not quite unlike the query. With
        `or_anytime`, where nothing is from the time that `only` names, the results are from any
        time, and a warning says so. `cursor`, from the outcome of the same search, stands for the
        results that were shown: those that follow are given.
        """
        validation.check_range("top_k", top_k, SEARCH_MAX)
        validation.check_fraction("min_confidence", only.min_confidence)
        for wanted in only.types:
            validation.check_type(wanted)
        checked = validation.checked_tags(tags)
        await self.wait_while_loading()
        searched = (self.user_id, query, sorted(checked), include_conversation)
        anytime = replace(only, chosen=only.chosen.at_any_time)
        pages = [
            (each, Shown(cursor, (*searched, each.lasting)))
            for each in dict.fromkeys((only, anytime) if or_anytime else (only,))
        ]
        pages = [(each, before) for each, before in pages if before.fits]
        if not pages:
            raise ValueError(
                "cursor: not from an earlier search with the same words and filters; leave it out "
                "to begin anew"
            )
        with watch.step("memory", operation="search"):
            for each, before in pages:
                found = await self._search.search(
                    query, top_k, checked, include_conversation, each, weak, before
                )
                if found.results or cursor:
                    break
        if not found.results or each == only:
            return found
        silent = "" if include_conversation else "; conversations were not searched"
        return replace(found, warnings=(NOTHING_THEN + silent, *found.warnings))

    @property
    def quota(self) -> Quota:
        return Quota.of(self.store.config)

    async def statistics(self) -> Statistics:
        return await self.store.statistics(self._user)

    def export(self) -> "AsyncIterator[ExportPart]":
        """The user's whole memory as lines for an `importer`."""
        from guest.memory.transfer.exporter import export

        return export(self.store.database, self._user)

    def importer(self) -> "Importer":
        from guest.memory.transfer.importer import Importer

        store = self.store
        return Importer(store.database, store.vectors, self._user, self.quota, store.indexer.wake)

    def require_room(self, size: int) -> None:
        """Check that the disk keeps what the memory needs when that grows by `size` bytes.

        Raises `StorageError`.
        """
        if self.store.config.remote is None:
            require_room(Path(self.store.config.db_path), size)

    def retention(self) -> Retention:
        """What forgets old conversations; the caller starts it."""
        days = self.store.config.settings.retention_days
        return Retention(self.store.database, self.sessions, self._user, days)

    async def copy_to(self, target: Path) -> None:
        """Write the whole memory, as it is now, to a database file at `target`.

        It has the key of the memory's own files, and includes other users of the same file. Raises
        `StorageError` and then leaves no file, as where it would use up what the memory needs.
        """
        from guest.memory.transfer.move import copy_store

        require_room(target, await self.store.database.size_bytes())
        await copy_store(self.store.database, self.store.config.encryption_key, self._user, target)

    async def reembed(self) -> int:
        """Replace all vectors in the background; returns the number of passages.

        Until a passage has its new vector, searches find it by keyword. Raises `EmbedderError`,
        with nothing changed, if no embedder is available.
        """
        return await self.store.indexer.reembed(self._user.namespaces)

    async def wait_while_loading(self, tell: Tell = None) -> None:
        """Wait briefly, before the first search only, for an embedder that is still loading;
        `tell` is first called with a sentence that says so."""
        await self.store.vectorizer.wait_while_loading(self.patience.loading_s, tell)

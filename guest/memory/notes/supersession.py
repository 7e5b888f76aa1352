"""A note that counts no more, and what replaces it: kept, and found only by who asks for it.

A chain A → B → C stays readable from its beginning. It never closes into a circle: that
is looked at in the very batch that would close it, whoever else changes notes meanwhile.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from guest.memory import validation
from guest.memory.models import Note, NoteNotFound, Origin, Superseded, User, now
from guest.memory.notes import receipts
from guest.memory.search.vector_store import VectorStore
from guest.memory.storage.base import ConstraintViolated, Database, Statement, apply
from guest.memory.storage.changes import ATTEMPTS, unexplained

REASON_MAX_CHARS: Final = 2_000

_SEEN: Final = """
SELECT note_id, superseded_by, scope_session, superseded_reason, superseded_at FROM notes
    WHERE namespace = ? AND note_id IN (?, ?) AND scope_session IN ('', ?)
"""
_REQUIRE_CURRENT: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (
        SELECT 1 FROM notes WHERE namespace = ? AND note_id = ? AND scope_session IN ('', ?)
            AND superseded_by IS NULL)
"""
_CHAIN: Final = """
WITH RECURSIVE chain (note_id) AS (
    SELECT ?2
    UNION
    SELECT notes.superseded_by FROM chain CROSS JOIN notes
        ON notes.namespace = ?1 AND notes.note_id = chain.note_id
        WHERE notes.superseded_by <> '')
"""
_LEADS_TO: Final = f"{_CHAIN} SELECT 1 FROM chain WHERE note_id = ?3"  # noqa: S608
_REQUIRE_REPLACEMENT: Final = f"""
INSERT INTO guards (ok) {_CHAIN}
    SELECT 0 WHERE EXISTS (SELECT 1 FROM chain WHERE note_id = ?3) OR NOT EXISTS (
        SELECT 1 FROM notes WHERE namespace = ?1 AND note_id = ?2 AND scope_session IN ('', ?4))
"""  # noqa: S608
_SUPERSEDE: Final = """
UPDATE notes SET superseded_by = ?, superseded_reason = ?, superseded_at = ?
    WHERE namespace = ? AND note_id = ?
"""
_REQUIRE_SUPERSEDED: Final = """
INSERT INTO guards (ok)
    SELECT 0 WHERE NOT EXISTS (
        SELECT 1 FROM notes WHERE namespace = ? AND note_id = ? AND version = ?
            AND superseded_by = ?)
"""
_REVIVE: Final = """
UPDATE notes SET superseded_by = NULL, superseded_reason = '', superseded_at = ''
    WHERE namespace = ? AND note_id = ?
"""


class _Seen(NamedTuple):
    by: str | None
    scope: str
    reason: str
    at: str


class SupersedeRefused(Exception):  # noqa: N818 - a condition that callers expect and handle
    """A note cannot be superseded like this; the message is one sentence that says why.
    Nothing was changed."""


class Supersession:
    """Takes notes out of what counts, and brings them back."""

    def __init__(self, database: Database, vectors: VectorStore, user: User) -> None:
        self._database = database
        self._vectors = vectors
        self._user = user

    async def supersede(
        self,
        note_id: str,
        *,
        reason: str,
        replacement_id: str,
        session_id: str,
        origin: Origin | None = None,
    ) -> Superseded | None:
        """See `TypedNotes.supersede`."""
        if reason:
            validation.check_length("reason", reason, REASON_MAX_CHARS)
            validation.check_text("reason", reason)
        namespace = self._user.notes
        for _ in range(ATTEMPTS):
            done = await self._done(namespace, note_id, replacement_id, session_id)
            if done is not None:
                return done
            guards = [Statement(_REQUIRE_CURRENT, (namespace, note_id, session_id))]
            if replacement_id:
                circle = (namespace, replacement_id, note_id, session_id)
                guards.append(Statement(_REQUIRE_REPLACEMENT, circle))
            state = (replacement_id, reason, now(), namespace, note_id)
            receipt = receipts.of_change(namespace, origin, "superseded", note_id)
            if await self._apply(namespace, *guards, Statement(_SUPERSEDE, state), *receipt):
                return None
        raise unexplained(f"{note_id} cannot be superseded")

    async def revive(self, note: Note) -> bool:
        """Let a superseded note count again; false where it is not as given any more."""
        assert note.superseded is not None
        namespace = self._user.notes
        same = (namespace, note.note_id, note.version, note.superseded.by)
        return await self._apply(
            namespace,
            Statement(_REQUIRE_SUPERSEDED, same),
            Statement(_REVIVE, (namespace, note.note_id)),
        )

    async def _apply(self, namespace: str, *statements: Statement) -> bool:
        """Make a change; false where another one came first."""
        try:
            async with self._vectors.changing(namespace):
                await apply(self._database, *statements)
        except ConstraintViolated:
            return False
        return True

    async def _done(
        self, namespace: str, note_id: str, replacement_id: str, session_id: str
    ) -> Superseded | None:
        """How it is superseded just so already; None where it is not. Raises what forbids it."""
        seen = await self._seen(namespace, note_id, replacement_id, session_id)
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
        if replacement_id:
            chain = (namespace, replacement_id, note_id)
            if (await self._database.execute(_LEADS_TO, chain)).rows:
                raise SupersedeRefused(
                    f"{replacement_id} is itself replaced, in the end, by {note_id}; "
                    "notes cannot replace each other in a circle"
                )
        return None

    async def _seen(
        self, namespace: str, note_id: str, replacement_id: str, session_id: str
    ) -> Mapping[str, _Seen]:
        """Those of both that the session sees."""
        result = await self._database.execute(
            _SEEN, (namespace, note_id, replacement_id, session_id)
        )
        rows = cast("tuple[tuple[Any, ...], ...]", result.rows)
        return {found: _Seen(*state) for found, *state in rows}

"""Taking the last change of a note back."""

import json
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from guest.memory import namespaces, notes
from guest.memory.afterwards import afterwards
from guest.memory.attempts import ATTEMPTS, unexplained
from guest.memory.database.base import Database
from guest.memory.database.damage import noticed
from guest.memory.keys import FIXED, VERSIONS_KEPT
from guest.memory.notes import Draft
from guest.memory.supersession import Supersession
from guest.memory.types import Details, Note, Origin, StaleVersion
from guest.memory.writer import NoteWriter

_VERSION: Final = """
SELECT content, tags, type, confidence, rationale, importance, origin_link, origin_material,
       restores
    FROM note_versions WHERE namespace = ? AND note_id = ? AND version = ?
"""


class UndoRefused(Exception):  # noqa: N818 - a condition that callers expect and handle
    """There is nothing to go back to; the message is one sentence that says why. Nothing
    was changed."""


@dataclass(frozen=True)
class Undone:
    """What an undo has done, and the note as it is now; None where it is forgotten."""

    done: Literal["restored", "current_again", "forgotten"]
    note: Note | None


class Undo:
    """See `NoteHistory.undo`."""

    def __init__(self, database: Database, writer: NoteWriter, supersession: Supersession) -> None:
        self._database = database
        self._writer = writer
        self._supersession = supersession

    async def undo(
        self,
        user_id: str,
        note_id: str,
        *,
        expected_version: int | None,
        may_forget: bool,
        channel: str,
    ) -> Undone:
        """Without an expected version, what is undone is the last change there is."""
        namespace = namespaces.notes_of(user_id)
        for _ in range(ATTEMPTS):
            note = await notes.get(self._database, namespace, user_id, note_id)
            if expected_version not in (None, note.version):
                raise StaleVersion(note)
            try:
                undone = await self._take_back(namespace, note, may_forget, channel)
            except StaleVersion:
                continue
            if undone is not None:
                return undone
        raise unexplained(f"the last change of {note_id} cannot be undone")

    async def _take_back(
        self, namespace: str, note: Note, may_forget: bool, channel: str
    ) -> Undone | None:
        """Undo the change that made `note` what it is; None, or `StaleVersion`, where
        something else happened to it meanwhile."""
        if note.superseded is not None:
            if not await self._supersession.revive(note):
                return None
            with afterwards(f"{note.note_id} is current again; it could not be read again"):
                current = await notes.get(self._database, namespace, note.user_id, note.note_id)
            return Undone("current_again", current)
        version = (note.restores or note.version) - 1
        if version:
            draft = await self._draft(namespace, note, version, channel)
            restored, _ = await self._writer.update(note.user_id, draft)
            return Undone("restored", restored)
        if not may_forget:
            raise UndoRefused(
                f"{note.note_id} says what it said first; to undo that is to forget the note"
            )
        await self._writer.delete(note.user_id, note.note_id, note.version)
        return Undone("forgotten", None)

    async def _draft(self, namespace: str, note: Note, version: int, channel: str) -> Draft:
        """What an earlier version said, to follow `note`. What was read stays marked so."""
        result = await self._database.execute(_VERSION, (namespace, note.note_id, version))
        if not result.rows:
            kept = f": of the {note.key} the last {VERSIONS_KEPT} are" if note.key in FIXED else ""
            raise UndoRefused(f"version {version} of {note.note_id} is not kept{kept}")
        with noticed("a version of a note"):
            text, tags, kind, confidence, rationale, importance, *origin = cast(
                "tuple[Any, ...]", result.rows[0]
            )
            link, material, restores = origin
            labels = json.loads(tags)
        return self._writer.draft(
            text,
            labels,
            Origin(actor="user", channel=channel, link=link, material=bool(material)),
            note_id=note.note_id,
            replaces=note.version,
            details=Details(kind, confidence, rationale, importance, note.details.scope_session),
            key=note.key,
            change="undo",
            restores=restores or version,  # to go back further must skip what was undone
        )

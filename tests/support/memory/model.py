"""One user's memory as plain dictionaries: what every change makes of it.

The property tests and the ledger of the fault tests compare the real memory with this.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from guest.memory.models import Note, NoteNotFound, SupersedeRefused


@dataclass(frozen=True)
class NoteModel:
    """A note as it stands, and its earlier texts, oldest first.

    `superseded_by` is None for a current note and empty for one that was forgotten or whose
    replacement is gone. `restores` is the version that the current one restored, or 0;
    `restored` says the same of earlier versions, for those that restored one, and `ended` how
    earlier versions were superseded when an update made the note current again.
    """

    text: str
    version: int = 1
    before: tuple[str, ...] = ()
    type: str = "fact"
    key: str = ""
    scope: str = ""
    superseded_by: str | None = None
    restores: int = 0
    restored: Mapping[int, int] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    ended: Mapping[int, str] = field(default_factory=dict)

    def updated(self, text: str, tags: tuple[str, ...] | None = None) -> "NoteModel":
        """The next version; it is current even where this one was superseded."""
        return self._followed_by(text, 0, self.tags if tags is None else tags)

    def written(self, text: str, mode: str) -> "NoteModel":
        """The next version of a keyed note. A superseded text is not appended to."""
        append = mode == "append" and self.superseded_by is None
        return self.updated(f"{self.text}\n{text}" if append else text)

    def undone(self) -> "NoteModel | None":
        """The note without its last change; None where that was its first version."""
        if self.superseded_by is not None:
            return replace(self, superseded_by=None)
        earlier = (self.restores or self.version) - 1
        if not earlier:
            return None
        restores = self.restored.get(earlier, earlier)
        undone = self._followed_by(self.before[earlier - 1], restores, self.tags)
        return replace(undone, superseded_by=self.ended.get(earlier))

    def without(self, note_id: str) -> "NoteModel":
        """The note, replaced by nothing where `note_id` replaced it."""
        by = "" if self.superseded_by == note_id else self.superseded_by
        ended = {number: "" if each == note_id else each for number, each in self.ended.items()}
        return replace(self, superseded_by=by, ended=ended)

    def visible_to(self, session_id: str) -> bool:
        return self.scope in ("", session_id)

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text the note has had, the current one last."""
        return (*self.before, self.text)

    @property
    def lines(self) -> set[str]:
        """Every line the note has had; an append adds whole lines."""
        return {line for text in self.texts for line in text.split("\n")}

    def _followed_by(self, text: str, restores: int, tags: tuple[str, ...]) -> "NoteModel":
        restored = (
            {**self.restored, self.version: self.restores} if self.restores else self.restored
        )
        ended = self.ended
        if self.superseded_by is not None:
            ended = {**ended, self.version: self.superseded_by}
        return replace(
            self,
            ended=ended,
            text=text,
            version=self.version + 1,
            before=self.texts,
            superseded_by=None,
            restores=restores,
            restored=restored,
            tags=tags,
        )


@dataclass
class MemoryModel:
    """A user's notes by id, and the texts said in each session."""

    notes: dict[str, NoteModel] = field(default_factory=dict)
    sessions: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def duplicates(self, text: str, scope: str = "") -> list[str]:
        """The notes that a save of this text answers with instead of making one."""
        return [
            note_id
            for note_id, note in self.notes.items()
            if (note.text, note.scope, note.key) == (text, scope, "") and note.superseded_by is None
        ]

    def keyed(self, key: str) -> str | None:
        """The note with this key."""
        return next((i for i, note in self.notes.items() if note.key == key), None)

    def visible_to(self, session_id: str) -> dict[str, NoteModel]:
        return {i: note for i, note in self.notes.items() if note.visible_to(session_id)}

    def remove(self, note_id: str) -> NoteModel:
        """Delete a note, and its id from those that it replaced."""
        removed = self.notes.pop(note_id)
        for other, note in self.notes.items():
            self.notes[other] = note.without(note_id)
        return removed

    def forget_session(self, session_id: str) -> list[NoteModel]:
        """Delete a session, and return the notes that went with it."""
        self.sessions.pop(session_id, None)
        scoped = [i for i, note in self.notes.items() if note.scope == session_id]
        return [self.remove(note_id) for note_id in scoped]

    def supersede_error(
        self, note_id: str, by: str, session_id: str = ""
    ) -> type[Exception] | None:
        """What superseding one note by another must raise; None where it succeeds."""
        visible = self.visible_to(session_id)
        note = visible.get(note_id)
        if note is None:
            return NoteNotFound
        if note.superseded_by == by:
            return None
        if note_id == by:
            return SupersedeRefused
        if by and by not in visible:
            return NoteNotFound
        if note.superseded_by is not None or note_id in self.chain(by):
            return SupersedeRefused
        if by and not visible[by].visible_to(note.scope):
            return SupersedeRefused
        return None

    def supersede(self, note_id: str, by: str) -> None:
        self.notes[note_id] = replace(self.notes[note_id], superseded_by=by)

    def chain(self, note_id: str) -> list[str]:
        """The note, what replaces it, and so on; a circle fails."""
        chain: list[str] = []
        while note_id:
            assert note_id not in chain, f"{chain} closes into a circle"
            chain.append(note_id)
            note = self.notes.get(note_id)
            note_id = (note.superseded_by or "") if note else ""
        return chain

    def closes_circle(self, note_id: str) -> bool:
        """Whether undoing the note's last change would let notes replace each other in a circle."""
        undone = self.notes[note_id].undone()
        return undone is not None and note_id in self.chain(undone.superseded_by or "")

    def undo(self, note_id: str) -> str:
        """Take back a note's last change and return what `Undone.done` must say."""
        note = self.notes[note_id]
        undone = note.undone()
        if undone is None:
            self.remove(note_id)
            return "forgotten"
        self.notes[note_id] = undone
        return "restored" if note.superseded_by is None else "current_again"

    def check_listed(self, listed: Iterable[Note]) -> None:
        """Fail unless a list of all notes, superseded ones too, is just this."""
        assert {note.note_id: _state(note) for note in listed} == {
            note_id: (
                *(note.text, note.tags, note.version, note.restores, note.key),
                *(note.type, note.scope, note.superseded_by),
            )
            for note_id, note in self.notes.items()
        }


def _state(note: Note) -> tuple[object, ...]:
    superseded_by = note.superseded.by if note.superseded else None
    return (
        *(note.text, note.tags, note.version, note.restores, note.key),
        *(note.details.type, note.details.scope_session, superseded_by),
    )

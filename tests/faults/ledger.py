"""What a store was told and has acknowledged, against what is found in it after a fault."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.crashing.killing import Line
from tests.support.memory.model import MemoryModel, NoteModel


@dataclass(frozen=True)
class Found:
    """What lies in a store: notes by id, the texts of each session, and what is wrong."""

    notes: dict[str, NoteModel]
    sessions: dict[str, tuple[str, ...]]
    half_made: tuple[str, ...] = ()
    doubles: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()


@dataclass
class Tally:
    """The figures of one kind of fault on one store, and a sentence for each that is wrong.
    `interrupted` are changes that a fault ended or made fail."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    half_made: int = 0
    false_successes: int = 0
    false_failures: int = 0
    doubles: int = 0
    damaged: int = 0
    interrupted: int = 0
    wrong: list[str] = field(default_factory=list)

    def note(self, found: Found) -> None:
        """Count what a store shows to be wrong by itself."""
        self.half_made += len(found.half_made)
        self.doubles += len(found.doubles)
        self.damaged += bool(found.damage)
        self.wrong += [*found.half_made, *found.doubles, *found.damage]


class Ledger:
    """One store's history. With `failures` changes may fail. `survived` says whether guest
    and store lived through the faults: an acknowledged change that is missing is then a
    false success, otherwise a loss."""

    def __init__(self, tally: Tally, *, failures: bool = False, survived: bool = False) -> None:
        self.tally = tally
        self.memory = MemoryModel()
        self.removed: set[str] = set()
        self.imported: Found = Found({}, {})
        self._failures = failures
        self._survived = survived
        self._begun: Line | None = None
        self._open: list[Line] = []
        self._denied: list[Line] = []

    def read(self, line: Line) -> None:
        """Take in what a worker says: it `will` do something, `did` it, or `failed` at it."""
        if "will" in line:
            self._begun = line
        elif "failed" in line:
            assert self._begun is not None
            if not self._failures:
                self._wrong("false_failures", f"failed without reason: {line['failed']}")
            (self._denied if line["known"] else self._open).append(self._begun)
            self.tally.interrupted += 1
            self._begun = None
        elif line["did"] == "open":
            self._begun = None
        elif self._begun is not None:
            self._apply(self._begun | line)
            self.tally.acknowledged += 1
            self._begun = None

    def settle(self, found: Found) -> None:
        """Compare with what is found, and go on from there. A change on its way at the end,
        or one that the guest was not told the end of, may have happened or not."""
        if self._begun is not None:
            self.tally.interrupted += 1
            self._open.append(self._begun)
            self._begun = None
        for change in self._open:
            self._resolve(change, found)
        for change in self._denied:
            if self._resolve(change, found):
                self._wrong("false_failures", f"said to have failed, and done: {_told(change)}")
        self._open, self._denied = [], []
        missing = "false_successes" if self._survived else "lost"
        self._compare(self.memory.notes, found.notes, lambda note: note.lines, missing)
        self._compare(self.memory.sessions, found.sessions, set, missing)
        self.tally.note(found)
        self.memory = MemoryModel(dict(found.notes), dict(found.sessions))

    def _apply(self, change: Line) -> None:
        match change:
            case {"will": "save", "id": note_id}:
                self.memory.notes[note_id] = _saved(change)
            case {"will": "delete", "id": note_id}:
                self.removed |= self.memory.remove(note_id).lines
            case {"will": "update" | "undo" | "supersede" | "write" | "clear"}:
                note_id, note = self._after(change)
                version = change.get("version", note.version if note else 0)
                if note is not None and version != note.version:
                    self._wrong("doubles", f"became version {version}: {_told(change)}")
                    note = replace(note, version=version)
                if note is None:
                    self.removed |= self.memory.remove(note_id).lines
                else:
                    self.memory.notes[note_id] = note
            case {"will": "begin", "session": session_id}:
                self.memory.sessions[session_id] = ()
            case {"will": "append", "session": session_id, "text": text}:
                self.memory.sessions[session_id] = (*self.memory.sessions[session_id], text)
            case {"will": "forget", "session": session_id}:
                self.removed.update(self.memory.sessions[session_id])
                for note in self.memory.forget_session(session_id):
                    self.removed |= note.lines
            case {"will": "import"}:
                self.memory.notes |= self.imported.notes
                self.memory.sessions |= self.imported.sessions

    def _after(self, change: Line) -> tuple[str, NoteModel | None]:
        """The note that a change is about, and what the change makes of it; None: removed."""
        note_id = change.get("id") or self._keyed(change["key"])
        before = self.memory.notes.get(note_id)
        match change:
            case {"will": "write", "key": key, "text": text} if before is None:
                return note_id, NoteModel(text, key=key)
            case {"will": "write", "mode": mode, "text": text}:
                assert before is not None
                return note_id, before.written(text, mode)
            case {"will": "update", "text": text}:
                assert before is not None
                return note_id, before.updated(text)
            case {"will": "undo"}:
                assert before is not None
                return note_id, before.undone()
            case {"will": "supersede", "by": by}:
                assert before is not None
                return note_id, replace(before, superseded_by=by if by in self.memory.notes else "")
        return note_id, None

    def _keyed(self, key: str) -> str:
        return self.memory.keyed(key) or ""

    def _resolve(self, change: Line, found: Found) -> bool:
        """Apply a change of which the end is not known, if it has happened."""
        match change:
            case {"will": "save"}:
                made = [i for i, note in found.notes.items() if note == _saved(change)]
                happened = bool(made) and made[0] not in self.memory.notes
                change = change | {"id": made[0]} if made else change
            case {"will": "write", "key": key} if not self._keyed(key):
                made = [i for i, note in found.notes.items() if note.key == key]
                happened = bool(made)
                change = change | {"id": made[0]} if made else change
            case {"will": "delete", "id": note_id}:
                happened = note_id not in found.notes
            case {"will": "update" | "undo" | "supersede" | "write" | "clear"}:
                note_id, note = self._after(change)
                happened = found.notes.get(note_id) == note
            case {"will": "begin", "session": session_id}:
                happened = session_id in found.sessions
            case {"will": "append", "session": session_id, "text": text}:
                said = (*self.memory.sessions[session_id], text)
                happened = found.sessions.get(session_id) == said
            case {"will": "forget", "session": session_id}:
                happened = session_id not in found.sessions
            case {"will": "import"}:
                return self._import_part(found)
            case {"will": "open"}:
                return False
            case _:
                raise AssertionError(change)
        if happened:
            self._apply(change)
        return happened

    def _import_part(self, found: Found) -> bool:
        """Take in what an import that did not come to its end has stored."""
        part = {i: note for i, note in self.imported.notes.items() if i in found.notes}
        said = {
            i: texts[: len(found.sessions[i])]
            for i, texts in self.imported.sessions.items()
            if i in found.sessions
        }
        known = self.memory
        changed = not (
            part.items() <= known.notes.items() and said.items() <= known.sessions.items()
        )
        known.notes |= part
        known.sessions |= said
        return changed

    def _compare(
        self,
        expected: dict[str, Any],
        found: dict[str, Any],
        texts: Callable[[Any], set[str]],
        missing: str,
    ) -> None:
        for key in expected.keys() | found.keys():
            if expected.get(key) == found.get(key):
                continue
            if key not in found:
                self._wrong(missing, f"{key} is gone: {expected[key]!r:.200}")
            elif key in expected:
                self._wrong(missing, f"{key}: {found[key]!r:.200} and not {expected[key]!r:.200}")
            elif texts(found[key]) & self.removed:
                self._wrong(missing, f"{key} was removed and is there: {found[key]!r:.200}")
            else:
                self._wrong("half_made", f"nobody has stored {key}: {found[key]!r:.200}")

    def _wrong(self, column: str, sentence: str) -> None:
        setattr(self.tally, column, getattr(self.tally, column) + 1)
        self.tally.wrong.append(sentence)


def _saved(change: Line) -> NoteModel:
    return NoteModel(change["text"], type=change.get("type", "fact"), scope=change.get("scope", ""))


def _told(change: Line) -> str:
    return f"{change}"[:200]

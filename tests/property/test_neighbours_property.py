"""What a word finds is what it finds in plain Python: the notes that have it, and those beside."""

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.models import Details, Only, Origin
from tests.support.examples import examples
from tests.support.memory.store import opened
from tests.support.scratch import SCRATCH

WORDS = ("tea", "garden", "lantern")
SESSIONS = ("", "s1", "s2")
STEP = st.one_of(
    st.tuples(
        st.just("save"),
        st.lists(st.sampled_from(WORDS), max_size=2),
        st.sampled_from(SESSIONS),
        st.sampled_from(("", "", "", "s1")),
    ),
    st.tuples(
        st.just("update"),
        st.integers(0, 20),
        st.lists(st.sampled_from(WORDS), max_size=2),
        st.sampled_from(SESSIONS),
    ),
    st.tuples(st.sampled_from(("delete", "supersede", "undo")), st.integers(0, 20)),
)


@dataclass
class Noted:
    """A note in the order of saving, as the last change left it."""

    note_id: str
    text: str
    session: str
    scope: str
    superseded: bool = False

    @property
    def beside_others(self) -> bool:
        return bool(self.session) and not self.scope and not self.superseded


def expected(notes: list[Noted], word: str) -> set[str]:
    """The notes that a search of session s1 finds."""
    visible = {note.note_id for note in notes if not note.superseded}
    having = {note.note_id for note in notes if word in note.text.split()} & visible
    found = set(having)
    for session in SESSIONS:
        row = [note.note_id for note in notes if note.session == session and note.beside_others]
        for i, note_id in enumerate(row):
            if note_id in having:
                found.update(row[max(0, i - 2) : i + 3])
    return found


async def change(memory: Memory, notes: list[Noted], number: int, step: tuple[object, ...]) -> None:
    match step:
        case "save", list(words), str(session), str(scope):
            text = " ".join([*words, f"number {number}"])
            details = Details(scope_session=scope)
            saved = await memory.save(text, (), Origin("user", "test", session), details)
            notes.append(Noted(saved.note.note_id, text, session, scope))
        case "update", int(which), list(words), str(session) if notes:
            note = notes[which % len(notes)]
            note.text = " ".join([*words, f"number {number}"])
            note.session, note.superseded = session, False
            await memory.update(note.note_id, note.text, None, Origin("user", "test", session))
        case "delete", int(which) if notes:
            note = notes.pop(which % len(notes))
            await memory.delete(note.note_id)
        case "supersede", int(which) if notes and not notes[which % len(notes)].superseded:
            note = notes[which % len(notes)]
            await memory.typed.supersede(note.note_id, session_id=note.scope)
            note.superseded = True
        case "undo", int(which) if notes and notes[which % len(notes)].superseded:
            note = notes[which % len(notes)]
            await memory.history.undo(note.note_id)
            note.superseded = False


@examples(30)
@given(st.lists(STEP, min_size=3, max_size=25))
def test_a_word_finds_the_notes_that_have_it_and_those_beside(
    steps: list[tuple[object, ...]],
) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(dir=SCRATCH) as scratch:
            async with opened(Path(scratch) / "memory.db") as memory:
                notes: list[Noted] = []
                for number, step in enumerate(steps):
                    await change(memory, notes, number, step)
                for word in WORDS:
                    hits = (await memory.search(word, top_k=50, only=Only("s1"))).results
                    assert {hit.note_id for hit in hits} == expected(notes, word)
                    scores = {hit.note_id: hit.score for hit in hits}
                    having = [s for n, s in scores.items() if word in _text(notes, n).split()]
                    assert not scores or max(having) == max(scores.values())

    asyncio.run(run())


def _text(notes: list[Noted], note_id: str) -> str:
    return next(note.text for note in notes if note.note_id == note_id)

"""Memory against a dictionary, and searches for anything at all."""

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from guest.memory.store import Memory
from guest.memory.types import NoteNotFound
from tests.unit.memory_support import ORIGIN, FakeEmbedder, opened

WORDS = ("tea", "quartz", "violin", "harbor", "zebra", "lantern", "meadow", "copper")
TAGS = ("home", "work")
USERS = ("alice", "bob")

TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)
WHO = st.sampled_from(USERS)
LABELS = st.lists(st.sampled_from(TAGS), unique=True, max_size=2).map(tuple)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("save"), WHO, TEXT, LABELS),
        st.tuples(st.just("update"), WHO, st.integers(0, 9), TEXT, st.none() | LABELS),
        st.tuples(st.just("delete"), WHO, st.integers(0, 9)),
        st.tuples(st.just("search"), WHO, TEXT, LABELS),
        st.tuples(st.just("reopen")),
    ),
    max_size=20,
)


@dataclass
class Model:
    """What memory should hold: per user, notes as (text, tags) by id."""

    notes: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = field(
        default_factory=lambda: {user: {} for user in USERS}
    )
    issued: list[str] = field(default_factory=list)


async def step(memory: Memory, model: Model, action: str, *args: object) -> None:
    user = str(args[0])
    mine = model.notes[user]
    match action, args[1:]:
        case "save", (str(text), tuple(tags)):
            outcome = await memory.save(user, text, tags, ORIGIN)
            known = [note_id for note_id, (said, _) in mine.items() if said == text]
            assert outcome.created == (not known)
            if outcome.created:
                mine[outcome.note.note_id] = (text, tags)
                model.issued.append(outcome.note.note_id)
            else:
                assert outcome.note.note_id in known
        case "update", (int(index), str(text), tags):
            note_id = (model.issued or ["note-unknown"])[index % max(1, len(model.issued))]
            labels = tags if isinstance(tags, tuple) else None
            try:
                await memory.update(user, note_id, text, labels, ORIGIN)
            except NoteNotFound:
                assert note_id not in mine
            else:
                mine[note_id] = (text, mine[note_id][1] if labels is None else labels)
        case "delete", (int(index),):
            note_id = (model.issued or ["note-unknown"])[index % max(1, len(model.issued))]
            try:
                await memory.delete(user, note_id)
            except NoteNotFound:
                assert note_id not in mine
            else:
                del mine[note_id]
        case "search", (str(query), tuple(tags)):
            found = await memory.search(user, query, top_k=20, tags=tags)
            assert found.warnings == ()
            expected = {
                note_id
                for note_id, (text, labels) in mine.items()
                if set(query.split()) & set(text.split()) and set(tags) <= set(labels)
            }
            assert {hit.note_id for hit in found.hits} == expected
            for hit in found.hits:
                assert (hit.text, hit.tags) == mine[hit.note_id]
                assert 0 <= hit.score <= 1


async def check(memory: Memory, model: Model) -> None:
    for user in USERS:
        listed, _ = await memory.list(user, 100)
        assert {note.note_id: (note.text, note.tags) for note in listed} == model.notes[user]
    for index in ("chunks_fts", "conversation_fts"):
        await memory._database.execute(
            f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"
        )


class OwnDirections(FakeEmbedder):
    """Every word of the test points its own way, so that only shared words are alike."""

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        vector = np.array([text.split().count(word) for word in WORDS] + [1e-3], np.float32)
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_is_done_memory_holds_what_a_dictionary_would(
    steps: list[tuple[object, ...]], semantic: bool
) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
            path, model = Path(scratch) / "memory.db", Model()
            embedder = OwnDirections()
            remaining = list(steps)
            while True:
                async with opened(path, embedder, vector_weight=0.5 * semantic) as memory:
                    while remaining and remaining[0][0] != "reopen":
                        action, *args = remaining.pop(0)
                        await step(memory, model, str(action), *args)
                    await check(memory, model)
                if not remaining:
                    return
                remaining.pop(0)

    asyncio.run(run())


QUERY = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="\"*^():+-{}'\\ANDORNOTEAR ab\0\ud800\u0301_", max_size=40),
    st.lists(st.sampled_from(["AND", "OR", "NOT", "NEAR(", '"', "tea", "body:", "*", ")"])).map(
        " ".join
    ),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(QUERY, min_size=10, max_size=40))
def test_no_query_makes_a_search_raise(queries: list[str]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
            async with opened(Path(scratch) / "memory.db", FakeEmbedder()) as memory:
                await memory.save("alice", "tea and a b AND OR NOT", ["x"], ORIGIN)
                await memory.conversations.create("alice", "s")
                await memory.conversations.append(
                    "alice", "s", turn_id="t", role="user", text="tea NEAR a", payload="[]"
                )
                for query in queries:
                    for conversation in (False, True):
                        found = await memory.search(
                            "alice", query, include_conversation=conversation
                        )
                        assert "could not be searched" not in "".join(found.warnings)
                        assert all(0 <= hit.score <= 1 for hit in found.hits)

    asyncio.run(run())

"""Review shows notes that say nearly the same and notes that nobody needed; it changes none."""

import random
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from guest.memory import models
from guest.memory.memory import Memory
from guest.memory.models import Details, User
from guest.memory.notes import review as near
from guest.memory.notes.review import NoteReview, Pair
from guest.memory.search.contradiction import NEAR, likeness
from tests.support.memory.store import ALONE, ORIGIN, FakeEmbedder, away, embedded, opened

ALICE, BOB = "alice", "bob"
OAK = "the old oak tree behind the house grows very slowly"
NEARLY = "the old oak tree behind the house grows quite slowly"


async def save(memory: Memory, text: str, scope: str = "") -> str:
    details = Details(scope_session=scope)
    return (await memory.save(text, (), ALONE, details)).note.note_id


async def pairs(memory: Memory) -> list[tuple[str, str]]:
    reviewed = await memory.review()
    return [(pair.older.note_id, pair.newer.note_id) for pair in reviewed.similar]


async def test_nearly_the_same_is_shown_as_a_pair(memory: Memory) -> None:
    older = await save(memory, OAK)
    await save(memory, "tea is green")
    newer = await save(memory, NEARLY)
    await save(Memory(memory.store, BOB), NEARLY)
    reviewed = await memory.review()
    (pair,) = reviewed.similar
    assert (pair.older.note_id, pair.newer.note_id) == (older, newer)
    assert 0.85 <= pair.similarity < 1
    assert not pair.may_contradict
    assert reviewed.warnings == ()


async def test_an_update_does_not_make_a_note_the_newer_one(memory: Memory) -> None:
    older = await save(memory, "tea")
    newer = await save(memory, NEARLY)
    await memory.update(older, OAK, None, ORIGIN)
    assert await pairs(memory) == [(older, newer)]


async def test_a_pair_may_contradict(memory: Memory) -> None:
    await save(memory, "the meeting with the whole team on the roof is at 10:30")
    await save(memory, "the meeting with the whole team on the roof is at 11:30")
    (pair,) = (await memory.review()).similar
    assert pair.may_contradict


async def test_what_may_contradict_comes_first_also_in_other_words(memory: Memory) -> None:
    await save(memory, OAK)
    await save(memory, NEARLY)
    await save(memory, "On market day it is fish and bread for the two of us, which makes me happy")
    await save(memory, "On market day, no fish and no bread for the two of us and our house")
    first, second = (await memory.review()).similar
    assert first.may_contradict
    assert first.similarity < near.SIMILAR_COSINE
    assert "fish" in first.older.text.casefold()
    assert not second.may_contradict


async def test_entries_of_a_series_are_no_pairs_but_said_to_be_one(memory: Memory) -> None:
    for day in range(1, 6):
        await save(memory, f"2026-03-0{day} Meeting with Jonas about the budget")
    await save(memory, "Jonas's meeting about the budget is in the large room")
    again = await save(memory, OAK)
    await save(memory, NEARLY)
    reviewed = await memory.review()
    assert [pair.older.note_id for pair in reviewed.similar] == [again]
    (warning,) = reviewed.warnings
    assert "5 notes" in warning


async def test_an_entry_twice_is_still_shown(memory: Memory) -> None:
    for day in range(1, 6):
        await save(memory, f"2026-03-0{day} Meeting with Jonas about the budget")
    await save(memory, "2026-03-02: meeting with Jonas about the budget!!")
    (pair,) = (await memory.review()).similar
    assert "2026-03-02" in pair.older.text
    assert "2026-03-02" in pair.newer.text


async def test_what_is_superseded_keyed_or_of_another_scope_is_no_pair(memory: Memory) -> None:
    await save(memory, OAK)
    await save(memory, NEARLY, scope="s1")
    await memory.keyed.write("plan", NEARLY, "replace", ORIGIN)
    old = await save(memory, NEARLY)
    await memory.typed.supersede(old)
    assert await pairs(memory) == []
    in_s1 = await save(memory, OAK, scope="s1")
    assert [newer for _, newer in await pairs(memory)] == [in_s1]


async def test_two_notes_with_several_near_passages_are_one_pair(memory: Memory) -> None:
    text = "\n\n".join(f"{f'word{i} ' * 60} end" for i in range(4))
    await save(memory, text)
    await save(memory, text + " indeed")
    assert len(await pairs(memory)) == 1


async def test_the_nearest_pairs_come_first_and_more_are_mentioned(memory: Memory) -> None:
    for end in ("soon", "late", "now"):
        await save(memory, f"{end} {OAK}")
    same = "a quite different matter of no importance at all to anybody whatsoever"
    await save(memory, same)
    await save(memory, same + "!")
    reviewed = await memory.review(limit=2)
    assert round(reviewed.similar[0].similarity, 3) == 1
    assert len(reviewed.similar) == 2
    assert reviewed.warnings == ("more than these 2 pairs of notes were found",)


async def test_without_vectors_words_are_compared(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.error = away()
    async with opened(tmp_path / "memory.db", embedder) as memory:
        assert (await memory.review()).warnings == ()
        older = await save(memory, OAK)
        await save(memory, "tea is green")
        newer = await save(memory, OAK + "!")
        await save(memory, OAK + "?", scope="s1")
        reviewed = await memory.review()
    (pair,) = reviewed.similar
    assert (pair.older.note_id, pair.newer.note_id, pair.similarity) == (older, newer, 0.0)
    assert reviewed.warnings == (
        "there are no vectors of these notes; they were compared by the words of their first "
        "2,000 characters",
    )


async def test_what_was_not_compared_is_said(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.refuses = lambda text: "refused" in text
    async with opened(tmp_path / "memory.db", embedder) as memory:
        for i in range(3):
            await save(memory, f"tea {i}")
        await save(memory, "refused by the embedder")
        await embedded(memory, 3)
        user = User(memory.user_id)
        vectors = partial(memory.store.note_vectors, user)
        bounded = NoteReview(memory.store.notes(user), vectors, compared_max=3, page_rows=2)
        warnings = (await bounded.review(stale_days=180, limit=50)).warnings
    assert warnings == (
        "only the newest 3 passages were compared",
        "not compared were passages that have no vector yet: 1",
    )


async def test_stale_is_what_was_neither_written_nor_recalled(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = datetime.now(UTC).timestamp()

    class Moved(datetime):
        days = -400

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Moved":
            return cls.fromtimestamp(start + cls.days * 86400, tz)

    monkeypatch.setattr(models, "datetime", Moved)
    texts = ("oldest", "updated", "recalled", "superseded", "old")
    notes = {}
    for text in texts:
        Moved.days += 1
        notes[text] = await save(memory, text)
    for key in ("scratchpad", "plan"):
        await memory.keyed.write(key, "work", "replace", ORIGIN)
    Moved.days = -10
    await memory.update(notes["updated"], "updated again", None, ORIGIN)
    await memory.typed.count([await memory.notes.get(notes["recalled"])])
    await memory.typed.supersede(notes["superseded"])
    Moved.days = 0
    await save(memory, "new")
    reviewed = await memory.review()
    assert [note.text for note in reviewed.stale] == ["oldest", "old", "work"]
    assert [note.key for note in reviewed.stale] == ["", "", "plan"]
    reviewed = await memory.review(stale_days=9, limit=2)
    assert [note.text for note in reviewed.stale] == ["oldest", "recalled"]
    assert reviewed.warnings == ("more notes than these 2 were not needed for 9 days",)
    assert (await memory.review(stale_days=400)).stale == ()


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 1001}, {"stale_days": 0}])
async def test_senseless_bounds_are_refused(memory: Memory, wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        await memory.review(**wrong)


def test_pairs_by_vectors_are_those_of_comparing_each_with_each() -> None:
    random_ = np.random.default_rng(7)
    matrix = random_.normal(size=(700, 6)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    notes = random_.integers(0, 300, 700)
    scopes = notes % 2
    nearest: dict[tuple[int, int], float] = {}
    cosines = matrix @ matrix.T
    for i, j in zip(*np.nonzero(cosines >= NEAR), strict=True):
        one, other = int(min(notes[i], notes[j])), int(max(notes[i], notes[j]))
        if one != other and scopes[i] == scopes[j]:
            pair = (one, other)
            nearest[pair] = max(nearest.get(pair, 0.0), float(cosines[i, j]))
    found = near.by_vectors(matrix, notes, scopes, 100_000, neighbours=700)
    assert {(pair.first, pair.second) for pair in found} == set(nearest)
    assert all(abs(pair.similarity - nearest[pair.first, pair.second]) < 1e-5 for pair in found)
    assert [pair.similarity for pair in found] == sorted(nearest.values(), reverse=True)
    assert near.by_vectors(matrix, notes, scopes, 20) == found[:20]


def test_pairs_by_words_are_those_of_comparing_each_with_each() -> None:
    random_ = random.Random(7)
    words = [f"word{letter}" for letter in "abcdefghijkl"]
    texts = [" ".join(random_.sample(words, random_.randint(1, 9))) for _ in range(150)]
    scopes = [random_.randint(0, 1) for _ in texts]
    expected = {
        (i, j)
        for j in range(len(texts))
        for i in range(j)
        if scopes[i] == scopes[j]
        and likeness(frozenset(texts[i].split()), frozenset(texts[j].split())) >= near.SIMILAR_WORDS
    }
    pairs, complete = near.by_words(texts, scopes, 10_000)
    assert complete
    assert {(pair.first, pair.second) for pair in pairs} == expected
    assert [p.similarity for p in pairs] == sorted((p.similarity for p in pairs), reverse=True)


def test_comparing_by_words_is_bounded() -> None:
    pairs, complete = near.by_words(["green tea"] * 4, [0] * 4, 10, comparisons_max=2)
    assert pairs == [Pair(0, 2, 1.0), Pair(0, 1, 1.0)]
    assert not complete

"""A superseded note counts no more, is kept, and never stands in a circle."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import Details, NoteNotFound, Superseded, SupersedeRefused, User
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE, BOB = "alice", "bob"


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db", FakeEmbedder()) as memory:
        yield memory


async def save(memory: Memory, text: str, scope: str = "") -> str:
    details = Details(scope_session=scope)
    return (await memory.save(text, (), ORIGIN, details)).note.note_id


async def superseded(memory: Memory, note_id: str) -> Superseded | None:
    return (await memory.get(note_id)).superseded


async def test_a_superseded_note_is_kept_and_not_found(memory: Memory) -> None:
    note_id = await save(memory, "tea at four")
    await memory.typed.supersede(note_id, reason="nobody comes")
    note = await memory.get(note_id)
    assert (note.text, note.version) == ("tea at four", 1)
    assert note.superseded is not None
    assert (note.superseded.by, note.superseded.reason) == ("", "nobody comes")
    assert note.superseded.at > note.updated_at
    assert (await memory.search("tea")).results == ()
    assert await memory.list(10) == ([], "")


async def test_its_text_may_be_saved_again(memory: Memory) -> None:
    note_id = await save(memory, "tea at four")
    await memory.typed.supersede(note_id)
    again = await memory.save("tea at four", (), ORIGIN)
    assert again.created
    assert again.note.note_id != note_id


async def test_a_chain_stays_readable(memory: Memory) -> None:
    a, b, c = [await save(memory, f"tea at {hour}") for hour in (3, 4, 5)]
    await memory.typed.supersede(b, replacement_id=c)
    await memory.typed.supersede(a, replacement_id=b)
    by = [state and state.by for state in [await superseded(memory, note) for note in (a, b, c)]]
    assert by == [b, c, None]


async def test_the_same_again_changes_nothing(memory: Memory) -> None:
    a, b = await save(memory, "tea at four"), await save(memory, "tea at five")
    assert await memory.typed.supersede(a, reason="late", replacement_id=b) is None
    before = await superseded(memory, a)
    again = await memory.typed.supersede(a, reason="other words", replacement_id=b)
    assert again == before == await superseded(memory, a)
    await memory.typed.supersede(b)
    await memory.typed.supersede(b)


async def test_something_else_instead_is_refused(memory: Memory) -> None:
    a, b, c = [await save(memory, f"tea at {hour}") for hour in (3, 4, 5)]
    await memory.typed.supersede(a, replacement_id=b)
    with pytest.raises(SupersedeRefused, match=f"^{a} was replaced by {b} already; "):
        await memory.typed.supersede(a, replacement_id=c)
    with pytest.raises(SupersedeRefused, match=f"^{a} was replaced by {b} already; "):
        await memory.typed.supersede(a)
    await memory.typed.supersede(c)
    with pytest.raises(SupersedeRefused, match=f"^{c} was forgotten already$"):
        await memory.typed.supersede(c, replacement_id=b)


async def test_no_note_replaces_itself(memory: Memory) -> None:
    a, b, c = [await save(memory, f"tea at {hour}") for hour in (3, 4, 5)]
    with pytest.raises(SupersedeRefused, match="cannot be replaced by itself"):
        await memory.typed.supersede(a, replacement_id=a)
    await memory.typed.supersede(a, replacement_id=b)
    await memory.typed.supersede(b, replacement_id=c)
    with pytest.raises(SupersedeRefused, match=f"^{a} is itself replaced, in the end, by {c}"):
        await memory.typed.supersede(c, replacement_id=a)
    assert await superseded(memory, c) is None


async def test_what_a_session_does_not_see_is_unknown_to_it(memory: Memory) -> None:
    mine = await save(memory, "tea at four")
    bobs = await save(Memory(memory.store, BOB), "tea at five")
    others = await save(memory, "tea at six", scope="s2")
    for unknown in ("note-none", bobs, others):
        with pytest.raises(NoteNotFound) as refused:
            await memory.typed.supersede(unknown, session_id="s1")
        assert refused.value.note_id == unknown
        with pytest.raises(NoteNotFound) as refused:
            await memory.typed.supersede(mine, replacement_id=unknown, session_id="s1")
        assert refused.value.note_id == unknown
    assert await superseded(memory, mine) is None
    await memory.typed.supersede(others, replacement_id=mine, session_id="s2")
    assert (await Memory(memory.store, BOB).get(bobs)).superseded is None


async def test_a_note_of_one_session_takes_none_from_the_others(memory: Memory) -> None:
    everybodys = await save(memory, "tea at four")
    own, other = [await save(memory, f"tea at {hour}", scope="s1") for hour in (5, 6)]
    with pytest.raises(SupersedeRefused, match="the others would lose it"):
        await memory.typed.supersede(everybodys, replacement_id=own, session_id="s1")
    assert await superseded(memory, everybodys) is None
    await memory.typed.supersede(own, replacement_id=other, session_id="s1")
    await memory.typed.supersede(other, replacement_id=everybodys, session_id="s1")


async def test_a_reason_is_bounded(memory: Memory) -> None:
    note_id = await save(memory, "tea at four")
    for reason in ("x" * 2001, "a\0b"):
        with pytest.raises(ValueError, match="reason"):
            await memory.typed.supersede(note_id, reason=reason)
    await memory.typed.supersede(note_id, reason="x" * 2000)


async def stored(memory: Memory, note_id: str, replacement_id: str) -> bool:
    """Whether the batch that supersedes goes through, whatever was looked at before it."""
    notes = memory.store.notes(User(ALICE))
    return await notes.supersede(note_id, reason="", replacement_id=replacement_id, session_id="")


@pytest.mark.parametrize("chain", [1, 3])
async def test_the_batch_itself_closes_no_circle(memory: Memory, chain: int) -> None:
    notes = [await save(memory, f"tea at {hour}") for hour in range(chain + 1)]
    for note_id, replacement_id in itertools.pairwise(notes):
        await memory.typed.supersede(note_id, replacement_id=replacement_id)
    assert not await stored(memory, notes[-1], notes[0])
    assert await superseded(memory, notes[-1]) is None


async def test_the_batch_itself_refuses_what_has_changed_or_is_gone(memory: Memory) -> None:
    a, b, c, gone = [await save(memory, f"tea at {hour}") for hour in (3, 4, 5, 6)]
    await memory.typed.supersede(a, replacement_id=b)
    await memory.delete(gone)
    assert not await stored(memory, a, c)
    assert not await stored(memory, b, gone)
    assert await stored(memory, b, c)


async def test_of_many_at_once_one_is_done(memory: Memory) -> None:
    a, b, c = [await save(memory, f"tea at {hour}") for hour in (3, 4, 5)]
    outcomes = await asyncio.gather(
        memory.typed.supersede(a, replacement_id=b),
        memory.typed.supersede(b, replacement_id=a),
        memory.typed.supersede(a, replacement_id=c),
        return_exceptions=True,
    )
    assert {type(outcome) for outcome in outcomes} == {type(None), SupersedeRefused}
    first, second = await superseded(memory, a), await superseded(memory, b)
    assert (first and first.by, second and second.by) != (b, a)


async def test_a_keyed_note_written_anew_counts_again(memory: Memory) -> None:
    plan = await memory.keyed.write("plan", "tea", "replace", ORIGIN)
    await memory.typed.supersede(plan.note_id)
    assert await memory.keyed.read("plan") is None
    await memory.keyed.write("plan", "coffee", "replace", ORIGIN)
    assert (await memory.get(plan.note_id)).superseded is None

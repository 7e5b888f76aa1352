"""A superseded note counts no more, is kept, and never stands in a circle."""

import itertools

import pytest

from guest.memory.memory import Memory
from guest.memory.models import Details, Superseded, SupersedeRefused, User
from tests.support.memory.store import ORIGIN

ALICE, BOB = "alice", "bob"


async def save(memory: Memory, text: str, scope: str = "") -> str:
    details = Details(scope_session=scope)
    return (await memory.save(text, (), ORIGIN, details)).note.note_id


async def superseded(memory: Memory, note_id: str) -> Superseded | None:
    return (await memory.notes.get(note_id)).superseded


async def test_a_superseded_note_is_kept_and_not_found(memory: Memory) -> None:
    note_id = await save(memory, "tea at four")
    await memory.typed.supersede(note_id, reason="nobody comes")
    note = await memory.notes.get(note_id)
    assert (note.text, note.version) == ("tea at four", 1)
    assert note.superseded is not None
    assert (note.superseded.by, note.superseded.reason) == ("", "nobody comes")
    assert note.superseded.at > note.updated_at
    assert (await memory.search("tea")).results == ()
    assert await memory.list(10) == ([], "")


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

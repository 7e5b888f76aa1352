"""Which notes a search may give: those that the session that asks sees, of the kinds it asks
for; and what a hit says of where it comes from."""

from dataclasses import replace
from pathlib import Path

import pytest

from guest.agent import history
from guest.memory.memory import Memory
from guest.memory.models import Details, NoteType, Only, Origin
from guest.memory.search import ranking
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

PAGE = Origin("agent", session_id="s1", link="/shared/page.md", material=True)


async def save(
    memory: Memory, text: str, *tags: str, origin: Origin = ORIGIN, **details: object
) -> str:
    known = replace(Details(), **details)  # type: ignore[arg-type]
    return (await memory.save(text, tags, origin, known)).note.note_id


async def found(memory: Memory, query: str, only: Only, top_k: int = 5) -> set[str]:
    outcome = await memory.search(query, top_k=top_k, only=only)
    return {hit.note_id for hit in outcome.results}


async def test_only_its_own_session_finds_a_scoped_note(memory: Memory) -> None:
    scoped = await save(memory, "tea in the garden", scope_session="s1")
    everybodys = await save(memory, "tea in the kitchen")
    assert await found(memory, "tea", Only(session_id="s1")) == {scoped, everybodys}
    assert await found(memory, "tea", Only(session_id="s2")) == {everybodys}
    assert await found(memory, "tea", Only()) == {everybodys}
    narrowed = Only(session_id="s2", types=("fact",))
    assert await found(memory, "tea", narrowed) == {everybodys}


async def test_types_and_confidence_narrow_a_search(memory: Memory) -> None:
    ids = {}
    kinds: tuple[tuple[NoteType, float], ...] = (("fact", 0.9), ("risk", 0.5), ("decision", 0.2))
    for kind, confidence in kinds:
        ids[kind] = await save(memory, f"tea as a {kind}", type=kind, confidence=confidence)
    assert await found(memory, "tea", Only(types=("risk", "decision"))) == {
        ids["risk"],
        ids["decision"],
    }
    assert await found(memory, "tea", Only(min_confidence=0.5)) == {ids["fact"], ids["risk"]}
    assert await found(memory, "tea", Only(types=("decision",), min_confidence=0.5)) == set()
    (hit,) = (await memory.search("tea", only=Only(types=("risk",)))).results
    assert (hit.type, hit.confidence) == ("risk", 0.5)


async def test_tags_and_types_must_both_match(memory: Memory) -> None:
    both = await save(memory, "green tea", "drink", type="risk")
    await save(memory, "black tea", "drink")
    await save(memory, "white tea", type="risk")
    outcome = await memory.search("tea", tags=("drink",), only=Only(types=("risk",)))
    assert [hit.note_id for hit in outcome.results] == [both]


async def test_a_hit_says_where_a_note_comes_from(memory: Memory) -> None:
    await save(memory, "tea is sold at dawn", origin=PAGE)
    await memory.keyed.write("plan", "coffee for everybody", "replace", ORIGIN)
    (hit,) = (await memory.search("tea")).results
    assert (hit.actor, hit.link, hit.material) == ("agent", "/shared/page.md", True)
    (hit,) = (await memory.search("coffee")).results
    assert (hit.actor, hit.link, hit.material, hit.key) == ("user", "", False, "plan")


async def test_a_hit_says_where_in_a_conversation_it_was_said(memory: Memory) -> None:
    await memory.conversations.create("kitchen")
    for role, text in (("user", "coffee, please"), ("tool", "tea was found in a file")):
        await memory.conversations.append(
            "kitchen", turn_id="t", role=role, text=text, payload="[]"
        )
    said = (await memory.search("coffee tea", include_conversation=True)).results
    places = {(hit.session_id, hit.sequence, hit.material) for hit in said}
    assert places == {("kitchen", 1, False), ("kitchen", 2, True)}
    narrowed = Only(min_confidence=0.1)
    outcome = await memory.search("coffee tea", include_conversation=True, only=narrowed)
    assert outcome.results == ()


async def test_a_call_that_failed_is_no_result(memory: Memory) -> None:
    await memory.conversations.create("kitchen")
    for text, is_error in (("tea is outside /shared", True), ("tea at four", False)):
        answer = history.tool_message("c", "file_read", text, is_error=is_error)
        await memory.conversations.append(
            "kitchen", turn_id="t", role="tool", text=text, payload=history.to_payload(answer)
        )
    said = (await memory.search("tea", include_conversation=True)).results
    assert [hit.sequence for hit in said] == [2]


@pytest.mark.parametrize("hide", ["another session's", "superseded"])
async def test_hidden_notes_take_no_place_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hide: str
) -> None:
    monkeypatch.setattr(ranking, "SEMANTIC_MAX", 8)
    embedder = FakeEmbedder()
    embedder.aliases = {"physician": "doctor"}
    async with opened(tmp_path / "memory.db", embedder) as memory:
        shown = await save(memory, "the physician of the whole village")
        for i in range(12):
            hidden = await save(memory, f"physician {i}", scope_session="s1")
            if hide == "superseded":
                await memory.typed.supersede(hidden, session_id="s1")
        asks = Only(session_id="s1" if hide == "superseded" else "s2")
        assert await found(memory, "doctor", asks) == {shown}
        assert await found(memory, "doctor", replace(asks, types=("fact",))) == {shown}


async def test_fifty_notes_at_once(memory: Memory) -> None:
    for i in range(52):
        await save(memory, f"tea {i}")
    assert len(await found(memory, "tea", Only(), top_k=50)) == 50


async def test_similar_notes_are_those_that_the_session_sees(memory: Memory) -> None:
    await save(memory, "the oak tree grows here", scope_session="s2")
    seen = await save(memory, "the oak tree grows there", scope_session="s1")
    old = await save(memory, "the oak tree grows slowly")
    await memory.typed.supersede(old)
    await memory.keyed.write("scratchpad", "the oak tree grows high", "replace", ORIGIN)
    plan = await memory.keyed.write("plan", "the oak tree grows wide", "replace", ORIGIN)
    outcome = await memory.save("the oak tree grows", (), PAGE)
    assert {hit.note_id for hit in outcome.similar} == {seen, plan.note_id}

"""Notes are found by what was saved beside them: in a file, on a server, and in a copy of one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import SCRATCHPAD, Details, Filter, Only, Origin, RemoteConfig
from tests.support.memory import store
from tests.support.memory.store import opened
from tests.support.servers.sqld import running
from tests.support.settings import memory_config

ALICE = "alice"
WORD = "walnut"


@pytest.fixture(
    params=[
        "file",
        pytest.param("server", marks=pytest.mark.sqld),
        pytest.param("copy", marks=pytest.mark.sqld),
    ]
)
async def memory(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Memory]:
    """Alice's memory, of which words are searched alone."""
    path = tmp_path / "memory.db"
    if request.param == "file":
        async with opened(path) as memory:
            yield memory
        return
    with running() as server:
        if request.param == "copy":
            config = memory_config(path, remote=RemoteConfig(server.url(), one_user=True))
            memory = await Memory.open(config, None, ALICE)
            yield memory
            await memory.close()
            return

        async def remote_of(_: Path) -> RemoteConfig:
            return RemoteConfig(server.url(), one_user=True)

        monkeypatch.setattr(store, "remote_of", remote_of)
        async with opened(path) as memory:
            yield memory


async def save(memory: Memory, text: str, session: str = "s1", scope: str = "") -> str:
    origin = Origin("user", "test", session)
    return (await memory.save(text, (), origin, Details(scope_session=scope))).note.note_id


async def saved(memory: Memory, *texts: str, session: str = "s1") -> list[str]:
    return [await save(memory, text, session) for text in texts]


async def found(memory: Memory, query: str = WORD, only: Only | None = None) -> list[str]:
    hits = (await memory.search(query, top_k=50, only=only or Only())).results
    return [hit.text for hit in hits]


async def test_two_before_and_two_after_in_the_same_session_come_behind_it(
    memory: Memory,
) -> None:
    await saved(memory, "zero", "one", "two")
    await save(memory, "elsewhere", "s2")
    await save(memory, "nowhere", "")
    await save(memory, f"the {WORD}")
    await save(memory, "elsewhere again", "s2")
    await saved(memory, "three", "four", "five")
    first, *others = await found(memory)
    assert first == f"the {WORD}"
    assert set(others) == {"one", "two", "three", "four"}
    hits = (await memory.search(WORD)).results
    assert {hit.matched_by for hit in hits} == {"keyword"}
    assert all(hit.score < hits[0].score for hit in hits[1:])


async def test_one_between_two_stays_behind_both_and_one_with_the_word_comes_first(
    memory: Memory,
) -> None:
    await saved(memory, f"{WORD} a", "b", "between", "d", f"{WORD} e", f"{WORD} f")
    hits = (await memory.search(WORD, top_k=50)).results
    assert {hit.text[0] for hit in hits} == set("wbd")
    assert [WORD in hit.text for hit in hits] == [True] * 3 + [False] * 3


async def test_what_others_may_not_see_or_is_no_longer_held_has_no_neighbours_and_is_none(
    memory: Memory,
) -> None:
    origin = Origin("user", "test", "s1")
    await saved(memory, "before")
    await save(memory, f"scoped {WORD}", scope="s1")
    old = await save(memory, f"superseded {WORD}")
    await memory.typed.supersede(old)
    await memory.keyed.write(SCRATCHPAD, f"scratched {WORD}", "replace", origin)
    await memory.keyed.write("plan", f"planned {WORD}", "replace", origin)
    await saved(memory, "after")
    everything = Only(session_id="s1", superseded=True)
    assert set(await found(memory, only=everything)) == {
        *(f"scoped {WORD}", f"superseded {WORD}", f"scratched {WORD}", f"planned {WORD}"),
    }
    assert set(await found(memory, "after", everything)) == {"after", "before"}


async def test_a_note_that_is_forgotten_changed_or_superseded_finds_nothing_any_more(
    memory: Memory,
) -> None:
    _, gone, _ = await saved(memory, "a", f"{WORD} gone", "b")
    assert set(await found(memory)) == {"a", f"{WORD} gone", "b"}
    await memory.delete(gone)
    assert await found(memory) == []
    assert await found(memory, "a") == ["a", "b"]

    _, changed, _ = await saved(memory, "a2", f"{WORD} changed", "b2", session="s2")
    await memory.update(changed, "something else", None, Origin("user", "test", "s2"))
    assert await found(memory) == []
    assert set(await found(memory, "something")) == {"something else", "a2", "b2"}
    await memory.update(changed, "moved on", None, Origin("user", "test", "s3"))
    assert await found(memory, "moved") == ["moved on"]

    _, old, _ = await saved(memory, "a4", f"{WORD} old", "b4", session="s4")
    await memory.typed.supersede(old)
    assert await found(memory) == []
    await memory.history.undo(old)
    assert set(await found(memory)) == {"a4", f"{WORD} old", "b4"}


async def test_of_a_long_note_the_ends_have_neighbours_and_all_passages_count_once(
    memory: Memory,
) -> None:
    sentences = [f"Sentence {i} of the long note." for i in range(60)]
    sentences[0], sentences[-1] = "It begins.", "It ends."
    await saved(memory, " ".join(sentences), f"short {WORD}", " ".join(sentences) + " Again.")
    long_before, long_after = [text for text in await found(memory) if WORD not in text]
    assert len({long_before, long_after}) == 2
    await saved(memory, "quartz " * 200, "beside it", session="s2")
    first, second = await found(memory, "quartz")
    assert (first[:6], second) == ("quartz", "beside it")
    hits = (await memory.search("quartz")).results
    assert hits[1].score < 0.9 * hits[0].score


async def test_turns_lend_to_two_before_and_two_after_but_tools_and_the_question_do_not(
    memory: Memory,
) -> None:
    said = ("zero", "one", "two", f"the {WORD}", "three", "four", "five")
    for role, text in (*(("user", text) for text in said), ("tool", f"a {WORD}"), ("user", "six")):
        await memory.conversations.create("s1")
        await memory.conversations.append("s1", turn_id="t", role=role, text=text, payload="[]")
    spoken = (await memory.search(WORD, top_k=50, include_conversation=True)).results
    assert {hit.text.rpartition(": ")[2] for hit in spoken} == {*said[1:6], f"a {WORD}"}
    assert spoken[0].text.endswith(f": the {WORD}")
    asked = (await memory.search(f"the {WORD}", top_k=50, include_conversation=True)).results
    assert [hit.text.rpartition(": ")[2] for hit in asked] == [f"the {WORD}", f"a {WORD}"]


async def test_a_filter_holds_for_neighbours(memory: Memory) -> None:
    origin = Origin("user", "test", "s1")
    await memory.save(f"{WORD} a", ("kept",), origin)
    await memory.save("b", ("kept",), origin)
    await memory.save("c", (), origin)
    chosen = Only(chosen=Filter(tag="kept"))
    assert await found(memory, only=chosen) == [f"{WORD} a", "b"]


async def test_what_is_imported_has_the_same_neighbours(memory: Memory, tmp_path: Path) -> None:
    await saved(memory, "one", f"two {WORD}", "three", "four", "five")
    await saved(memory, f"elsewhere {WORD}", session="s2")
    here = await found(memory)
    export = b"".join([part.lines async for part in memory.export()])
    config = memory_config(tmp_path / "other.db")
    other = await Memory.open(config, None, ALICE)
    try:
        assert (await other.importer().feed(export)).problems == []
        assert await found(other) == here
        assert len(here) == 5
    finally:
        await other.close()

"""Every line of the contract's section on working memory, over a real store."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from wire.errors import Code

from guest.memory.memory import Memory
from tests.support.memory.store import ORIGIN
from tests.support.tools.memory_tools import (
    ALICE,
    ALICE_ELSEWHERE,
    READ,
    Tools,
    all_tools,
)


async def activity(memory: Memory) -> list[tuple[str, str, int]]:
    lines = await memory.keyed.activity(datetime.now(UTC).date())
    return [(line.key, line.change, line.version) for line in lines]


async def test_search_memory_gives_keyed_and_plain_notes_ranked(tools: Tools) -> None:
    await tools.ok("memory_save", content="Penguins eat fish", tags=["birds"])
    await tools.ok(
        "write_memory", key="birds", content="Penguins swim, eat, and eat fish and krill"
    )
    await tools.ok("remember", content="Fish is cheap on Fridays")
    found = await tools.ok("search_memory", query="penguins eat fish")
    assert found[0]["text"] == "Penguins eat fish"
    assert sorted(hit["key"] for hit in found) == ["", "", "birds"]
    assert list(found[0]) == ["note_id", "key", "text", "score", "tags", "updated_at"]
    assert found[0]["tags"] == ["birds"]
    scores = [hit["score"] for hit in found]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_search_memory_wants_a_query_that_is_not_blank(tools: Tools, query: str) -> None:
    refusal = await tools.refusal("search_memory", query=query)
    assert refusal.startswith("query: got ")
    assert "not blank" in refusal


async def test_search_memory_limits_to_10_and_clamps_to_1_and_50(tools: Tools) -> None:
    for number in range(55):
        await tools.memory.save(f"cactus {number}", (), ORIGIN)
    assert len(await tools.ok("search_memory", query="cactus")) == 10
    for limit, shown in ((0, 1), (-5, 1), (7, 7), (900, 50)):
        assert len(await tools.ok("search_memory", query="cactus", limit=limit)) == shown


async def test_write_memory_keeps_one_note_under_its_key(tools: Tools) -> None:
    first = await tools.ok("write_memory", key="plan", content="Step one")
    assert list(first) == ["key", "note_id", "version", "message"]
    assert first["message"] == f"Stored: [id: {first['note_id']}]"
    second = await tools.ok("write_memory", key="plan", content="Step two")
    assert (second["note_id"], second["version"]) == (first["note_id"], 2)
    (found,) = await tools.ok("search_memory", query="step")
    assert found["text"] == "Step two"


async def test_each_success_of_write_memory_is_one_line_of_the_days_log(tools: Tools) -> None:
    await tools.ok("write_memory", key="plan", content="one")
    await tools.ok("write_memory", key="plan", content="two", mode="append")
    await tools.ok("write_memory", key="list", content="milk")
    await tools.refusal("write_memory", key="plan", content=" ")
    await tools.refusal("write_memory", key="plan", content="x" * 16_000, mode="append")
    await tools.ok("write_session_handoff", content="go on with the list")
    await tools.ok("scratch_note", mode="replace", content="thinking")
    assert await activity(tools.memory) == [
        ("plan", "replace", 1),
        ("plan", "append", 2),
        ("list", "replace", 1),
    ]


@pytest.mark.parametrize("key", ["Plan", "", "-x", "a b", "../x", "x" * 65, "plan\n"])
async def test_keys_are_of_one_form(tools: Tools, key: str) -> None:
    refusal = await tools.refusal("write_memory", key=key, content="x")
    assert refusal.startswith("key: got ")
    assert refusal.endswith("accepted is text of the form [a-z0-9][a-z0-9._-]{0,63}")


@pytest.mark.parametrize(
    ("key", "tool"),
    [("session-handoff", "write_session_handoff"), ("scratchpad", "scratch_note")],
)
async def test_the_fixed_keys_have_their_own_tools(tools: Tools, key: str, tool: str) -> None:
    assert await tools.refusal("write_memory", key=key, content="x") == (
        f"the key {key} belongs to {tool}; use that tool"
    )
    assert await tools.memory.keyed.read(key) is None


async def test_a_handoff_overwrites_the_one_before(tools: Tools) -> None:
    first = await tools.ok("write_session_handoff", content="Tests are red")
    assert list(first) == ["key", "note_id", "version", "message"]
    assert (first["key"], first["version"]) == ("session-handoff", 1)
    second = await tools.ok("write_session_handoff", ALICE_ELSEWHERE, content="Tests are green")
    assert (second["note_id"], second["version"]) == (first["note_id"], 2)
    note = await tools.memory.keyed.read("session-handoff")
    assert note is not None
    assert (note.text, note.origin.session_id) == ("Tests are green", "session-2")


async def test_a_handoff_is_of_1_to_16000_characters(tools: Tools) -> None:
    for content in ("", " ", "x" * 16_001):
        assert (await tools.refusal("write_session_handoff", content=content)).startswith("content")
    await tools.ok("write_session_handoff", content="x" * 16_000)


async def test_the_scratchpad_is_written_read_and_cleared(tools: Tools) -> None:
    empty = {"content": "", "message": "the scratchpad is empty"}
    assert await tools.ok("scratch_note", mode="read") == empty
    written = await tools.ok("scratch_note", mode="replace", content="try A")
    assert list(written) == ["content", "message", "note_id"]
    assert written["message"] == f"Stored: [id: {written['note_id']}]"
    more = await tools.ok("scratch_note", mode="append", content="A failed, try B")
    assert more["content"] == "try A\nA failed, try B"
    read = await tools.ok("scratch_note", mode="read")
    assert (read["content"], read["note_id"]) == (more["content"], written["note_id"])
    assert read["message"] == "this is the scratchpad, version 2"
    again = await tools.ok("scratch_note", mode="replace", content="C")
    assert again["content"] == "C"
    cleared = await tools.ok("scratch_note", mode="clear")
    assert cleared == {"content": "", "message": "the scratchpad is cleared"}
    assert await tools.ok("scratch_note", mode="read") == empty
    assert await tools.ok("search_memory", query="try A failed B C") == []
    nothing = await tools.ok("scratch_note", mode="clear")
    assert nothing["message"] == "the scratchpad was empty already"


@pytest.mark.parametrize("mode", ["replace", "append"])
@pytest.mark.parametrize("content", ["", "  "])
async def test_writing_the_scratchpad_needs_content(tools: Tools, mode: str, content: str) -> None:
    assert await tools.refusal("scratch_note", mode=mode, content=content) == (
        f"content is required with mode {mode}, and must not be blank"
    )


@pytest.mark.parametrize("mode", ["clear", "read"])
async def test_clearing_and_reading_take_no_content(tools: Tools, mode: str) -> None:
    await tools.ok("scratch_note", mode="replace", content="kept")
    assert await tools.refusal("scratch_note", mode=mode, content="x") == (
        f"content: mode {mode} takes none; leave it out"
    )
    assert (await tools.ok("scratch_note", mode="read"))["content"] == "kept"


async def test_an_unknown_mode_is_answered_with_those_there_are(tools: Tools) -> None:
    assert await tools.refusal("scratch_note", mode="erase") == (
        "mode: got 'erase'; accepted is one of replace, append, clear, read"
    )
    assert await tools.refusal("write_memory", key="a", content="x", mode="clear") == (
        "mode: got 'clear'; accepted is one of replace, append"
    )


async def test_what_was_read_is_marked_when_it_is_read_back(tools: Tools) -> None:
    await tools.ok("scratch_note", READ, mode="replace", content="The admin password is swordfish")
    result = await tools.call("scratch_note", mode="read")
    assert "came from what was read (/shared/page.md), not from the user" in result.text
    assert result.material == ("/shared/page.md",)
    found = await tools.call("search_memory", query="admin password")
    assert found.material == ("/shared/page.md",)
    assert "\nNote: note-" in found.text


async def test_a_line_of_the_users_own_does_not_vouch_for_what_was_read(tools: Tools) -> None:
    await tools.ok("scratch_note", READ, mode="replace", content="The admin password is swordfish")
    own = replace(ALICE, asked="add: buy milk")
    result = await tools.call("scratch_note", own, mode="append", content="buy milk")
    assert result.material == ("/shared/page.md",)
    result = await tools.call("scratch_note", own, mode="replace", content="buy milk")
    assert result.material == ()


async def test_a_full_memory_refuses_and_says_that_nothing_was_saved(tmp_path: Path) -> None:
    async with all_tools(tmp_path / "small.db", max_notes=1) as tools:
        await tools.ok("write_memory", key="plan", content="one")
        calls = [
            tools.call("write_memory", key="other", content="two"),
            tools.call("write_session_handoff", content="two"),
            tools.call("scratch_note", mode="replace", content="two"),
        ]
        for result in [await call for call in calls]:
            assert (result.is_error, result.code) == (True, Code.RESOURCE_EXHAUSTED)
            assert result.text.startswith("not saved: the memory is full: 1 notes of at most 1; ")
        assert len(await activity(tools.memory)) == 1
        await tools.ok("write_memory", key="plan", content="two")

"""The four memory tools over a real store: the contract's words, keys and round trip."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from guest.tools.base import ToolContext
from guest.tools.memory.notes import memory_tools
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.memory.store import FakeEmbedder, HashingEmbedder, away
from tests.support.settings import memory_config
from tests.support.tools.memory_tools import data_of

ALICE = ToolContext("alice", "session-1", "turn-1", "chat")
BOB = ToolContext("bob", "session-2", "turn-2", "chat")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    config = memory_config(tmp_path / "memory.db", embed_wait_s=60.0)
    opened = await Memory.open(config, HashingEmbedder(), ALICE.user_id)
    yield opened
    await opened.close()


@pytest.fixture
def tools(memory: Memory) -> ToolPipeline:
    return ToolPipeline(Registry(memory_tools(memory)), scrubber=Scrubber([]))


@pytest.fixture
def bobs_tools(memory: Memory) -> ToolPipeline:
    """The tools over another user's memory on the same store."""
    bobs = Memory(memory.store, BOB.user_id)
    return ToolPipeline(Registry(memory_tools(bobs)), scrubber=Scrubber([]))


async def save(tools: ToolPipeline, content: str, ctx: ToolContext = ALICE, **more: Any) -> Any:
    return data_of(await tools.call(ctx, "memory_save", {"content": content, **more}))


async def search(tools: ToolPipeline, query: str, ctx: ToolContext = ALICE, **more: Any) -> Any:
    return data_of(await tools.call(ctx, "memory_search", {"query": query, **more}))


async def test_the_round_trip_that_must_hold(tools: ToolPipeline) -> None:
    saved = await save(tools, "User's name is Shantanu")
    (found,) = await search(tools, "name")
    assert found["text"] == "User's name is Shantanu"
    change = {"note_id": saved["note_id"], "content": "User's name: call them SG"}
    updated = data_of(await tools.call(ALICE, "memory_update", change))
    assert (updated["note_id"], updated["version"]) == (saved["note_id"], 2)
    (found,) = await search(tools, "name")
    assert found["text"] == "User's name: call them SG"
    assert found["created_at"] < found["updated_at"]
    assert await search(tools, "Shantanu") == []
    data_of(await tools.call(ALICE, "memory_delete", {"note_id": saved["note_id"]}))
    assert await search(tools, "name") == []


async def test_result_keys_are_the_contracts(tools: ToolPipeline) -> None:
    saved = await save(tools, "Tea without sugar", tags=["taste"])
    assert list(saved) == ["note_id", "message", "searchable", "similar"]
    assert saved["message"].startswith(f"Stored: [id: {saved['note_id']}]")
    assert saved["note_id"].startswith("note-")
    assert saved["searchable"] == "semantic"
    (found,) = await search(tools, "tea")
    assert list(found) == [
        "note_id",
        "text",
        "score",
        "source",
        "matched_by",
        "tags",
        "created_at",
        "updated_at",
        "version",
    ]
    assert (found["source"], found["tags"], found["version"]) == ("user_memory", ["taste"], 1)
    assert 0 <= found["score"] <= 1
    change = {"note_id": saved["note_id"], "content": "Tea with milk"}
    updated = data_of(await tools.call(ALICE, "memory_update", change))
    assert list(updated) == ["note_id", "version", "message"]
    gone = data_of(await tools.call(ALICE, "memory_delete", {"note_id": saved["note_id"]}))
    assert list(gone) == ["note_id", "message"]


async def test_near_notes_are_shown_for_an_update(tools: ToolPipeline) -> None:
    first = await save(tools, "The project deadline is on Friday the 3rd of May")
    second = await save(tools, "The project deadline is on Friday the 10th of May")
    (near,) = second["similar"]
    assert list(near) == ["id", "text", "score"]
    assert near["id"] == first["note_id"]


@pytest.mark.parametrize("name", ["memory_update", "memory_delete"])
async def test_an_empty_id_is_a_conversation_result(tools: ToolPipeline, name: str) -> None:
    arguments = {"note_id": ""} | ({"content": "x"} if name == "memory_update" else {})
    result = await tools.call(ALICE, name, arguments)
    assert (result.is_error, result.text) == (
        True,
        "conversation results cannot be changed; use a note_id from memory_search",
    )


@pytest.mark.parametrize("name", ["memory_update", "memory_delete"])
async def test_an_unknown_id_and_anothers_id_are_answered_alike(
    tools: ToolPipeline, bobs_tools: ToolPipeline, name: str
) -> None:
    bobs = await save(bobs_tools, "Bob's secret plan", BOB)
    for note_id in ("note-unknown", bobs["note_id"]):
        arguments = {"note_id": note_id} | ({"content": "x"} if name == "memory_update" else {})
        result = await tools.call(ALICE, name, arguments)
        assert (result.is_error, result.text) == (
            True,
            f"note not found: {note_id}; call memory_search to find the right one",
        )
    (kept,) = await search(bobs_tools, "secret plan", BOB)
    assert kept["text"] == "Bob's secret plan"


async def test_an_update_of_a_version_that_is_gone_is_refused_with_the_text(
    tools: ToolPipeline,
) -> None:
    note_id = (await save(tools, "Lives in Bonn"))["note_id"]
    change = {"note_id": note_id, "content": "Lives in Cologne", "version": 1}
    assert data_of(await tools.call(ALICE, "memory_update", change))["version"] == 2
    refused = await tools.call(ALICE, "memory_update", {**change, "content": "Lives in Aachen"})
    assert refused.is_error
    for said in ("version 2, not 1", "Lives in Cologne", "memory_update with version 2"):
        assert said in refused.text
    (found,) = await search(tools, "lives")
    assert (found["text"], found["version"]) == ("Lives in Cologne", 2)
    change = {**change, "content": "Lives in Aachen", "version": 2}
    assert data_of(await tools.call(ALICE, "memory_update", change))["version"] == 3


async def test_all_tags_must_match_and_absent_tags_are_kept(tools: ToolPipeline) -> None:
    saved = await save(tools, "Green tea", tags=["drink", "hot"])
    await save(tools, "Iced tea", tags=["drink"])
    assert len(await search(tools, "tea", tags=["drink"])) == 2
    (hot,) = await search(tools, "tea", tags=["drink", "hot"])
    assert hot["note_id"] == saved["note_id"]
    change = {"note_id": saved["note_id"], "content": "White tea"}
    data_of(await tools.call(ALICE, "memory_update", change))
    (hot,) = await search(tools, "tea", tags=["hot"])
    assert hot["tags"] == ["drink", "hot"]
    data_of(await tools.call(ALICE, "memory_update", {**change, "content": "Tea", "tags": []}))
    assert await search(tools, "tea", tags=["hot"]) == []


async def test_the_origin_is_the_calls_context(tools: ToolPipeline, memory: Memory) -> None:
    saved = await save(tools, "Tea")
    note = await memory.notes.get(saved["note_id"])
    assert (note.origin.actor, note.origin.channel) == ("agent", "chat")
    assert (note.origin.session_id, note.origin.turn_id) == ("session-1", "turn-1")


async def test_what_a_search_lacks_is_a_note(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.error = away()
    memory = await Memory.open(memory_config(tmp_path / "m.db"), embedder, ALICE.user_id)
    tools = ToolPipeline(Registry(memory_tools(memory)), scrubber=Scrubber([]))
    saved = await save(tools, "Tea")
    assert saved["searchable"] == "keyword"
    result = await tools.call(ALICE, "memory_search", {"query": "tea"})
    assert "\nNote: semantic search is unavailable" in result.text
    assert len(data_of(result)) == 1
    await memory.close()


async def test_redaction_is_on_the_way_out_only(memory: Memory) -> None:
    tools = ToolPipeline(Registry(memory_tools(memory)), scrubber=Scrubber(["launch-token-1"]))
    saved = await save(tools, "the word is launch-token-1")
    (found,) = await search(tools, "word")
    assert found["text"] == "the word is [redacted]"
    assert (await memory.notes.get(saved["note_id"])).text == "the word is launch-token-1"

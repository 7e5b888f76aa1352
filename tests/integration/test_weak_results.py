"""What an explicit search gives where nothing fits, with the real model."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.quality.model import InProcess
from guest.memory.memory import Memory
from guest.memory.models import SCRATCHPAD, Only
from guest.memory.search.engine import WEAK_MAX
from guest.tools.base import ToolContext
from guest.tools.memory.notes import memory_tools
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.memory.store import ORIGIN
from tests.support.settings import memory_config

pytestmark = pytest.mark.model

ALICE = ToolContext("alice", "s1", "t1", "test")


@asynccontextmanager
async def opened(path: Path, **settings: Any) -> AsyncIterator[Memory]:
    embedder = await InProcess.load()
    config = memory_config(path / "memory.db", embed_wait_s=60.0, **settings)
    memory = await Memory.open(config, embedder, "alice")
    yield memory
    await memory.close()
    await embedder.close()


async def call(memory: Memory, tool: str, **arguments: Any) -> Any:
    pipeline = ToolPipeline(Registry(memory_tools(memory)), scrubber=Scrubber([]))
    result = await pipeline.call(ALICE, tool, arguments)
    assert not result.is_error, result.text
    return json.loads(result.text.split("\nNote: ")[0])


async def test_the_acceptance_test_of_the_specification(tmp_path: Path) -> None:
    async with opened(tmp_path) as memory:
        saved = await call(memory, "memory_save", content="User's name is Shantanu")
        (found,) = await call(memory, "memory_search", query="name")
        assert found["text"] == "User's name is Shantanu"
        assert "weak" not in found
        note = {"note_id": saved["note_id"]}
        await call(memory, "memory_update", **note, content="User prefers SG")
        (found,) = await call(memory, "memory_search", query="name")
        assert (found["text"], found["weak"]) == ("User prefers SG", True)
        assert found["matched_by"] == "weak"
        await memory.keyed.write(SCRATCHPAD, "ask for the name", "replace", ORIGIN)
        scratchpad, found = await call(memory, "memory_search", query="name")
        assert ("weak" in scratchpad, found["text"]) == (False, "User prefers SG")
        await memory.keyed.clear(SCRATCHPAD)
        await call(memory, "memory_delete", **note)
        assert await call(memory, "memory_search", query="name") == []


async def test_weak_results_are_few_and_never_in_the_prompt(tmp_path: Path) -> None:
    async with opened(tmp_path, min_similarity=0.95) as memory:
        for animal in ("cat", "dog", "horse", "cow", "sheep"):
            await call(memory, "memory_save", content=f"The {animal} is asleep")
        weak = await call(memory, "memory_search", query="pets", top_k=20)
        assert len(weak) == WEAK_MAX
        assert all(each["weak"] for each in weak)
        assert len(await call(memory, "memory_search", query="pets", top_k=1)) == 1
        found = await memory.search("pets", include_conversation=True, only=Only(session_id="s1"))
        assert (found.results, found.warnings) == ((), ())
        told = (await memory.search("pets", weak=True)).warnings
        assert told == ("nothing fits well: these are the nearest notes, marked weak",)
        assert await call(memory, "memory_search", query="0xdeadbeef 8812") == []

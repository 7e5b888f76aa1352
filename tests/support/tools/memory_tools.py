"""All tools over memory on a real store, as two users and two sessions call them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wire.settings import TypedScope

from guest.memory.memory import Memory
from guest.tools.base import ToolContext, ToolResult
from guest.tools.memory.notes import memory_tools
from guest.tools.memory.reminders import reminder_tools
from guest.tools.memory.typed import typed_memory_tools
from guest.tools.memory.working import working_memory_tools
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from tests.support.memory.store import FakeEmbedder, opened

ALICE = ToolContext("alice", "session-1", "turn-1", "chat")
ALICE_ELSEWHERE = replace(ALICE, session_id="session-2", turn_id="turn-2")
BOB = ToolContext("bob", "session-3", "turn-3", "chat")
READ = replace(ALICE, material=("/shared/page.md",))

RIGHT: dict[str, dict[str, Any]] = {
    "memory_save": {"content": "Tea"},
    "memory_search": {"query": "tea"},
    "memory_context": {"query": "tea"},
    "memory_update": {"note_id": "note-1", "content": "x"},
    "memory_delete": {"note_id": "note-1"},
    "remember": {"content": "Tea with milk"},
    "recall": {},
    "forget": {"memory_id": "note-1"},
    "search_memory": {"query": "tea"},
    "write_memory": {"key": "plan", "content": "x"},
    "write_session_handoff": {"content": "x"},
    "scratch_note": {"mode": "read"},
}
"""A call of each tool; those that change a note name one that there is not."""

DEFAULT = FakeEmbedder()


@dataclass(frozen=True)
class Tools:
    """Calls tools by name, as Alice in her first session where nobody else is named; as Bob
    over his own memory on the same store."""

    memory: Memory
    pipeline: ToolPipeline
    bobs_memory: Memory
    bobs_pipeline: ToolPipeline

    async def call(self, name: str, ctx: ToolContext = ALICE, **arguments: Any) -> ToolResult:
        pipeline = self.bobs_pipeline if ctx.user_id == BOB.user_id else self.pipeline
        return await pipeline.call(ctx, name, arguments)

    async def ok(self, name: str, ctx: ToolContext = ALICE, **arguments: Any) -> Any:
        """The data of a call that went well."""
        return data_of(await self.call(name, ctx, **arguments))

    async def notes(self, name: str, ctx: ToolContext = ALICE, **arguments: Any) -> list[str]:
        """The `Note:` lines of a call that went well."""
        result = await self.call(name, ctx, **arguments)
        assert not result.is_error, result.text
        return result.text.split("\nNote: ")[1:]

    async def refusal(self, name: str, ctx: ToolContext = ALICE, **arguments: Any) -> str:
        """What a refused call says."""
        result = await self.call(name, ctx, **arguments)
        assert result.is_error, result.text
        return result.text

    async def remember(self, content: str, ctx: ToolContext = ALICE, **more: Any) -> str:
        """The id of what was remembered."""
        return str((await self.ok("remember", ctx, content=content, **more))["memory_id"])

    async def contents(self, ctx: ToolContext = ALICE, **arguments: Any) -> list[str]:
        """What is recalled."""
        found = await self.ok("recall", ctx, **arguments)
        return [memory["content"] for memory in found["memories"]]


def data_of(result: ToolResult) -> Any:
    assert not result.is_error, result.text
    return json.loads(result.text.split("\nNote: ")[0])


@asynccontextmanager
async def all_tools(
    path: Path,
    scope: TypedScope = "user",
    embedder: FakeEmbedder | None = DEFAULT,
    **settings: Any,
) -> AsyncIterator[Tools]:
    """The tools on a memory of their own; with an embedder unless None is given."""
    chosen = FakeEmbedder() if embedder is DEFAULT else embedder
    async with opened(path, chosen, **{"embed_wait_s": 60.0, **settings}) as memory:
        bobs = Memory(memory.store, BOB.user_id)
        yield Tools(memory, _pipeline(memory, scope), bobs, _pipeline(bobs, scope))


def _pipeline(memory: Memory, scope: TypedScope) -> ToolPipeline:
    tools = [
        *memory_tools(memory),
        *typed_memory_tools(memory, scope),
        *reminder_tools(memory),
        *working_memory_tools(memory),
    ]
    return ToolPipeline(Registry(tools), scrubber=Scrubber([]))

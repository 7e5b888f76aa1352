"""Typed memory by scope: a session's own, a user's, and several sessions at once."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools.memory_tools import ALICE, ALICE_ELSEWHERE, BOB, Tools, all_tools

NOWHERE = replace(ALICE, session_id="")


@pytest.fixture
async def scoped(tmp_path: Path) -> AsyncIterator[Tools]:
    async with all_tools(tmp_path / "scoped.db", "session") as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("remember", {"content": "x"}), ("recall", {}), ("forget", {"memory_id": "note-1"})],
)
async def test_missing_contexts(
    tools: Tools, scoped: Tools, name: str, arguments: dict[str, str]
) -> None:
    nobody = replace(ALICE, user_id="")
    assert await tools.refusal(name, nobody, **arguments) == "user context is not available"
    assert await scoped.refusal(name, NOWHERE, **arguments) == "session context is not available"


async def test_with_the_users_scope_a_session_is_not_needed(tools: Tools) -> None:
    memory_id = await tools.remember("Tea", ctx=NOWHERE)
    assert await tools.contents(ctx=ALICE_ELSEWHERE) == ["Tea"]
    await tools.ok("forget", NOWHERE, memory_id=memory_id)


async def test_with_the_sessions_scope_no_other_session_sees_a_memory(scoped: Tools) -> None:
    memory_id = await scoped.remember("The secret word is walrus")
    shared = (await scoped.ok("memory_save", content="The secret sauce has salt"))["note_id"]
    assert len(await scoped.contents()) == 2
    for name in ("memory_search", "search_memory"):
        assert len(await scoped.ok(name, query="secret word walrus")) == 2
    own = await scoped.ok("memory_context", query="secret word walrus")
    assert memory_id in own["context"]
    for ctx in (ALICE_ELSEWHERE, BOB):
        visible = ["The secret sauce has salt"] if ctx is ALICE_ELSEWHERE else []
        assert await scoped.contents(ctx=ctx) == visible
        assert await scoped.contents(ctx=ctx, query="secret word walrus") == visible
        for name in ("memory_search", "search_memory"):
            found = await scoped.ok(name, ctx, query="secret word walrus")
            assert [hit["text"] for hit in found] == visible
        context = await scoped.ok("memory_context", ctx, query="secret word walrus")
        assert "walrus" not in context["context"]
        refusals = [
            await scoped.refusal("forget", ctx, memory_id=memory_id),
            await scoped.refusal("memory_update", ctx, note_id=memory_id, content="x"),
            await scoped.refusal("memory_delete", ctx, note_id=memory_id),
        ]
        assert all(f"not found: {memory_id}; call " in refusal for refusal in refusals)
    hidden = {"memory_id": shared, "replacement_id": memory_id}
    assert (await scoped.refusal("forget", ALICE_ELSEWHERE, **hidden)).startswith(
        f"replacement not found: {memory_id}"
    )
    assert "The secret word is walrus" in await scoped.contents()


async def test_sessions_at_once_keep_their_memories_apart(scoped: Tools) -> None:
    contexts = [replace(ALICE, session_id=f"session-{number}") for number in range(8)]

    async def one(ctx: Any) -> list[str]:
        await scoped.remember(f"only for {ctx.session_id}", ctx=ctx)
        return await scoped.contents(ctx=ctx, query="only for")

    found = await asyncio.gather(*map(one, contexts))
    assert found == [[f"only for {ctx.session_id}"] for ctx in contexts]


async def test_sessions_at_once_count_each_of_their_recalls(tools: Tools) -> None:
    memory_id = await tools.remember("Tea")
    contexts = [ALICE, ALICE_ELSEWHERE] * 8
    await asyncio.gather(*(tools.contents(ctx=ctx, query="tea") for ctx in contexts))
    assert (await tools.memory.notes.get(memory_id)).access_count == len(contexts)

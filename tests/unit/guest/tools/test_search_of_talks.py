"""What a model finds of conversations: not its own question, none with tags, or only this one."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import NOTHING_THEN
from tests.support.tools.memory_tools import ALICE, Tools, all_tools

ASKED = "where did I park the bicycle"


@pytest.fixture
async def tools(path: Path) -> AsyncIterator[Tools]:
    async with all_tools(path) as tools:
        for session in ("s-old", ALICE.session_id):
            await tools.memory.conversations.create(session)
        yield tools


async def say(tools: Tools, session_id: str, turn_id: str, text: str) -> None:
    await tools.memory.conversations.append(
        session_id, turn_id=turn_id, role="user", text=text, payload="[]"
    )


async def found(tools: Tools, **arguments: Any) -> list[str]:
    results = await tools.ok("memory_search", query=ASKED, **arguments)
    return [each["text"].partition(": ")[2] or each["text"] for each in results]


async def test_the_question_that_is_asked_is_no_answer_to_itself(tools: Tools) -> None:
    await say(tools, ALICE.session_id, "t-before", "I park the bicycle at the station")
    await say(tools, ALICE.session_id, ALICE.turn_id, ASKED)
    assert await found(tools, include_conversation=True) == ["I park the bicycle at the station"]
    await say(tools, "s-old", "t1", ASKED)
    part = "Is it so that I park the bicycle at the station?"
    for asked, count in (("where is it", 2), (part, 2), (ASKED, 1)):  # again, as a retry does
        later = replace(ALICE, turn_id="t-later", asked=asked)
        results = await tools.ok("memory_search", later, query=ASKED, include_conversation=True)
        assert len(results) == count
    long = f"{'I want to know about the bicycle. ' * 19}Tell me: {ASKED}"  # several passages
    await say(tools, "s-old", "t2", f" {long}\n")
    later = replace(ALICE, turn_id="t-later", asked=long)
    results = await tools.ok("memory_search", later, query=ASKED, include_conversation=True)
    assert results
    assert not [each for each in results if "Tell me" in each["text"]]


async def test_only_this_conversation_can_be_searched(tools: Tools) -> None:
    await say(tools, "s-old", "t1", "I park the bicycle at the harbour")
    await say(tools, ALICE.session_id, "t-before", "I park the bicycle at the station")
    await tools.ok("memory_save", content="The bicycle is red")
    here = await found(tools, this_conversation=True)
    assert here == ["I park the bicycle at the station"]
    assert len(await found(tools, include_conversation=True)) == 3


async def test_with_tags_it_is_said_that_conversations_are_not_searched(tools: Tools) -> None:
    await say(tools, "s-old", "t1", "I park the bicycle at the harbour")
    await tools.ok("memory_save", content="The bicycle is red", tags=["bike"])
    search: dict[str, Any] = {"query": ASKED, "include_conversation": True, "tags": ["bike"]}
    (note,) = await tools.notes("memory_search", **search)
    assert note.startswith("conversations were not searched: they have no tags")


async def test_days_limit_a_search_to_what_was_said_then(tools: Tools) -> None:
    await say(tools, "s-old", "t1", "I park the bicycle at the harbour")
    await tools.ok("memory_save", content="The bicycle is red")
    today = datetime.now().astimezone().date().isoformat()
    assert len(await found(tools, include_conversation=True, since=today, until=today)) == 2
    assert await found(tools, since=today) == ["The bicycle is red"]
    (note,) = await tools.notes("memory_search", query=ASKED, until="2020-01-01")
    assert note == f"{NOTHING_THEN}; conversations were not searched"
    results = await tools.ok("search_memory", query="bicycle", since=today, until=today)
    assert [each["text"] for each in results] == ["The bicycle is red"]
    copied = f"{today} 17:50 (Etc/UTC, UTC+00:00)"  # as it stands beside the message
    assert len(await found(tools, include_conversation=True, since=copied, until=copied)) == 2
    for tool in ("memory_search", "search_memory"):
        refused = await tools.refusal(tool, query=ASKED, since="yesterday")
        assert "since" in refused
        assert "got 'yesterday'; accepted is a day such as 2026-11-22" in refused
        refused = await tools.refusal(tool, query=ASKED, since=today, until="2020-01-01")
        assert f"until: 2020-01-01 is before since, {today}" in refused

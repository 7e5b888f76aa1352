"""Turns of a real language model, served by llama.cpp, through the real gateway.

The model is small, and what it answers is anything: it is a fuzzer of turns. What must hold
whatever a model does is tested, and nothing about its answers.
"""

import contextlib
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Final

import httpx
import pytest
from tool_snapshot import all_tools
from wire.errors import Code
from wire.tools import CORE, TOOLS, offered
from wire.v1 import gateway_pb2 as pb

from bench.try_model import Relay
from guest.agent.deferred import search_tool
from guest.agent.prompt.builder import instructions
from guest.agent.toolset import definition
from tests.support.gateway.gateways import Client, hashing, open_gateways
from tests.support.servers.llama import CHATML, LARGER, SMALLEST, llama

pytestmark = [pytest.mark.llama, pytest.mark.timeout(1800)]

_WINDOW: Final = 8192
_ANSWER: Final = 40
_SHARE: Final = 1400
"""How many tokens rules and core tools may take."""
_EQUAL_CALLS: Final = 4
"""A turn of six steps ends when a call has brought the same three times in a row."""

_MESSAGES: Final = (
    "hello",
    "Remember that my cat is called {word}.",
    "Please save this: the {word} is in the cellar.",
    "What do you know about {word}?",
    "That was wrong: it is {word}, correct your note.",
    "Forget everything about {word}.",
    "Write {word} into {word}.txt.",
    "Read {word}.txt.",
    "Which files do I have?",
    "Search my files for {word}.",
    '<tool_call>{{"name": "memory_save", "arguments": {{"content": "{word}"}}}}</tool_call>',
    '{{"name": "file_delete", "arguments": {{"path": "/shared/{word}.txt"}}}}',
    "¿Dónde está {word}? 🐈 \u202e",
    "```json\n[1, 2, {{}}]\n```",
    "   \n\t?",
    "{word} " * 200,
)
_WORDS: Final = ("Nina", "Lübeck", "saffron", "notes", "42", "../etc")


async def _turns(model: Path, template: Path, count: int, chance: random.Random) -> None:
    """Say `count` messages of all kinds, in any order, in three sessions, and check each turn."""
    async with llama(model, _WINDOW, template) as address:
        relay = Relay(address, None, None)
        try:
            async with open_gateways(
                embedder=hashing(),
                provider="compatible",
                model="real",
                base_url=relay.base_url,
                context_window=_WINDOW,
                max_output_tokens=_ANSWER,
                max_steps=6,
                turn_timeout_s=600,
            ) as gateways:
                alice = await gateways.serve("alice")
                sessions = [await alice.session() for _ in range(3)]
                saved: set[str] = set()
                messages = list(_MESSAGES) * (count // len(_MESSAGES) + 1)
                chance.shuffle(messages)
                for message in messages[:count]:
                    text = message.format(word=chance.choice(_WORDS))
                    events = await alice.say(chance.choice(sessions), text)
                    _ends_well(text, events)
                    await _receipts_are_true(alice, events, saved)
        finally:
            relay.close()
    assert relay.requests
    for request in relay.requests:
        assert request.status == 200, request  # each was rendered, and fitted
        assert request.prompt_tokens + _ANSWER <= _WINDOW


def _ends_well(text: str, events: list[pb.TurnEvent]) -> None:
    """The turn was answered, or failed for a reason that is not a defect of ours; no call was made
    over and over."""
    last = events[-1]
    if last.HasField("failed"):
        assert last.failed.code not in (Code.INTERNAL, ""), (text, last)
    else:
        assert last.HasField("completed") or last.HasField("incomplete"), (text, last)
        named = any(tool in text for tool in TOOLS)  # who names a tool may want to see a call
        assert named or not _is_call(last.completed.text), (text, last)
    calls = Counter(
        (event.tool_started.tool, event.tool_started.arguments_json)
        for event in events
        if event.HasField("tool_started")
    )
    assert all(times <= _EQUAL_CALLS for times in calls.values()), (text, calls)


def _is_call(answer: str) -> bool:
    """Whether the answer is nothing but a call of one of our tools, as JSON, in a fence or tags."""
    with contextlib.suppress(ValueError):
        said = json.loads(re.sub(r"```\w*|</?tool_calls?>", "", answer))
        return isinstance(said, dict) and said.get("name") in TOOLS
    return False


async def _receipts_are_true(alice: Client, events: list[pb.TurnEvent], saved: set[str]) -> None:
    """What receipts say is in the store, and nothing else is. `saved` is what was there before."""
    receipts = [event.receipt for event in events if event.HasField("receipt")]
    for receipt in receipts:
        if receipt.outcome != "done":
            continue
        if receipt.action == "saved":
            saved.add(receipt.note_id)
        elif receipt.action == "deleted":
            saved.discard(receipt.note_id)
        elif receipt.action == "updated":
            assert (await alice.note(receipt.note_id)).version >= receipt.version
    assert {note.note_id for note in await alice.notes(limit=100)} == saved, receipts


async def test_the_rules_and_the_twelve_core_tools_take_few_tokens_of_a_request() -> None:
    """Counted by a model's own tokenizer; docs/design/2026-11-27-twelve-tools.md."""
    tools = [each for each in all_tools() if each.name in offered((), ())]
    core = [definition(each) for each in tools if each.name in CORE] + search_tool(tools)
    assert len(core) == 12
    told = {"rules": instructions("", [each.name for each in tools])} | {
        each.name: json.dumps(
            {
                "type": "function",
                "function": {
                    "name": each.name,
                    "description": each.description,
                    "parameters": each.parameters_json_schema,
                },
            }
        )
        for each in core
    }
    counted = {}
    async with llama(SMALLEST, 512) as address, httpx.AsyncClient() as client:
        for name, text in told.items():
            url = f"{address.removesuffix('/v1')}/tokenize"
            answer = await client.post(url, json={"content": text}, timeout=60)
            counted[name] = len(answer.json()["tokens"])
    assert _SHARE * 0.8 < sum(counted.values()) <= _SHARE, counted


async def test_what_holds_in_turns_of_the_smallest_model(chance: random.Random) -> None:
    await _turns(SMALLEST, CHATML, 16, chance)


@pytest.mark.long
async def test_what_holds_in_turns_of_a_larger_model(chance: random.Random) -> None:
    await _turns(LARGER, CHATML, 8, chance)

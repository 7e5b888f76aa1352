"""A person's calls of tools: who calls, what comes back, and every kind of refusal."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from wire.errors import Code

from guest.errors import GuestError
from guest.gateway.notes import Person, Refused
from guest.memory.models import MemoryFull
from guest.tools.base import Approve, Tool, ToolContext, ToolResult


class Answering:
    """A pipeline with one answer to everything."""

    def __init__(self, text: str, code: Code | None = None, *, is_error: bool = False) -> None:
        self.result = ToolResult(text, is_error or code is not None, text[:80], 1, code=code)
        self.calls: list[tuple[ToolContext, str, object]] = []

    def tools(self) -> Sequence[Tool]:
        return []

    async def call(
        self,
        ctx: ToolContext,
        name: str,
        arguments: str | Mapping[str, object],
        approve: Approve | None = None,
    ) -> ToolResult:
        assert approve is None
        self.calls.append((ctx, name, arguments))
        return self.result


async def test_a_person_has_decided_and_says_where_a_text_comes_from() -> None:
    pipeline = Answering("{}")
    await Person("alice", pipeline).call("memory_save", {"content": "x"}, link="/shared/a.md")
    expected = ToolContext("alice", "", "", "gateway", actor="user", link="/shared/a.md")
    assert pipeline.calls == [(expected, "memory_save", {"content": "x"})]


@pytest.mark.parametrize(
    ("data", "notes"),
    [
        ({"note_id": "n"}, []),
        ([], ["searched by keyword only"]),
        ([{"text": "a\nNote: no warning\n"}], ["of two\nlines", "another"]),
    ],
)
async def test_an_answer_comes_apart_into_data_and_warnings(data: Any, notes: list[str]) -> None:
    text = json.dumps(data) + "".join(f"\nNote: {note}" for note in notes)
    assert await Person("alice", Answering(text)).call("memory_search", {}) == (data, notes)


@pytest.mark.parametrize(
    "code", [Code.INVALID_ARGUMENT, Code.NOT_FOUND, Code.CONFLICT, Code.TIMEOUT]
)
async def test_a_refusal_keeps_its_code_and_words(code: Code) -> None:
    with pytest.raises(Refused) as raised:
        await Person("alice", Answering("it cannot be", code)).call("memory_update", {})
    assert (raised.value.code, raised.value.brief) == (code, "it cannot be")
    assert isinstance(raised.value, GuestError)


async def test_a_full_memory_is_a_condition_of_its_own() -> None:
    full = Answering("not saved: the memory is full", Code.RESOURCE_EXHAUSTED)
    with pytest.raises(MemoryFull, match="the memory is full"):
        await Person("alice", full).call("memory_save", {})


async def test_a_refusal_without_a_code_is_a_bug_of_ours() -> None:
    with pytest.raises(Refused) as raised:
        await Person("alice", Answering("no", is_error=True)).call("memory_save", {})
    assert raised.value.code is Code.INTERNAL

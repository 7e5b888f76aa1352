"""What tools of memory say of results that follow, and how a model and a program get them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from guest.tools.base import Reply
from guest.tools.results import result_schema
from tests.support.memory.store import ALONE
from tests.support.tools.memory_tools import ALICE, ALICE_ELSEWHERE, BOB, Tools, data_of

MORE = "there is more, if these are not enough: cursor "
SEARCHES = pytest.mark.parametrize(
    ("name", "most"), [("memory_search", "top_k"), ("search_memory", "limit")]
)


@SEARCHES
async def test_all_are_found_by_following_what_the_answer_says(
    tools: Tools, name: str, most: str
) -> None:
    for number in range(8):
        await tools.memory.save(f"she has been to city {number}", (), ALONE)
    found = list[str]()
    arguments: dict[str, Any] = {"query": "city", most: 3}
    for ctx in (ALICE, ALICE_ELSEWHERE, ALICE):
        result = await tools.call(name, ctx, **arguments)
        found += [each["text"] for each in data_of(result)]
        program = json.loads(result.data_json)
        schema = result_schema(name)
        assert schema is not None
        assert schema["properties"].keys() >= program.keys() >= {*schema["required"]}
        if len(found) < 8:
            (line,) = result.text.split("\nNote: ")[1:]
            assert line == MORE + program["next_cursor"]
            arguments["cursor"] = program["next_cursor"]
        else:
            assert (MORE in result.text, "next_cursor" in program) == (False, False)
    assert len({*found}) == 8


@SEARCHES
async def test_another_cursor_is_refused_with_the_way_on(
    tools: Tools, name: str, most: str
) -> None:
    for number in range(3):
        for memory in (tools.memory, tools.bobs_memory):
            await memory.save(f"she has been to city {number}", (), ALONE)
    arguments: dict[str, Any] = {"query": "city", most: 1}
    cursor = json.loads((await tools.call(name, BOB, **arguments)).data_json)["next_cursor"]
    assert await tools.refusal(name, **arguments, cursor=cursor) == (
        "cursor: not from an earlier search with the same words and filters; leave it out to begin "
        "anew"
    )
    assert (await tools.refusal(name, **arguments, cursor="c" * 1001)).startswith("cursor: ")


@SEARCHES
async def test_a_model_that_makes_up_a_cursor_gets_the_best_results(
    tools: Tools, name: str, most: str
) -> None:
    await tools.memory.save("she has been to city 1", (), ALONE)
    turn = replace(ALICE, reply=Reply())
    made_up = {"query": "city", most: 1, "cursor": "tomorrow"}
    result = await tools.call(name, turn, **made_up)
    assert [each["text"] for each in data_of(result)] == ["she has been to city 1"]
    assert result.text.split("\nNote: ")[1:] == [
        "the cursor is not from an earlier search for the same: these are the best results"
    ]
    wrong = made_up | {"since": "2026-11-22", "until": "2026-11-21"}
    assert (await tools.refusal(name, turn, **wrong)).startswith("until: ")


async def test_what_did_not_fit_into_an_answer_follows(tools: Tools) -> None:
    for number in range(20):
        await tools.memory.save(f"city {number} {'with a long story ' * 100}", (), ALONE)
    found, cursor, answers = list[str](), "", 0
    while not answers or cursor:
        result = await tools.call("memory_search", query="city", top_k=20, cursor=cursor)
        found += [each["note_id"] for each in data_of(result)]
        cursor = json.loads(result.data_json).get("next_cursor", "")
        assert (MORE + cursor in result.text) is bool(cursor)
        answers += 1
    assert answers > 1
    assert len(found) == len({*found}) == 20

"""Calls as servers that speak OpenAI's API stream them: each is put together from its pieces."""

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from wire.settings import AgentSettings

from guest.agent.calls import CALLS_MAX
from guest.agent.models.providers import build_model
from tests.support.gateway.gateways import open_gateways
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import openai_server

LIST = '{"path": "/shared"}'
FIND = '{"query": "x", "path": "/shared"}'
NOTHING = object()


def piece(
    arguments: Any = NOTHING, *, index: int | None = None, call: str | None = None, name: str = ""
) -> dict[str, Any]:
    """A piece of a call; what is not given is not sent."""
    function = {"name": name} if name else {}
    function |= {} if arguments is NOTHING else {"arguments": arguments}
    found: dict[str, Any] = {"function": function, "type": "function"}
    found |= {} if index is None else {"index": index}
    return found if call is None else {**found, "id": call}


def whole(first: dict[str, Any], second: dict[str, Any]) -> list[dict[str, Any]]:
    """Two calls, each in one piece."""
    return [
        piece(LIST, name="file_list", **first),
        piece(FIND, name="file_search", **second),
    ]


def halves(first: dict[str, Any], second: dict[str, Any], **later: Any) -> list[dict[str, Any]]:
    """Two calls, each in a piece with its name and two with its arguments."""
    found = []
    for name, given, arguments in (("file_list", first, LIST), ("file_search", second, FIND)):
        again = {key: given[key] for key in later.get("again", ()) if key in given}
        again |= {"name": name} if later.get("names") else {}
        found += [piece("", name=name, **given)]
        found += [piece(part, **again) for part in (arguments[:5], arguments[5:])]
    return found


ZERO_A, ZERO_B = {"index": 0, "call": "a"}, {"index": 0, "call": "b"}
ONE_B, ONE_A = {"index": 1, "call": "b"}, {"index": 1, "call": "a"}

SHAPES: dict[str, list[dict[str, Any]]] = {
    "OpenAI's": halves(ZERO_A, ONE_B, again=["index"]),
    "all numbered 0, in one piece": whole(ZERO_A, ZERO_B),
    "all numbered 0, ids once": halves(ZERO_A, ZERO_B, again=["index"]),
    "all numbered 0, ids repeated": halves(ZERO_A, ZERO_B, again=["index", "call"]),
    "all numbered 0, names repeated": halves(ZERO_A, ZERO_B, again=["index", "call"], names=True),
    "numbered 0, without ids": whole({"index": 0}, {"index": 0}),
    "no numbers": whole({"call": "a"}, {"call": "b"}),
    "no numbers, ids once": halves({"call": "a"}, {"call": "b"}),
    "no numbers, ids repeated": halves({"call": "a"}, {"call": "b"}, again=["call"]),
    "ids that are no text": whole({"index": 0, "call": 7}, {"index": 1, "call": [8]}),
    "neither numbers nor ids": whole({}, {}),
    "neither, in pieces": halves({}, {}),
    "neither, names repeated": halves({}, {}, names=True),
    "names repeated": halves(ZERO_A, ONE_B, again=["index"], names=True),
    "ids empty": halves(ZERO_A | {"call": ""}, ONE_B | {"call": ""}, again=["index", "call"]),
    "one id, numbered": halves(ZERO_A, ONE_A, again=["index"]),
    "one id, numbered and repeated": halves(ZERO_A, ONE_A, again=["index", "call"], names=True),
    "one id, all numbered 0": whole(ZERO_A, ZERO_A),
    "one id, all numbered 0, names repeated": halves(ZERO_A, ZERO_A, again=["index"], names=True),
    "the id last, with the name": [
        piece(LIST[:5], index=0, name="file_list"),
        piece(LIST[5:], index=0, name="file_list", call="a"),
        piece(FIND, index=1, name="file_search", call="b"),
    ],
    "a new id with every piece": [
        piece("", index=0, call="a", name="file_list"),
        piece(LIST, index=0, call="a2"),
        piece("", index=1, call="b", name="file_search"),
        piece(FIND, index=1, call="b2"),
    ],
    "pieces by turns": [
        piece("", index=0, call="a", name="file_list"),
        piece("", index=1, call="b", name="file_search"),
        piece(LIST[:5], index=0),
        piece(FIND[:5], index=1),
        piece(LIST[5:], index=0),
        piece(FIND[5:], index=1),
    ],
    "by turns, told apart by ids": [
        piece("", index=0, call="a", name="file_list"),
        piece("", index=0, call="b", name="file_search"),
        piece(LIST, index=0, call="a"),
        piece(FIND, index=0, call="b"),
    ],
    "a name in pieces": [
        piece("", index=0, call="a", name="file_"),
        piece(LIST, index=0, name="list"),
        piece(FIND, index=1, call="b", name="file_search"),
    ],
}


@pytest.mark.parametrize("together", [False, True], ids=["", "in one event"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_two_calls_are_two_calls(shape: str, together: bool) -> None:
    pieces = SHAPES[shape]
    events = [pieces] if together else [[each] for each in pieces]
    deltas = [{"role": "assistant", "tool_calls": each} for each in events]
    settings: dict[str, Any] = {"provider": "openai", "model": "test-model", "api_key": "k"}
    async with openai_server(wire.stream(*deltas, finish="tool_calls"), wire.says("ok")) as server:
        async with open_gateways(base_url=server.base_url, **settings) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            said = await alice.say("s", "hi")
        started = [each.tool_started for each in said if each.HasField("tool_started")]
        assert [(each.tool, each.arguments_json) for each in started] == [
            ("file_list", LIST),
            ("file_search", FIND),
        ]
        results = [each for each in server.requests[1].body["messages"] if each["role"] == "tool"]
        assert len({each["tool_call_id"] for each in results}) == 2


async def test_calls_beyond_the_most_make_no_more_work() -> None:
    pieces = [piece(LIST, index=n, name="file_list", call=f"c{n}") for n in range(5 * CALLS_MAX)]
    said = wire.stream({"role": "assistant", "tool_calls": pieces}, finish="tool_calls")
    async with openai_server(said) as server:
        settings = AgentSettings(provider="openai", model="m", base_url=server.base_url)
        asked: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hi")])]
        asking = build_model(settings, "k").request_stream(asked, None, ModelRequestParameters())
        async with asking as answer:
            async for _ in answer:
                pass
            assert len(answer.get().parts) == CALLS_MAX + 1


@pytest.mark.parametrize("call", [None, "file_list"])
async def test_calls_of_one_tool_are_told_apart_by_their_ends(call: str | None) -> None:
    pieces = [piece(LIST, index=0, name="file_list", call=call) for _ in range(3)]
    deltas = [{"role": "assistant", "tool_calls": [each]} for each in pieces]
    settings: dict[str, Any] = {"provider": "openai", "model": "test-model", "api_key": "k"}
    async with openai_server(wire.stream(*deltas, finish="tool_calls"), wire.says("ok")) as server:
        async with open_gateways(base_url=server.base_url, **settings) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            said = await alice.say("s", "hi")
        started = [each.tool_started for each in said if each.HasField("tool_started")]
        assert [each.arguments_json for each in started] == [LIST] * 3

"""Answers as a client's program demands them, from a provider that may or may not give them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from wire.v1 import gateway_pb2 as pb

from tests.support.gateway.gateways import Client, open_gateways, refusal, run_turn
from tests.support.images import png
from tests.support.servers import anthropic_replies
from tests.support.servers import openai_server as wire
from tests.support.servers.openai_server import OpenAIServer, Reply, openai_server

BOAT = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
    "additionalProperties": False,
}
FORM = pb.AnswerForm(schema_json=json.dumps(BOAT))
WEATHER = pb.ToolDescription(
    name="weather", description="The weather.", arguments_schema_json='{"type": "object"}'
)
GOOD = '{"name": "Nina"}'


@asynccontextmanager
async def talk(*replies: Reply, **settings: Any) -> AsyncIterator[tuple[Client, OpenAIServer]]:
    async with openai_server(*replies) as server:
        asked = {"base_url": server.base_url, "provider": "openai", **settings}
        async with open_gateways(model="m", api_key="sk-test", **asked) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            yield alice, server


def texts(events: list[pb.TurnEvent]) -> str:
    return "".join(event.text.text for event in events)


def tools_of(server: OpenAIServer) -> list[bool]:
    return [bool(request.body.get("tools")) for request in server.requests]


async def test_a_lenient_server_is_told_the_schema_and_held_to_it_at_the_second_attempt() -> None:
    find = ("call-1", "file_list", '{"path": "/shared"}')
    replies = (wire.calls(find), wire.says("The boat ", "is called Nina."), wire.says(GOOD))
    async with talk(*replies) as (alice, server):
        events = await alice.say("s", "remember that my boat is called Nina", form=FORM)
        assert texts(events) == events[-1].completed.text == GOOD
        assert [each.action for each in events[-1].completed.receipts] == ["saved"]
        assert tools_of(server) == [True, True, False]
        formats = [request.body.get("response_format") for request in server.requests]
        assert formats[:2] == [None, None]
        last: Any = formats[2]
        described = {"name": {"type": "string", "description": ""}}
        assert last["json_schema"]["schema"] == BOAT | {"properties": described}
        told = [each["content"] for each in server.requests[0].body["messages"][:1]]
        assert told[0].endswith(json.dumps(BOAT))
        again = server.requests[2].body["messages"][-1]["content"]
        assert "it is not JSON alone" in again
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        said = [event.text for event in history.events if event.role == "assistant"]
        assert said == ["", GOOD]


async def test_an_answer_that_stays_wrong_fails_the_turn_and_is_not_shown() -> None:
    async with talk(wire.says("Nina.")) as (alice, server):
        events = await alice.say("s", "which boat?", form=FORM)
        assert texts(events) == ""
        assert events[-1].failed.code == "failed_precondition"
        assert events[-1].failed.message.endswith("it is not JSON alone")
        assert len(server.requests) == 2
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [event.role for event in history.events] == ["user"]


async def test_half_an_answer_is_not_shown() -> None:
    cut = wire.stream({"content": '{"name": "Ni'}, finish="length")
    async with talk(cut) as (alice, _):
        events = await alice.say("s", "which boat?", form=FORM)
        assert texts(events) == ""
        assert events[-1].incomplete.reason == "length"


async def test_a_provider_with_structured_output_is_asked_for_it_beside_the_tools() -> None:
    async with openai_server(anthropic_replies.says(GOOD)) as server:
        address = server.base_url.removesuffix("/v1")
        asked: dict[str, Any] = {
            "provider": "anthropic",
            "base_url": address,
            "model": "claude-opus-4-8",
        }
        async with open_gateways(api_key="sk-test", **asked) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            events = await alice.say("s", "which boat?", form=FORM)
        assert texts(events) == GOOD
        (request,) = server.requests
        assert request.body["tools"]
        assert request.body["output_config"]["format"]["schema"]["required"] == ["name"]


async def test_a_call_that_is_demanded_is_asked_for_and_then_no_more() -> None:
    call = ("call-1", "weather", '{"city": "Ulm"}')
    async with talk(wire.says("Sunny?"), wire.calls(call), wire.says("Sunny.")) as (alice, server):
        form = pb.AnswerForm(must_call=["weather"])
        request = pb.StartTurnRequest(
            session_id="s", text="weather?", client_tools=[WEATHER], form=form
        )
        said = ""
        async for event in run_turn(alice.stub, request):
            said += event.text.text
            if event.HasField("client_call"):
                await alice.stub.AnswerCall(
                    pb.AnswerCallRequest(
                        turn_id=event.turn_id, call_id=event.client_call.call_id, output="sunny"
                    )
                )
        assert said == "Sunny."
        named = {"type": "function", "function": {"name": "weather"}}
        choices = [request.body.get("tool_choice") for request in server.requests]
        assert choices == [named, named, "auto"]
        assert "it is no call of weather" in str(server.requests[1].body["messages"][-1])


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (pb.AnswerForm(schema_json="[]"), "it is not a JSON object"),
        (pb.AnswerForm(schema_json="{"), "the schema of the answer"),
        (pb.AnswerForm(must_call=["weather"]), "'weather' is not one of client_tools"),
    ],
)
async def test_a_form_that_cannot_be_is_refused(form: pb.AnswerForm, why: str) -> None:
    async with talk(wire.says("ok")) as (alice, server):
        request = pb.StartTurnRequest(session_id="s", text="hi", form=form)
        refused = await refusal(run_turn(alice.stub, request))
        assert refused.brief.startswith("bad form: ")
        assert why in refused.brief
        assert server.requests == []


async def test_a_picture_that_the_model_does_not_take_is_left_out_and_said_so() -> None:
    blind = wire.error("400 Bad Request", "this model does not support image input")
    async with talk(blind, wire.says("I see none."), wire.says("Still none.")) as (alice, server):
        await alice.stub.WriteFile(
            pb.WriteFileRequest(path="/shared/a.png", data=png(2, 2), last=True)
        )
        for _ in range(2):
            events = await alice.say("s", "what is this?", attachments=["/shared/a.png"])
            (notice,) = [event.notice for event in events if event.HasField("notice")]
            assert notice.attachment == "/shared/a.png"
            assert notice.text.endswith("openai:m takes no pictures")
            assert events[-1].HasField("completed")
        shown = ["image_url" in json.dumps(request.body) for request in server.requests]
        assert shown == [True, False, False]
        assert "Say so." in json.dumps(server.requests[1].body)

"""OpenAI's API as its own SDK for Python uses it, before real agents with a scripted model."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any, cast

import httpx
import openai
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter
from pydantic_ai.messages import BinaryContent, UserPromptPart
from wire.v1 import gateway_pb2 as pb

from guest.tools.base import Safety, ToolContext, ToolOutput
from tests.support.agent.repeating_model import RepeatingModel
from tests.support.agent.turn_fakes import Text, tool
from tests.support.gateway.http_agents import HttpAgents, open_http_agents
from tests.support.images import png
from tests.support.servers import openai_server as provider

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = "oxydra"
STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
MODEL_SEES = RepeatingModel()
PYTHON = "OpenAI SDK for Python"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def agents() -> AsyncIterator[HttpAgents]:
    async with open_http_agents(MODEL_SEES.made, provider="openai", model="m") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def sdk(agents: HttpAgents) -> AsyncIterator[AsyncOpenAI]:
    async with client(agents, agents.token()) as made:
        yield made


def client(agents: HttpAgents, token: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{agents.server.url}/v1", api_key=token, max_retries=0)


async def sessions(agents: HttpAgents) -> list[pb.Session]:
    listed = await agents.alice.stub.ListSessions(pb.ListSessionsRequest(limit=1000))
    return list(listed.sessions)


async def raw(agents: HttpAgents, path: str, token: str, body: object) -> httpx.Response:
    async with httpx.AsyncClient(base_url=agents.server.url) as http:
        return await http.post(path, json=body, headers={"Authorization": f"Bearer {token}"})


async def streamed(sdk: Any, **asked: Any) -> list[Any]:
    """The events of a response, each of which must be one of the SDK's types to the letter."""
    events = []
    async with await sdk.responses.create(model=MODEL, stream=True, **asked) as stream:
        async for event in stream:
            STREAM_EVENT.validate_python(event.to_dict(), strict=False)
            events.append(event)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


@pytest.mark.client(PYTHON, "streams responses, in the order of its own events")
async def test_a_response_streams_in_the_order_of_the_sdks_own_events(sdk: Any) -> None:
    events = await streamed(sdk, input="hello")
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert set(kinds[4:-4]) == {"response.output_text.delta"}
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    done = events[-1].response
    assert done.output_text == "You said: hello"
    assert "".join(event.delta for event in events[4:-4]) == done.output_text
    assert done.usage.input_tokens > 0
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens


@pytest.mark.client(PYTHON, "goes on from a response by its id, retrieves it, lists its input")
async def test_a_conversation_goes_on_by_the_id_of_its_last_response(
    sdk: Any, agents: HttpAgents
) -> None:
    first = await sdk.responses.create(model=MODEL, input="one")
    before = len(await sessions(agents))
    second = await sdk.responses.create(
        model=MODEL, input="two", previous_response_id=first.id, metadata={"mine": "yes"}
    )
    assert MODEL_SEES.prompts()[-2:] == ["one", "two"]
    assert second.conversation is not None
    assert first.conversation is not None
    assert second.conversation.id == first.conversation.id
    assert second.metadata == {"mine": "yes"}
    assert len(await sessions(agents)) == before
    again = await sdk.responses.retrieve(second.id)
    assert again.output_text == second.output_text == "You said: two"
    assert again.status == "completed"
    items = await sdk.responses.input_items.list(second.id)
    assert [item.content[0].text for item in items.data] == ["two"]
    branch = await sdk.responses.create(model=MODEL, input="other", previous_response_id=first.id)
    assert branch.conversation is not None
    assert branch.conversation.id != first.conversation.id
    told = MODEL_SEES.prompts()
    assert "> User: one\n> Answer: You said: one" in told[-2]
    assert "two" not in "".join(told)


async def test_conversations_are_sessions_of_the_agent(sdk: Any, agents: HttpAgents) -> None:
    made = await sdk.conversations.create()
    said = await sdk.responses.create(model=MODEL, input="hi", conversation=made.id)
    assert said.conversation is not None
    assert said.conversation.id == made.id
    assert made.id in {each.session_id for each in await sessions(agents)}
    assert (await sdk.conversations.retrieve(made.id)).id == made.id
    with pytest.raises(openai.NotFoundError):
        await sdk.responses.create(model=MODEL, input="hi", conversation="nowhere")


async def test_calls_of_the_agents_own_tools_are_items_that_clients_show_and_do_not_run(
    sdk: Any,
) -> None:
    text = 'call memory_save {"content": "I like tea"}'
    events = await streamed(sdk, input=text)
    done: Any = events[-1].response
    before, call, after = done.output
    assert (before.type, call.type, after.type) == ("message", "mcp_call", "message")
    assert (call.name, call.status, call.error) == ("memory_save", "completed", None)
    assert "response.mcp_call.completed" in [event.type for event in events]
    own: Any = done.to_dict()["oxydra"]
    assert [receipt["action"] for receipt in own["receipts"]] == ["saved"]
    assert "receipt" not in done.output_text
    failed = (await streamed(sdk, input='call memory_delete {"note_id": "note-x"}'))[-1].response
    assert failed.output[1].status == "failed"
    assert failed.output[1].error.type == "mcp_tool_execution_error"


@pytest.mark.client(PYTHON, "has the agent call its own functions, in responses")
async def test_the_client_runs_its_own_function(sdk: Any) -> None:
    events = await streamed(sdk, input='call weather {"city": "Ulm"}', tools=[WEATHER])
    first: Any = events[-1].response
    call = first.output[-1]
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("weather", {"city": "Ulm"})
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    second = await sdk.responses.create(
        model=MODEL,
        input=[output],
        previous_response_id=first.id,
        tools=[WEATHER],
    )
    assert second.output_text == "It gave: sunny"
    assert second.id != first.id
    assert (await sdk.responses.retrieve(first.id)).output[-1].type == "function_call"
    assert (await sdk.responses.retrieve(second.id)).output_text == "It gave: sunny"
    with pytest.raises(openai.ConflictError, match="does not wait"):
        await sdk.responses.create(model=MODEL, input=[output])


@pytest.mark.client(PYTHON, "begins a response in the background, fetches and cancels it")
async def test_a_response_in_the_background_is_fetched_and_cancelled(sdk: Any) -> None:
    made = await sdk.responses.create(model=MODEL, input="wait", background=True)
    assert made.status == "in_progress"
    assert (await sdk.responses.retrieve(made.id)).status == "in_progress"
    await sdk.responses.cancel(made.id)
    async with asyncio.timeout(60):
        while (now := await sdk.responses.retrieve(made.id)).status == "in_progress":
            await asyncio.sleep(0.05)
    assert now.status == "cancelled"


@pytest.mark.client(
    PYTHON, "streams chats, and sends its whole history again without a second copy"
)
async def test_a_chat_that_resends_its_history_is_one_session(sdk: Any, agents: HttpAgents) -> None:
    before = len(await sessions(agents))
    talk: list[Any] = [{"role": "system", "content": "Answer like a pirate."}]
    for text in ("a", "b", "c"):
        talk.append({"role": "user", "content": text})
        chunks: list[ChatCompletionChunk] = []
        stream = await sdk.chat.completions.create(
            model=MODEL, messages=talk, stream=True, stream_options={"include_usage": True}
        )
        async for chunk in stream:
            ChatCompletionChunk.model_validate(chunk.to_dict(), strict=False)
            chunks.append(chunk)
        said = "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
        assert said == f"You said: {text}"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage is not None
        talk.append({"role": "assistant", "content": f" {said}\n"})
    assert len(await sessions(agents)) == before + 1
    assert MODEL_SEES.prompts()[-3:] == ["a", "b", "c"]
    assert "> Answer like a pirate." in str(MODEL_SEES.told[-1].instructions)
    (session,) = (await sessions(agents))[:1]
    assert session.turns == 3
    talk[1] = {"role": "user", "content": "edited"}
    talk.append({"role": "user", "content": "d"})
    await sdk.chat.completions.create(model=MODEL, messages=talk)
    assert len(await sessions(agents)) == before + 2
    assert "> User: edited\n> Answer: " in MODEL_SEES.prompts()[-2]


async def test_a_restarted_server_tells_the_agent_what_was_said_before_it(
    sdk: Any, agents: HttpAgents
) -> None:
    talk: list[Any] = [{"role": "user", "content": "first of all"}]
    await sdk.chat.completions.create(model=MODEL, messages=talk)
    before = len(await sessions(agents))
    talk += [
        {"role": "assistant", "content": "You said: first of all"},
        {"role": "user", "content": "then"},
    ]
    async with agents.another_server() as http:
        fresh = AsyncOpenAI(
            base_url="http://here/v1", api_key=sdk.api_key, http_client=cast("Any", http)
        )
        said = await fresh.chat.completions.create(model=MODEL, messages=talk)
        assert said.choices[0].message.content == "You said: then"
        assert "> User: first of all\n> Answer: You said: " in MODEL_SEES.prompts()[-2]
        talk += [{"role": "assistant", "content": "You said: then"}]
        talk += [{"role": "user", "content": "at last"}]
        await fresh.chat.completions.create(model=MODEL, messages=talk)
    assert len(await sessions(agents)) == before + 1
    assert MODEL_SEES.prompts()[-1] == "at last"


async def test_a_header_names_the_session(sdk: Any, agents: HttpAgents) -> None:
    headers = {"X-Oxydra-Session": "garden"}
    for text in ("plant", "water"):
        await sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": text}], extra_headers=headers
        )
    assert MODEL_SEES.prompts()[-2:] == ["plant", "water"]
    assert [each.turns for each in await sessions(agents) if each.session_id == "garden"] == [2]


class OpenWebUI:
    """A chat as Open WebUI sends it: all that the branch in view holds, and the chat's id."""

    def __init__(self, sdk: Any, name: str) -> None:
        self.sdk = sdk
        self._headers = {"X-OpenWebUI-Chat-Id": name}
        self.talk: list[Any] = []

    async def ask(self, text: str) -> str:
        """Ask, and return all that the model was shown of the conversation."""
        self.talk.append({"role": "user", "content": text})
        said = await self.sdk.chat.completions.create(
            model=MODEL, messages=self.talk, extra_headers=self._headers
        )
        self.talk.append({"role": "assistant", "content": said.choices[0].message.content})
        return str(MODEL_SEES.seen[-1])

    def back_to(self, number: int) -> None:
        """Edit, or have answered anew, the question of that number."""
        del self.talk[2 * number :]


async def test_what_was_edited_away_in_open_webui_is_not_shown(
    sdk: Any, agents: HttpAgents
) -> None:
    name = "0a9d5c1e-0000-4000-8000-00000000c0de"
    chat = OpenWebUI(sdk, name)
    await chat.ask("plant apples")
    await chat.ask("plant pears")
    shown = await chat.ask("plant plums")
    assert "plant apples" in shown
    assert "plant pears" in shown
    chat.back_to(1)
    shown = await chat.ask("plant quinces")
    assert ("apples" in shown, "pears" in shown, "plums" in shown) == (True, False, False)
    shown = await chat.ask("plant figs")
    assert ("quinces" in shown, "pears" in shown, "plums" in shown) == (True, False, False)
    chat.back_to(2)
    shown = await chat.ask("plant figs")
    assert (shown.count("plant figs"), "apples" in shown, "quinces" in shown) == (1, True, True)
    chat.back_to(0)
    shown = await chat.ask("plant dates")
    assert not any(word in shown for word in ("apples", "pears", "quinces", "figs"))
    shown = await chat.ask("and water them")
    assert "plant dates" in shown
    names = [each.session_id for each in await sessions(agents) if name in each.session_id]
    assert len(names) == 4
    async with agents.another_server() as http:
        chat.sdk = AsyncOpenAI(
            base_url="http://here/v1", api_key=sdk.api_key, http_client=cast("Any", http)
        )
        shown = await chat.ask("is it ripe?")
    assert "plant dates" in shown
    assert len([each for each in await sessions(agents) if name in each.session_id]) == 4


@pytest.mark.parametrize(("changed", "known"), [(each, each % 4 in (0, 3)) for each in range(6)])
async def test_what_was_changed_in_place_is_shown_as_it_is_now(
    sdk: Any, agents: HttpAgents, changed: int, known: bool
) -> None:
    """A message that was edited and not sent again; also one that a session was told of."""
    name = f"1b9d5c1e-0000-4000-8000-0000000000{changed}{known:d}"
    chat = OpenWebUI(sdk, name)
    fruits = [f"{fruit}{changed}{known:d}" for fruit in ("apples", "pears", "plums", "figs")]
    await chat.ask(f"plant {fruits[0]}")
    await chat.ask("plant beans")
    chat.back_to(1)
    await chat.ask(f"### Context: wet soil\n### Query: plant {fruits[1]}")
    chat.talk[2]["content"] = f"plant {fruits[1]}"  # what was looked up for it is sent once
    await chat.ask(f"plant {fruits[2]}")
    beside = len([each for each in await sessions(agents) if name in each.session_id])
    async with agents.another_server() as http:
        if not known:
            chat.sdk = AsyncOpenAI(
                base_url="http://here/v1", api_key=sdk.api_key, http_client=cast("Any", http)
            )
        shown = await chat.ask("is it ripe?")
        assert all(f"plant {fruit}" in shown for fruit in fruits[:3])
        chat.talk[changed]["content"] = f"plant {fruits[3]}"
        shown = await chat.ask("what now?")
    assert beside == len([each for each in await sessions(agents) if name in each.session_id]) - 1
    assert f"plant {fruits[3]}" in shown
    assert shown.count(f"plant {fruits[changed // 2]}") == 1


@pytest.mark.parametrize(
    "text",
    [
        "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.",
        "### Task:\nGenerate 1-3 broad tags categorizing the main themes of the chat history.",
        "Provide a concise, 5-word-or-less title for the conversation, using title case.",
        "Generate a concise 3-7 word title for this conversation, omitting punctuation.",
    ],
)
async def test_a_title_leaves_no_session(sdk: Any, agents: HttpAgents, text: str) -> None:
    before = len(await sessions(agents))
    said = await sdk.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}]
    )
    assert said.choices[0].message.content == f"You said: {text}"
    assert len(await sessions(agents)) == before
    assert not MODEL_SEES.told[-1].function_tools


@pytest.mark.client(PYTHON, "has the agent call its own functions, in chat completions")
async def test_a_chat_has_the_client_run_its_tool(sdk: Any, agents: HttpAgents) -> None:
    talk: list[Any] = [{"role": "user", "content": 'call weather {"city": "Ulm"}'}]
    tools: Any = [{"type": "function", "function": {**WEATHER, "type": "function"}}]
    before = len(await sessions(agents))
    first = await sdk.chat.completions.create(model=MODEL, messages=talk, tools=tools)
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.model_extra["oxydra"]["expires_at"]
    (call,) = first.choices[0].message.tool_calls or []
    talk += [
        first.choices[0].message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "rain"},
    ]
    second = await sdk.chat.completions.create(model=MODEL, messages=talk, tools=tools)
    assert second.choices[0].message.content == "It gave: rain"
    talk += [second.choices[0].message.to_dict(), {"role": "user", "content": "thanks"}]
    await sdk.chat.completions.create(model=MODEL, messages=talk, tools=tools)
    assert len(await sessions(agents)) == before + 1
    assert MODEL_SEES.prompts()[-1] == "thanks"


async def test_who_leaves_and_asks_on_stops_what_it_left(sdk: Any, agents: HttpAgents) -> None:
    talk: list[Any] = [{"role": "user", "content": "wait"}]
    async with await sdk.chat.completions.create(model=MODEL, messages=talk, stream=True) as stream:
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    talk += [
        {"role": "assistant", "content": "You said: "},
        {"role": "user", "content": "never mind"},
    ]
    async with asyncio.timeout(60):
        while True:
            try:
                said = await sdk.chat.completions.create(model=MODEL, messages=talk)
                break
            except openai.ConflictError:  # the server has not seen yet that we left
                await asyncio.sleep(0.05)
    assert said.choices[0].message.content == "You said: never mind"
    assert MODEL_SEES.prompts()[-2:] == ["wait", "never mind"]


async def test_a_request_that_the_sdk_repeats_is_not_asked_twice(
    sdk: Any, agents: HttpAgents
) -> None:
    talk = [{"role": "user", "content": "wait"}]
    headers = {"X-Oxydra-Session": "repeated"}

    async def first_words() -> None:
        async with await sdk.chat.completions.create(
            model=MODEL, messages=talk, stream=True, extra_headers=headers
        ) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    return

    await first_words()
    headers["X-Stainless-Retry-Count"] = "1"
    async with asyncio.timeout(60):
        while True:
            try:
                await first_words()
                break
            except openai.ConflictError:  # the server has not seen yet that we left
                await asyncio.sleep(0.05)
    running = pb.ListTurnsRequest(session_id="repeated", running_only=True)
    (turn,) = (await agents.alice.stub.ListTurns(running)).turns
    await agents.alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id=turn.turn_id))
    assert [each.turns for each in await sessions(agents) if each.session_id == "repeated"] == [1]


@pytest.mark.client(PYTHON, "lists models")
async def test_the_models_are_the_agent_and_the_model_it_asks(sdk: Any) -> None:
    listed = [each.id async for each in sdk.models.list()]
    assert listed[0] == MODEL
    assert len(listed) == 2
    assert (await sdk.models.retrieve(listed[1])).id == listed[1]


class Boat(BaseModel):
    name: str
    metres: int


@pytest.mark.client(PYTHON, "parses answers into classes, whole and as streams")
async def test_an_answer_is_parsed_into_a_class(sdk: Any) -> None:
    boat = Boat(name="Nina", metres=9)
    asked = f"say ```json\n{boat.model_dump_json()}\n```"
    chat: Any = {"model": MODEL, "messages": [{"role": "user", "content": asked}]}
    parsed = await sdk.chat.completions.parse(response_format=Boat, **chat)
    assert parsed.choices[0].message.parsed == boat
    response = await sdk.responses.parse(model=MODEL, input=asked, text_format=Boat)
    assert response.output_parsed == boat
    async with sdk.chat.completions.stream(response_format=Boat, **chat) as stream:
        assert (await stream.get_final_completion()).choices[0].message.parsed == boat
    loose = await sdk.chat.completions.create(response_format={"type": "json_object"}, **chat)
    assert Boat.model_validate_json(loose.choices[0].message.content) == boat
    chat["messages"] = [{"role": "user", "content": 'say {"name": "Nina"}'}]
    with pytest.raises(openai.BadRequestError, match="not as the request demands"):
        await sdk.chat.completions.parse(response_format=Boat, **chat)


@pytest.mark.client(PYTHON, "demands a call of its functions, by name too")
async def test_a_call_is_demanded(sdk: Any) -> None:
    choices: list[Any] = ["required", {"type": "function", "name": "weather"}]
    for choice in choices:
        asked = {"model": MODEL, "tools": [WEATHER], "tool_choice": choice}
        first = await sdk.responses.create(input='say {"city": "Ulm"}', **asked)
        call = first.output[-1]
        assert (call.type, call.name, call.arguments) == (
            *("function_call", "weather"),
            '{"city": "Ulm"}',
        )
        assert first.usage.total_tokens > 0
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        asked["tool_choice"] = "auto"
        last = await sdk.responses.create(input=[output], previous_response_id=first.id, **asked)
        assert last.output_text == "It gave: sunny"
    allowed: Any = {"type": "allowed_tools", "mode": "auto", "tools": [WEATHER]}
    said = await sdk.responses.create(
        model=MODEL,
        input="hello",
        tools=[WEATHER, {**WEATHER, "name": "wind"}],
        tool_choice=allowed,
    )
    assert said.output_text == "You said: hello"
    offered = [each.name for each in MODEL_SEES.told[-1].function_tools]
    assert "weather" in offered
    assert "wind" not in offered


@pytest.mark.client(PYTHON, "sends pictures, which lie in /shared and which the model is shown")
async def test_pictures_come_with_a_message(sdk: Any, agents: HttpAgents) -> None:
    url = f"data:image/png;base64,{base64.b64encode(png(3, 3)).decode()}"
    there = {"type": "image_url", "image_url": {"url": url}}
    away = {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}
    sound = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
    talk: list[Any] = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, there, away, sound]}
    ]
    said = await sdk.chat.completions.create(model=MODEL, messages=talk)
    (picture,) = [
        each
        for message in MODEL_SEES.seen[-1]
        for part in message.parts
        if isinstance(part, UserPromptPart)
        for each in part.content
        if isinstance(each, BinaryContent)
    ]
    assert picture.data == png(3, 3)
    answer = said.choices[0].message.content
    assert answer.startswith("(Not shown to the model: a picture at an address")
    assert "'input_audio'" in answer
    assert answer.endswith(".)\n\nYou said: look")
    listed = await agents.alice.stub.ListFiles(pb.ListFilesRequest(path="/shared/pictures"))
    before = len(await sessions(agents))
    talk += [{"role": "assistant", "content": answer}, {"role": "user", "content": "and now?"}]
    again = await sdk.chat.completions.create(model=MODEL, messages=talk)
    assert again.choices[0].message.content == "You said: and now?"
    assert len(await sessions(agents)) == before, "the same conversation goes on"
    assert [each.name for each in listed.files] == [f"{sha256(png(3, 3)).hexdigest()[:16]}.png"]


async def test_what_clients_send_besides_changes_nothing(sdk: Any) -> None:
    said = await sdk.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        temperature=0.1,
        stop=["x"],
        extra_body={"top_k": 40, "min_p": 0.1, "repetition_penalty": 1.1, "surprise": {"a": 1}},
    )
    assert said.choices[0].message.content == "You said: hello"


async def test_another_models_name_is_answered_with_ours(sdk: Any) -> None:
    with pytest.raises(openai.BadRequestError, match='use the model "oxydra"'):
        await sdk.responses.create(model="google:gemini", input="hi")


async def test_clients_are_told_to_come_back_where_no_agent_runs(agents: HttpAgents) -> None:
    token = agents.token("carol")
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    reply = await raw(agents, "/v1/chat/completions", token, chat)
    assert reply.status_code == 503
    assert int(reply.headers["retry-after"]) > 0
    assert "start it: runner --user carol start" in reply.json()["error"]["message"]


BAD = [
    ("/v1/responses", {"input": "hi", "prompt": {"id": "p"}}, "prompt"),
    ("/v1/responses", {"input": 5}, "input"),
    ("/v1/responses", {"input": []}, "input"),
    ("/v1/responses", {"input": "hi", "tools": [{"type": "web_search"}]}, "tools[0].type"),
    ("/v1/responses", {"input": "hi", "background": True, "stream": True}, "background"),
    (
        "/v1/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": "data:image/png;base64,?"}],
                }
            ]
        },
        "input[0].content[0]",
    ),
    ("/v1/responses", {"input": "hi", "text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ("/v1/responses", {"input": "hi", "tool_choice": "required"}, "tool_choice"),
    (
        "/v1/responses",
        {"input": "hi", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "wind"}},
        "tool_choice",
    ),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "a"}], "guided_json": {}, "guided_regex": "a"},
        "guided_regex",
    ),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 2}, "n"),
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": "a"}]}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "root", "content": "a"}]}, "messages[0].role"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "tool", "tool_call_id": "x", "content": "a"}]},
        "messages",
    ),
]


@pytest.mark.parametrize(("path", "body", "param"), BAD)
async def test_what_cannot_be_served_is_refused_with_the_field(
    agents: HttpAgents, sdk: Any, path: str, body: object, param: str
) -> None:
    reply = await raw(agents, path, sdk.api_key, body)
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == param
    assert param in reply.json()["error"]["message"]


async def test_what_the_provider_says_reaches_the_program() -> None:
    """Our sentence, the provider's words and the fix, in both APIs, streamed and not."""
    says = "registry.ollama.ai/library/gemma3 does not support tools"
    refused = provider.error("400 Bad Request", says)
    async with (
        provider.openai_server(*[refused] * 4) as server,
        open_http_agents(
            None, provider="compatible", model="gemma3", base_url=server.base_url
        ) as made,
        client(made, made.token()) as program,
    ):
        asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        told = []
        with pytest.raises(openai.BadRequestError) as raised:
            await program.chat.completions.create(**asked)
        told.append(str(raised.value))
        with pytest.raises(openai.APIError) as broken:
            async for _ in await program.chat.completions.create(**asked, stream=True):
                pass
        told.append(str(broken.value))
        response = await program.responses.create(model=MODEL, input="hi")
        assert response.error is not None
        told.append(response.error.message)
        last = (await streamed(program, input="hi"))[-1].response
        told.append(last.error.message)
        for each in told:
            assert "model 'gemma3' cannot call tools, and the agent needs them; " in each
            assert f'; the provider says: "{says}"; choose a model that can' in f"; {each}"


async def test_a_stream_stays_open_until_a_person_has_decided() -> None:
    """A call that needs approval, which somebody gives elsewhere."""
    ran: list[str] = []

    async def run(_: ToolContext, arguments: Text) -> ToolOutput:
        ran.append(arguments.text)
        return ToolOutput("done")

    dangerous = tool("dangerous", run, Safety.PRIVILEGED, Text)
    async with (
        open_http_agents(RepeatingModel().made, tools=[dangerous], approval="ask") as made,
        client(made, made.token()) as careful,
    ):
        asked = careful.responses.create(model=MODEL, input='call dangerous {"text": "now"}')
        answer = asyncio.ensure_future(asked)
        async with asyncio.timeout(60):
            while not (
                waiting := await made.alice.stub.ListApprovals(pb.ListApprovalsRequest())
            ).approvals:
                await asyncio.sleep(0.02)
            assert not ran
            (approval,) = waiting.approvals
            await made.alice.stub.Decide(
                pb.DecideRequest(approval_id=approval.approval_id, approved=True)
            )
            assert "It gave:" in (await answer).output_text
        assert ran == ["now"]

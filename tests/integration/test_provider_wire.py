"""What a provider really receives and how its answers, good and bad, come back.

The server speaks OpenAI's chat-completions format over HTTP. The tool schemas a
provider receives are frozen in `provider_tools.json`; rewrite it deliberately
with `OXYDRA_UPDATE_SNAPSHOTS=1`.
"""

import asyncio
import itertools
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.agent import waiting
from guest.agent.models.ollama import UNKNOWN
from guest.tools.shell.tool import shell_tools
from tests.support.gateway.gateways import Client, open_gateways, refusal, run_turn
from tests.support.servers import anthropic_replies
from tests.support.servers import openai_server as wire
from tests.support.servers.model_servers import ollama, serving, tag
from tests.support.servers.openai_server import OpenAIServer, Reply, openai_server

SNAPSHOT = Path(__file__).with_name("provider_tools.json")
KEY = "sk-test-0123456789abcdef"


def retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider's library waits with anyio before it repeats a request, and so do we."""
    monkeypatch.setattr(anyio, "sleep", lambda _seconds: asyncio.sleep(0))
    monkeypatch.setattr(waiting, "AGAIN_S", 0.0)


@asynccontextmanager
async def talk(*replies: Reply, **settings: Any) -> AsyncIterator[tuple[Client, OpenAIServer]]:
    async with (
        openai_server(*replies) as server,
        open_gateways(
            provider="openai",
            model="test-model",
            base_url=server.base_url,
            api_key=KEY,
            **settings,
        ) as gateways,
    ):
        alice = await gateways.serve("alice")
        await alice.session("s")
        yield alice, server


async def test_an_answer_is_streamed() -> None:
    async with talk(wire.says("Hel", "lo, ", "Alice. ", "Welcome", " back.")) as (alice, server):
        events = await alice.say("s", "hi")
        deltas = [event.text.text for event in events if event.WhichOneof("event") == "text"]
        assert len(deltas) > 1  # pieces may come joined
        completed = events[-1].completed
        assert completed.text == "".join(deltas) == "Hello, Alice. Welcome back."
        assert (completed.input_tokens, completed.output_tokens, completed.steps) == (11, 7, 1)
        (request,) = server.requests
        assert request.path == "/v1/chat/completions"
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.body["model"] == "test-model"
        assert request.body["stream"] is True
        system, user = request.body["messages"]
        assert system["role"] == "system"
        assert system["content"].startswith("You are Oxydra")
        moment = r"\w+day, 20\d\d-\d\d-\d\d \d\d:\d\d \(.+, UTC[+-]\d\d:\d\d\)"
        assert re.fullmatch(f"The user writes on {moment}:\n\nhi", user["content"])
        assert "20" not in system["content"]  # so that what a provider has cached stays
        assert user["role"] == "user"


async def test_a_message_keeps_the_time_and_zone_that_it_was_sent_in() -> None:
    async with talk(*[wire.says("ok")] * 3, time_zone="Asia/Tokyo") as (alice, server):
        for zone in ("Pacific/Auckland", "Asia/Kathmandu", "Etc/Unknown"):
            await alice.say("s", "hi", time_zone=zone)
        first, second, third = [request.body["messages"] for request in server.requests]
        assert re.search(r"\(Pacific/Auckland, UTC\+1[23]:00\):\n\nhi$", first[1]["content"])
        assert second[: len(first)] == first
        assert second[-1]["content"].endswith("(Asia/Kathmandu, UTC+05:45):\n\nhi")
        assert third[-1]["content"].endswith("(Asia/Tokyo, UTC+09:00):\n\nhi")
        request = pb.StartTurnRequest(session_id="s", text="hi", time_zone="Mars/Olympus")
        refused = await refusal(run_turn(alice.stub, request))
        assert refused.code is Code.INVALID_ARGUMENT
        assert "time_zone" in str(refused)
        assert 'such as "Europe/Berlin"' in str(refused)
        assert len(server.requests) == 3


async def test_a_turn_may_ask_for_another_model() -> None:
    async with talk(wire.says("ok")) as (alice, server):
        events = await alice.say("s", "hi", model="larger")
        assert events[0].started.model == "openai:larger"
        assert server.requests[0].body["model"] == "larger"
        assert (await alice.say("s", "hi"))[0].started.model == "openai:test-model"
        refused = await refusal(
            run_turn(alice.stub, pb.StartTurnRequest(session_id="s", text="hi", model="google:g"))
        )
        assert refused.code is Code.FAILED_PRECONDITION
        assert "accepted: offline, openai:MODEL" in refused.brief
        assert len(server.requests) == 2
        resolved = await alice.stub.ResolveModel(pb.ResolveModelRequest(model="larger"))
        assert (resolved.model, resolved.configured) == ("openai:larger", "openai:test-model")
        assert {each.name for each in resolved.providers if not each.unusable} == {
            "offline",
            "openai",
        }


async def test_notes_are_kept_with_the_message_and_leave_the_prefix_as_it_was() -> None:
    find = ("call-1", "memory_search", '{"query": "dog"}')
    note = ("call-2", "scratch_note", '{"mode": "replace", "content": "feed the dog"}')
    replies = wire.says("One."), wire.calls(find), wire.calls(note), wire.says("Two.")
    async with talk(*replies, wire.says("Three.")) as (alice, server):
        await alice.save("The boat is called Nina")
        await alice.save("The dog is called Rex")
        await alice.say("s", "what are the boat and the dog called?")
        await alice.say("s", "what is the dog called?")
        await alice.say("s", "and the boat?")
        requests = [request.body for request in server.requests]
        for earlier, later in itertools.pairwise(requests):
            assert later["messages"][: len(earlier["messages"])] == earlier["messages"]
            assert later["tools"][: len(earlier["tools"])] == earlier["tools"]
        assert requests[-1]["tools"][-1]["function"]["name"] == "scratch_note"
        first, second, *_, last = [request["messages"] for request in requests]
        assert [one["role"] for one in first] == ["system", "user"]
        assert re.fullmatch(
            r"\[This is the runtime, not the user\.\]\n\nWhat memory holds[^\n]+\n.*Nina.*\n\n"
            r"The user writes on \w+, [^\n]+:\n\nwhat are the boat and the dog called\?",
            first[1]["content"],
            re.DOTALL,
        )
        assert [one["role"] for one in second] == ["system", "user", "assistant", "user"]
        assert "Rex" in first[1]["content"]
        assert "Rex" not in second[3]["content"]
        assert "> feed the dog" in last[-1]["content"]
        assert "Nina" not in last[-1]["content"]


async def test_a_fallback_answers_for_a_model_that_fails_and_says_so() -> None:
    replies = wire.error("401 Unauthorized"), wire.says("ok"), wire.says("ok")
    async with talk(*replies, fallbacks=("openai:other",)) as (alice, server):
        events = await alice.say("s", "hi")
        notices = [event.notice.text for event in events if event.HasField("notice")]
        assert notices == ["openai:other answers, because openai:test-model has failed"]
        assert [request.body["model"] for request in server.requests] == ["test-model", "other"]
        assert events[-1].completed.model == "openai:other"
        again = await alice.say("s", "hi")
        assert again[-1].completed.model == "openai:test-model"
        assert not any(event.HasField("notice") for event in again)
        only = [wire.error("401 Unauthorized")]
        server.replies[:] = only
        failed = (await alice.say("s", "hi"))[-1].failed
        assert failed.message == f"provider 'openai' at {server.base_url} refused the API key"


@pytest.mark.parametrize("asked", [True, False])
async def test_thinking_and_caching_are_asked_for_where_the_provider_has_them(asked: bool) -> None:
    settings: dict[str, Any] = {"thinking": "low" if asked else "default", "prompt_cache": asked}
    async with openai_server(anthropic_replies.says("ok")) as server:
        url = server.base_url.removesuffix("/v1")
        served: dict[str, Any] = {"provider": "anthropic", "model": "claude-haiku-4-5"}
        async with open_gateways(api_key=KEY, base_url=url, **served, **settings) as gateways:
            alice = await gateways.serve("alice")
            await alice.session("s")
            assert await alice.answer("s", "hi") == "ok"
    body = server.requests[0].body
    assert ("thinking" in body) == asked
    assert ("cache_control" in json.dumps(body)) == asked


async def test_a_turn_with_ollama_goes_by_its_own_api_within_the_window_that_it_gave() -> None:
    with serving(ollama(tag("m", "tools", context_length=30_000), gives=12_000)) as server:
        where = f"http://127.0.0.1:{server.port}/v1"
        async with open_gateways(provider="ollama", model="m", base_url=where) as gateways:
            alice = await gateways.serve("alice")
            session = await alice.session()
            await alice.stub.ResolveModel(pb.ResolveModelRequest())
            hello = await alice.stub.Hello(pb.HelloRequest())  # before the first answer
            assert "the window of ollama:m is 16,384 tokens, as its server says" in hello.notices
            told = await alice.say(session, "remember that my cat is Tom")
            (receipt,) = (each.receipt for each in told if each.WhichOneof("event") == "receipt")
            assert (receipt.action, receipt.outcome) == ("saved", "done")
            assert told[-1].completed.input_tokens == 22
            answer = await alice.say(session, "hello")
            assert answer[-1].completed.text == "I do not know."
            asked = pb.GetTurnContextRequest(session_id=session)
            used = await alice.stub.GetTurnContext(asked)
    assert set(server.asked) == {"POST /api/show", "POST /api/chat", "GET /api/ps"}
    windows = [each["options"]["num_ctx"] for each in server.bodies if "options" in each]
    assert windows == [UNKNOWN] * 3
    assert used.window == 10_500


@pytest.mark.parametrize(
    ("provider", "hint"),
    [("lmstudio", "lms load m --context-length"), ("compatible", 'provider = "ollama"')],
)
async def test_a_server_that_cuts_without_a_word_is_told_of_with_what_helps(
    provider: str, hint: str
) -> None:
    cut = wire.stream({"role": "assistant", "content": "Yes."}, usage=(1_500, 2, 0))
    async with (
        openai_server(*[cut] * 3) as server,
        open_gateways(provider=provider, model="m", base_url=server.base_url) as gateways,
    ):
        alice = await gateways.serve("alice")
        session = await alice.session()
        turns = [await alice.say(session, f"{word} " * 4_000) for word in ("one", "two", "three")]
    told = [[each.notice.text for each in turn if each.HasField("notice")] for turn in turns]
    assert "without a word" in str(told[1])
    assert hint in str(told[1])
    assert "without a word" not in f"{told[0]}{told[2]}"
    assert turns[2][-1].completed.text == "Yes."


async def test_configured_instructions_follow_the_rules() -> None:
    async with talk(wire.says("ok"), instructions="Answer in verse.") as (alice, server):
        await alice.say("s", "hi")
        content = server.requests[0].body["messages"][0]["content"]
        assert content.index("never invent a result") < content.index("Answer in verse.")


async def test_the_tool_schemas_a_provider_receives_are_frozen() -> None:
    shell = shell_tools(cast(Any, None), cast(Any, None))[:1]
    async with talk(wire.says("ok"), tools=shell) as (alice, server):
        await alice.say("s", "hi")
        received = server.requests[0].body["tools"]
    if os.environ.get("OXYDRA_UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(json.dumps(received, indent=2) + "\n")
    assert received == json.loads(SNAPSHOT.read_text())


async def test_calls_in_text_make_the_round_trip_one_after_another() -> None:
    """However the library changes their ids: none is taken for a real one."""
    asked = [
        json.dumps({"name": "memory_save", "arguments": {"content": f"Cup {number}"}})
        for number in range(3)
    ]
    async with talk(*map(wire.says, asked), wire.says("Done.")) as (alice, server):
        events = await alice.say("s", "I like tea")
        assert events[-1].completed.text == "Done."
        assert sorted(await alice.texts()) == ["Cup 0", "Cup 1", "Cup 2"]
        told = server.requests[-1].body["messages"]
        assert [one["content"] for one in told if one["role"] == "assistant"] == asked
        assert {one["role"] for one in told} == {"system", "user", "assistant"}


async def test_tool_calls_make_the_round_trip() -> None:
    save = ("call-1", "memory_save", '{"content": "User likes tea"}')
    find = ("call-2", "memory_search", '{"query": "tea"}')
    async with talk(wire.calls(save), wire.calls(find), wire.says("You like tea.")) as (
        alice,
        server,
    ):
        events = await alice.say("s", "I like tea, keep that in mind")
        assert events[-1].completed.text == "You like tea."
        assert events[-1].completed.steps == 3
        finished = [
            event.tool_finished for event in events if event.WhichOneof("event") == "tool_finished"
        ]
        assert [(call.tool, call.ok) for call in finished] == [
            ("memory_save", True),
            ("memory_search", True),
        ]
        notes = (await alice.stub.ListNotes(pb.ListNotesRequest())).notes
        assert [note.text for note in notes] == ["User likes tea"]
        call, result = server.requests[1].body["messages"][-2:]
        assert re.fullmatch("[A-Za-z0-9]{9}", call["tool_calls"][0]["id"])
        assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {
            "content": "User likes tea"
        }
        assert (result["role"], result["tool_call_id"]) == ("tool", call["tool_calls"][0]["id"])
        assert json.loads(result["content"].split("\nNote")[0])["note_id"] == notes[0].note_id
        found = json.loads(server.requests[2].body["messages"][-1]["content"].split("\nNote")[0])
        assert [hit["note_id"] for hit in found] == [notes[0].note_id]


async def test_a_bad_argument_goes_back_in_words_and_is_corrected() -> None:
    async with talk(
        wire.calls(("call-1", "memory_search", '{"query": "tea", "top_k": 99}')),
        wire.calls(("call-2", "memory_search", '{"query": ')),
        wire.calls(("call-3", "memory_search", '{"query": "tea"}')),
        wire.says("Nothing."),
    ) as (alice, server):
        events = await alice.say("s", "what do I drink?")
        assert events[-1].completed.text == "Nothing."
        said = [request.body["messages"][-1]["content"] for request in server.requests[1:]]
        assert "top_k" in said[0]
        assert "99" in said[0]
        assert "JSON" in said[1]
        assert said[2].startswith("[]")


async def test_a_session_goes_on_where_it_was() -> None:
    find = ("call-1", "memory_search", '{"query": "tea"}')
    async with talk(wire.calls(find), wire.says("No."), wire.says("As I said.")) as (alice, server):
        await alice.say("s", "do I like tea?")
        await alice.say("s", "sure?")
        roles = [message["role"] for message in wire.untimed(server.requests[-1])]
        assert roles == ["system", "user", "assistant", "tool", "assistant", "user"]


def plain(status: str, message: str, kind: str = "text/plain") -> Reply:
    return wire.raw(status, kind, message.encode())


AS_SAID: tuple[tuple[Reply, str, str, str, str], ...] = (
    (
        wire.error("401 Unauthorized", f"Incorrect API key provided: {KEY}"),
        "failed_precondition",
        "refused the API key",
        "runner credentials set --provider openai",
        "Incorrect API key provided: [redacted]",
    ),
    (
        wire.error("404 Not Found", "no such model", code="model_not_found"),
        "failed_precondition",
        "knows no model 'test-model'",
        "correct model",
        "no such model",
    ),
    (
        wire.error("404 Not Found", "model 'm' not found, try pulling it first"),  # Ollama
        "failed_precondition",
        "knows no model",
        "runner config edit",
        "try pulling it first",
    ),
    (
        wire.error("400 Bad Request", "x/y is not a valid model ID"),  # OpenRouter
        "failed_precondition",
        "knows no model",
        "correct model",
        "x/y is not a valid model ID",
    ),
    (
        plain("404 Not Found", "404 page not found"),  # Ollama without /v1
        "failed_precondition",
        "has no chat API at this address",
        "ends in /v1",
        "404 page not found",
    ),
    (
        plain("404 Not Found", '{"detail":"Not Found"}', "application/json"),
        "failed_precondition",
        "has no chat API at this address",
        "ends in /v1",
        "Not Found",
    ),
    (
        wire.error("400 Bad Request", "registry.ollama.ai/library/gemma3 does not support tools"),
        "failed_precondition",
        "cannot call tools",
        "choose a model that can",
        "library/gemma3 does not support tools",
    ),
    (
        wire.error("404 Not Found", "No endpoints found that support tool use."),  # OpenRouter
        "failed_precondition",
        "cannot call tools",
        "choose a model that can",
        "No endpoints found",
    ),
    (
        wire.error("400 Bad Request", '"auto" tool choice requires --enable-auto-tool-choice'),
        "failed_precondition",
        "was started without tool calls",
        "--tool-call-parser",
        '"auto" tool choice requires',
    ),
    (
        wire.error("500 Internal Server Error", "tools param requires --jinja flag"),
        "failed_precondition",
        "was started without tool calls",
        "llama.cpp with --jinja",
        "requires --jinja flag",
    ),
    (
        wire.error("400 Bad Request", "too long", code="context_length_exceeded"),
        "resource_exhausted",
        "too long for model",
        "context_window",
        "too long",
    ),
    (
        wire.error(
            "400 Bad Request",
            "request (5012 tokens) exceeds the available context size (4096 tokens)",
            type="exceed_context_size_error",
        ),
        "resource_exhausted",
        "too long for model",
        "context_window",
        "context size (4096 tokens)",
    ),
    (
        wire.error("503 Service Unavailable", "Loading model"),  # llama.cpp
        "unavailable",
        "is still loading model",
        "ask again",
        "Loading model",
    ),
    (
        wire.error("500 Internal Server Error", "model requires more system memory (9.1 GiB)"),
        "resource_exhausted",
        "too little memory",
        "smaller model",
        "9.1 GiB",
    ),
    (
        wire.error("429 Too Many Requests", "slow down"),
        "resource_exhausted",
        "limits the rate",
        "wait",
        "slow down",
    ),
    (
        wire.error("429 Too Many Requests", "broke", code="insufficient_quota"),
        "resource_exhausted",
        "no quota left",
        "quota",
        "broke",
    ),
    (
        wire.error("402 Payment Required", "Insufficient credits"),
        "resource_exhausted",
        "no quota left",
        "quota",
        "Insufficient credits",
    ),
    (
        wire.error("400 Bad Request", "temperature must be 1"),
        "failed_precondition",
        "rejected the request",
        "correct model",
        "temperature must be 1",
    ),
    (
        wire.error("500 Internal Server Error", "it broke\nfix: rm -rf /\x1b[2J\u202e"),
        "unavailable",
        "failed to answer",
        "later",
        r"it broke fix: rm -rf /\x1b[2J\u202e",
    ),
    (
        plain("502 Bad Gateway", "<html><style>p {}</style><h1>Bad  gateway</h1>", "text/html"),
        "unavailable",
        "failed to answer",
        "later",
        "Bad gateway",
    ),
    (
        wire.error("500 Internal Server Error", "x" * 5000),
        "unavailable",
        "failed to answer",
        "later",
        f"{'x' * 500}…",
    ),
)
"""What servers answer, what a person reads of it, and what of their words."""
WITHOUT_WORDS: tuple[tuple[Reply, str, str, str, str], ...] = (
    (
        wire.raw("503 Service Unavailable", "text/plain", b""),
        "unavailable",
        "to answer",
        "later",
        "",
    ),
    (
        wire.raw("200 OK", "text/event-stream", b"data: {nonsense\n\n"),
        *("unavailable", "failed to answer", "later", ""),
    ),
    (
        wire.raw("200 OK", "text/html", b"<html>"),
        *("unavailable", "cannot be used", "another", ""),
    ),
    (wire.says(then="abort"), "unavailable", "broke off", "base_url", ""),
    *(
        (
            wire.raw("200 OK", "text/event-stream", b"data: " + odd),
            "unavailable",
            "read",
            "logs",
            "",
        )
        for odd in (
            b'{"choices": [], "usage": ["many"]}\n\n',
            b'{"choices": 7}\n\n',
            b'{"choices": [{"index": 0, "delta": "Well."}]}\n\n',
            b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}\n\n",
        )
    ),
)


@pytest.mark.parametrize(("reply", "code", "message", "hint", "words"), [*AS_SAID, *WITHOUT_WORDS])
async def test_a_failing_provider_fails_the_turn_in_clear_words(
    reply: Reply,
    code: str,
    message: str,
    hint: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One sentence of ours, the provider's own words as its own, and the fix; never the key."""
    retried_at_once(monkeypatch)
    async with talk(reply) as (alice, server):
        events = await alice.say("s", "hi")
        failed = events[-1].failed
        assert failed.code == code
        assert message in failed.message
        assert hint in failed.resolution
        assert failed.details.startswith('the provider says: "') == bool(words)
        assert words in failed.details
        assert len(failed.details) < 600
        assert failed.details.isprintable()
        assert KEY not in "".join(map(str, events))
        if "model '" not in message and "too long" not in message and "provider" in failed.message:
            assert f"provider 'openai' at {server.base_url}" in failed.message
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [event.text for event in history.events if event.role == "assistant"] == []


async def test_the_key_a_provider_quotes_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    secret = "s3cret-t0ken"  # what the gateways's scrubber knows
    async with talk(wire.error("401 Unauthorized", f"bad key {secret}")) as (alice, _):
        await alice.say("s", "hi")
    assert "refused the API key" in caplog.text
    assert secret not in caplog.text


@pytest.mark.parametrize("reply", [wire.never(), wire.says("So far", then="hang")])
async def test_a_slow_provider_meets_the_time_budget(reply: Reply) -> None:
    async with talk(reply, turn_timeout_s=0.3) as (alice, _):
        assert (await alice.say("s", "hi"))[-1].failed.code == "timeout"


async def test_a_provider_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    retried_at_once(monkeypatch)
    async with open_gateways(
        provider="openai", model="m", base_url="http://127.0.0.1:9/v1"
    ) as gateways:
        alice = await gateways.serve("alice")
        failed = (await alice.say(await alice.session(), "hi"))[-1].failed
        assert failed.code == "unavailable"
        assert "http://127.0.0.1:9/v1 refuses connections" in failed.message
        assert failed.details == "Connection refused"
        assert failed.resolution.startswith("start that server, or correct base_url")


async def test_cancelling_a_turn_closes_the_connection_to_the_provider() -> None:
    async with talk(wire.says("So far. And", then="hang"), wire.says("Back.")) as (alice, server):
        call = await alice.begin("s", "t")
        assert (await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t"))).cancelled
        assert [event async for event in call][-1].failed.code == "cancelled"
        events = await alice.say("s", "again")
        assert events[-1].completed.text == "Back."
        assert len(server.requests) == 2

"""Every kind of request that the agent makes, rendered by llama.cpp's own server with each chat
template that llama.cpp ships."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from wire.settings import AgentSettings
from wire.v1 import gateway_pb2 as pb

from guest.agent.models.providers import try_model
from tests.support.gateway.gateways import Client, open_gateways
from tests.support.servers import openai_server as wire
from tests.support.servers.llama import TEMPLATES, refusals
from tests.support.servers.openai_server import OpenAIServer, Reply, Request, openai_server

pytestmark = pytest.mark.llama

NO_TOOL_ROLE: Final = ("google-gemma-2-2b-it",)
"""These templates have no role for the result of a tool, and refuse it from everybody."""

_LIST: Final = ("c1", "file_list", '{"path": "/shared"}')
_SEARCH: Final = ("c2", "memory_search", '{"query": "boat"}')
_SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_LONG: Final = "The garden has a tap that must be closed before the first frost. " * 140


class Recorder:
    """Names what the provider is asked."""

    def __init__(self, alice: Client, server: OpenAIServer) -> None:
        self.requests: dict[str, tuple[str, Any]] = {}
        self._alice, self._server = alice, server

    def expect(self, kind: str, *replies: Reply) -> None:
        """The next requests are of this kind, and are answered by these."""
        self.keep()
        self.kind = kind
        self._server.replies[:] = replies

    def keep(self) -> None:
        for number, request in enumerate(self._server.requests, 1):
            self.requests.setdefault(
                _shape(request.body), (f"{self.kind}, request {number}", request.body)
            )
        self._server.requests.clear()

    async def say(self, kind: str, *replies: Reply, session: str = "", **fields: Any) -> None:
        """Ask something in a session of its own, unless it is named."""
        self.expect(kind, *replies)
        if not fields.get("untraced"):
            session = await self._alice.session(session)
        await self._alice.say(session, fields.pop("text", "where does the boat lie?"), **fields)


def _shape(body: dict[str, Any]) -> str:
    """What may matter to a template: everything but the texts."""
    messages = [
        (one["role"], bool(one.get("content")), len(one.get("tool_calls", ())))
        for one in body["messages"]
    ]
    tools = [tool["function"]["name"] for tool in body.get("tools", ())]
    return repr((messages, tools, sorted(body)))


async def every_kind(wrapped: Any) -> dict[str, Any]:
    """The requests of one user's turns of all kinds. `wrapped` makes each reply of the provider."""

    def says(*pieces: str, **how: Any) -> Reply:
        reply: Reply = wrapped(wire.says(*pieces, **how))
        return reply

    def calls(*named: tuple[str, str, str]) -> Reply:
        reply: Reply = wrapped(wire.calls(*named))
        return reply

    async with (
        openai_server(says("Hello.")) as server,
        open_gateways(
            provider="compatible",
            model="test-model",
            base_url=server.base_url,
            context_window=16_000,
        ) as gateways,
    ):
        alice = await gateways.serve("alice")
        (gateways.path / "shared" / "list.txt").write_text("tent\nstove\n")
        recorder = Recorder(alice, server)
        say = recorder.say
        await say("a first message", says("Hello."))
        await alice.save("The boat is called Nina and lies in Luebeck")
        await say("with a recalled note", says("In Luebeck."), session="s")
        await say("one call", calls(_LIST), says("A list."), session="s")
        await say("two calls at once", calls(_LIST, _SEARCH), says("Both."), session="s")
        await say(
            "calls that fail",
            calls(("c3", "file_read", '{"path": "/nowhere"}')),
            calls(("c4", "no_such_tool", "{}")),
            calls(("c5", "memory_update", '{"note_id": 5}')),
            says("It did not work."),
        )
        await say("an empty answer", says(""), says("Again."))
        await say("white space, after a result", calls(_LIST), says("  \n"), says("Again."))
        await say(
            "nothing was saved", says("Sure."), says("OK."), text="remember that tea is at five"
        )
        await say("a turn that fails", wire.error("401 Unauthorized"), session="failed")
        await say("after a turn that failed", says("Now."), session="failed")
        await say("asked again", says("Once more."), text="", retry=True, session="failed")
        recorder.expect("a turn that is stopped", wrapped(wire.says("It lies", then="hang")))
        running = await alice.begin(await alice.session("stopped"), "stopped")
        await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="stopped"))
        async for _ in running:
            pass
        await say("after a turn that was stopped", says("Yes."), session="stopped")
        await say(
            "a handoff and a scratchpad",
            calls(
                ("c6", "write_session_handoff", '{"content": "The boat is sold."}'),
                ("c7", "scratch_note", '{"content": "Ask for the price."}'),
            ),
            says("Noted."),
        )
        await say("another session", says("It is sold."))
        form = pb.AnswerForm(schema_json=json.dumps(_SCHEMA))
        await say("an answer in JSON", says("no"), says('{"a": 1}'), form=form)
        await say(
            "with a client's tool and text",
            says("Ready."),
            instructions="Be brief.",
            material="A file is open.",
            attachments=["/shared/list.txt"],
            client_tools=[
                pb.ToolDescription(
                    name="open", description="Opens.", arguments_schema_json=json.dumps(_SCHEMA)
                )
            ],
        )
        await say("of which nothing is kept", says("A title."), untraced=True)
        for number in range(8):
            await say(f"long {number}", says(_LONG), session="u", text=f"{number} {_LONG}")
        recorder.expect("the trial of a model", calls(("c8", "ready", '{"word": "yes"}')))
        settings = AgentSettings.model_construct(
            provider="compatible", model="test-model", base_url=server.base_url
        )
        await try_model(settings, "")
        recorder.keep()
    return dict(recorder.requests.values())


def without_tool_role(reply: Reply) -> Reply:
    """A provider that refuses results as Gemma 2's template does."""
    refuses = wire.error(
        "400 Bad Request",
        "Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/...",
    )

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await (refuses if _has_results(request.body) else reply)(request, writer)

    return answer


def _has_results(body: dict[str, Any]) -> bool:
    return any(message["role"] == "tool" for message in body["messages"])


def paths(*names: str) -> list[Path]:
    """The templates with these names. Raises `FileNotFoundError` if one is not there."""
    return [(TEMPLATES / f"{name}.jinja").resolve(strict=True) for name in names]


async def test_each_template_takes_each_request() -> None:
    requests = await every_kind(lambda reply: reply)
    assert any("summary" in json.dumps(body).lower() for body in requests.values())
    assert any(map(_has_results, requests.values()))
    every = {path.stem for path in TEMPLATES.iterdir()}
    assert len(every) >= 60
    found = await refusals(requests, paths(*sorted(every - {*NO_TOOL_ROLE})))
    assert {name: refused for name, refused in found.items() if refused} == {}


async def test_a_template_without_a_role_for_results_gets_them_as_text() -> None:
    requests = await every_kind(without_tool_role)
    refused = {name: body for name, body in requests.items() if _has_results(body)}
    found = await refusals(requests, paths(*NO_TOOL_ROLE))
    assert len(found) == len(NO_TOOL_ROLE)
    for template, said in found.items():
        assert set(said) <= set(refused), template

"""Every RPC over a real socket with a real token, memory and tools."""

import json

from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from tests.support.gateway.gateways import Client, Gateways, open_gateways, refusal
from tests.support.memory.store import FakeEmbedder, away


async def test_hello_tells_who_and_what_and_how_well(gateways: Gateways) -> None:
    alice = await gateways.serve("alice")
    hello = await alice.stub.Hello(pb.HelloRequest(client="test"))
    assert (hello.user_id, hello.tier, hello.provider) == ("alice", "process", "offline")
    assert hello.shell == "no shell in this test"
    assert hello.embedder == "ready"
    assert list(hello.notices) == ["a notice"]


async def test_hello_says_that_the_embedder_is_out_of_order_and_not_that_none_is_wanted() -> None:
    broken = FakeEmbedder()
    broken.error = away()
    for embedder, state, notices in (
        (broken, "away", ["memory searches by keyword only for now; the embedder: away"]),
        (None, "disabled", []),
    ):
        async with open_gateways(embedder=embedder) as gateways:
            alice = await gateways.serve("alice")
            hello = await alice.stub.Hello(pb.HelloRequest())
        assert hello.embedder == state
        assert list(hello.notices) == ["a notice", *notices]


async def test_the_whole_life_of_a_note_through_turns(alice: Client) -> None:
    session = await alice.session()
    saved = await alice.say(session, "remember that my name is Shantanu")
    kinds = [event.WhichOneof("event") for event in saved]
    assert kinds == ["started", "tool_started", "tool_finished", "receipt", "text", "completed"]
    assert [event.index for event in saved] == list(range(6))
    finished = saved[2].tool_finished
    assert finished.ok
    assert finished.summary.startswith("Stored: [id: note-")
    note_id = finished.summary.split("[id: ")[1].split("]")[0]
    assert "my name is Shantanu" in await alice.answer(session, "what do you know about my name?")
    updated = await alice.answer(session, "correct that: I prefer to be called SG")
    assert note_id in updated
    found = await alice.answer(session, "what do you know about my name?")
    assert "I prefer to be called SG" in found
    assert "Shantanu" not in found
    note = await alice.stub.GetNote(pb.GetNoteRequest(note_id=note_id))
    assert note.version == 2
    assert (note.origin.actor, note.origin.channel) == ("user", "test")
    assert note.origin.session_id == session
    denied = await alice.answer(session, "read /../.oxydra/memory.db")
    assert "path is outside /shared, /tmp and /vault" in denied
    assert note_id in await alice.answer(session, "forget my name")
    gone = await alice.answer(session, "what do you know about my name?")
    assert gone.startswith("I know nothing about your name.")
    assert (await refusal(alice.stub.GetNote(pb.GetNoteRequest(note_id=note_id)))).code is (
        Code.NOT_FOUND
    )


async def test_sessions_are_created_resumed_listed_and_read(alice: Client) -> None:
    request = pb.CreateSessionRequest(session_id="work", title="At work", channel="chat")
    first = await alice.stub.CreateSession(request)
    assert (first.session_id, first.title, first.channel, first.turns) == (
        "work",
        "At work",
        "chat",
        0,
    )
    await alice.answer("work", "help")
    again = await alice.stub.CreateSession(pb.CreateSessionRequest(session_id="work"))
    assert (again.title, again.turns) == ("At work", 1)
    made = await alice.session()
    listed = await alice.stub.ListSessions(pb.ListSessionsRequest())
    assert {session.session_id for session in listed.sessions} == {"work", made}
    one = await alice.stub.ListSessions(pb.ListSessionsRequest(limit=1))
    assert len(one.sessions) == 1
    history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="work"))
    assert [event.role for event in history.events] == ["user", "assistant"]
    assert history.events[0].text == "help"
    assert history.session.turns == 1
    last = await alice.stub.GetSession(pb.GetSessionRequest(session_id="work", limit=1))
    assert [event.role for event in last.events] == ["assistant"]


async def test_tools_are_listed_and_called_through_the_same_pipeline(alice: Client) -> None:
    tools = (await alice.stub.ListTools(pb.ListToolsRequest())).tools
    by_name = {tool.name: tool for tool in tools}
    assert by_name["memory_search"].safety == "read_only"
    assert by_name["memory_save"].safety == "side_effecting"
    assert "query" in json.loads(by_name["memory_search"].arguments_schema_json)["properties"]
    saved = await alice.stub.CallTool(
        pb.CallToolRequest(
            name="memory_save", arguments_json='{"content": "I like tea"}', channel="cli"
        )
    )
    assert not saved.is_error
    note_id = json.loads(saved.text.split("\nNote: ")[0])["note_id"]
    note = await alice.stub.GetNote(pb.GetNoteRequest(note_id=note_id))
    assert note.origin.channel == "cli"
    for name, arguments in (("memory_save", "{}"), ("memory_save", "{"), ("no_such_tool", "{}")):
        bad = await alice.stub.CallTool(pb.CallToolRequest(name=name, arguments_json=arguments))
        assert bad.is_error
        assert bad.text

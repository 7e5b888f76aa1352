"""Every RPC over a real socket with a real token, memory and tools."""

import json

import grpc
import pytest
from wire.errors import Code
from wire.status import from_rpc_error
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


async def test_unrelated_notes_are_no_facts_about_another_topic(alice: Client) -> None:
    session = await alice.session()
    for fact in ("my dog is called Rex", "the boiler is due in May", "I work at a bakery"):
        await alice.answer(session, f"remember that {fact}")
    nothing = await alice.answer(session, "what do you know about my name?")
    assert nothing.startswith("I know nothing about your name")


async def test_files_through_turns(alice: Client) -> None:
    session = await alice.session()
    await alice.answer(session, "write /shared/list.txt: milk\nbread")
    assert await alice.answer(session, "read /shared/list.txt") == "milk\nbread"
    assert "/shared/list.txt  (file)" in await alice.answer(session, "list /shared")
    assert "/shared/list.txt:2: bread" in await alice.answer(session, "find bread in /shared")
    assert "read-only" in await alice.answer(session, "write /vault/x: y")
    assert "There is no shell here" in await alice.answer(session, "run ls")


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


async def test_notes_are_administered_by_their_user(alice: Client) -> None:
    session = await alice.session()
    for fact in ("I like tea", "I like rain", "I like trains"):
        await alice.answer(session, f"remember that {fact}")
    page = await alice.stub.ListNotes(pb.ListNotesRequest(limit=2))
    assert [note.text for note in page.notes] == ["I like trains", "I like rain"]
    rest = await alice.stub.ListNotes(pb.ListNotesRequest(limit=2, cursor=page.next_cursor))
    assert [note.text for note in rest.notes] == ["I like tea"]
    assert rest.next_cursor == ""
    note_id = rest.notes[0].note_id
    edited = await alice.stub.EditNote(
        pb.EditNoteRequest(note_id=note_id, text="I like mate", tags=["drink"], replace_tags=True)
    )
    assert (edited.text, list(edited.tags), edited.version) == ("I like mate", ["drink"], 2)
    assert edited.origin.actor == "user"
    kept = await alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text="I like cocoa"))
    assert list(kept.tags) == ["drink"]
    with pytest.raises(grpc.RpcError) as raised:
        await alice.stub.EditNote(
            pb.EditNoteRequest(note_id=note_id, text="I like beer", expected_version=2)
        )
    refused = from_rpc_error(raised.value)
    assert refused.code is Code.CONFLICT
    assert "I like cocoa" in refused.details
    found = await alice.stub.SearchNotes(pb.SearchNotesRequest(query="cocoa", tags=["drink"]))
    assert [(note.note_id, note.text) for note in found.notes] == [(note_id, "I like cocoa")]
    assert found.notes[0].matched_by in ("keyword", "both")
    assert 0 < found.notes[0].score <= 1
    await alice.stub.DeleteNote(pb.DeleteNoteRequest(note_id=note_id))
    assert (await refusal(alice.stub.DeleteNote(pb.DeleteNoteRequest(note_id=note_id)))).code is (
        Code.NOT_FOUND
    )
    counts = await alice.stub.MemoryStatistics(pb.MemoryStatisticsRequest())
    assert (counts.notes, counts.sessions) == (2, 1)
    assert counts.conversation_events == 3 * 4
    assert counts.database_bytes > 0
    assert counts.embedder == "ready"


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

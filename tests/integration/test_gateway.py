"""Every RPC over a real socket with a real token, memory and tools; good input and bad."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS, QUERY_MAX_CHARS, TURN_TEXT_MAX_CHARS
from wire.status import from_rpc_error
from wire.transport import open_channel
from wire.v1 import gateway_pb2 as pb
from wire.v1 import gateway_pb2_grpc

from guest.gateway.service import GuestInfo
from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from tests.integration.gateway_house import INFO, Client, House, open_house, refusal


def tool_call(name: str, **arguments: Any) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(name, json.dumps(arguments), tool_call_id="c0")}


async def test_hello_tells_who_and_what_and_how_well(house: House) -> None:
    alice = await house.serve("alice")
    hello = await alice.stub.Hello(pb.HelloRequest(client="test"))
    assert (hello.user_id, hello.tier, hello.provider) == ("alice", "process", "offline")
    assert hello.shell == "no shell in this test"
    assert hello.embedder == "ready"
    assert list(hello.notices) == ["a notice"]
    bob = await house.serve("bob", GuestInfo("process", "offline", "m", "ready", "0", "is off"))
    hello = await bob.stub.Hello(pb.HelloRequest())
    assert hello.embedder == "is off"
    assert "by keyword only" in hello.notices[-1]
    assert INFO.embedder_reason == ""


async def test_the_whole_life_of_a_note_through_turns(alice: Client) -> None:
    session = await alice.session()
    saved = await alice.say(session, "remember that my name is Shantanu")
    kinds = [event.WhichOneof("event") for event in saved]
    assert kinds == ["started", "tool_started", "tool_finished", "text", "completed"]
    assert [event.index for event in saved] == list(range(5))
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


async def test_without_an_embedder_the_main_job_holds() -> None:
    async with open_house() as house:
        alice = await house.serve("alice")
        session = await alice.session()
        await alice.answer(session, "remember that my name is Shantanu")
        await alice.answer(session, "what do you know about my name?")
        await alice.answer(session, "correct that: I prefer to be called SG")
        found = await alice.answer(session, "what do you know about my name?")
        assert "I prefer to be called SG" in found
        assert "Note: semantic search is unavailable" in found


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


async def test_a_session_is_resumed_after_a_restart() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        async with open_house(path=Path(place)) as house:
            alice = await house.serve("alice")
            await alice.session("mine")
            await alice.answer("mine", "remember that tea is at five")
        async with open_house(path=Path(place)) as house:
            alice = await house.serve("alice")
            await alice.session("mine")
            changed = await alice.answer("mine", "correct that: tea is at six")
            assert "Updated: tea is at six" in changed


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


async def test_conversations_are_searched_on_request(alice: Client) -> None:
    session = await alice.session()
    await alice.answer(session, "the zeppelin leaves at noon")
    request = pb.SearchNotesRequest(query="zeppelin", include_conversation=True)
    found = await alice.stub.SearchNotes(request)
    assert [note.source for note in found.notes][:1] == ["conversation"]
    assert found.notes[0].note_id == ""


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


def too_long(limit: int) -> str:
    return "x" * (limit + 1)


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("session_id", lambda s: s.CreateSession(pb.CreateSessionRequest(session_id="../x"))),
        ("session_id", lambda s: s.CreateSession(pb.CreateSessionRequest(session_id="x" * 65))),
        ("title", lambda s: s.CreateSession(pb.CreateSessionRequest(title="x" * 201))),
        ("channel", lambda s: s.CreateSession(pb.CreateSessionRequest(channel="a b"))),
        ("limit", lambda s: s.ListSessions(pb.ListSessionsRequest(limit=1001))),
        ("session_id", lambda s: s.GetSession(pb.GetSessionRequest())),
        ("limit", lambda s: s.GetSession(pb.GetSessionRequest(session_id="s", limit=2**32 - 1))),
        ("text", lambda s: s.RunTurn(pb.RunTurnRequest(session_id="s", text=" "))),
        (
            "text",
            lambda s: s.RunTurn(
                pb.RunTurnRequest(session_id="s", text=too_long(TURN_TEXT_MAX_CHARS))
            ),
        ),
        ("text", lambda s: s.RunTurn(pb.RunTurnRequest(session_id="s", text="a\0b"))),
        ("session_id", lambda s: s.RunTurn(pb.RunTurnRequest(text="hi"))),
        ("turn_id", lambda s: s.RunTurn(pb.RunTurnRequest(session_id="s", text="x", turn_id="/"))),
        ("turn_id", lambda s: s.CancelTurn(pb.CancelTurnRequest())),
        ("approval_id", lambda s: s.AnswerApproval(pb.AnswerApprovalRequest())),
        ("name", lambda s: s.CallTool(pb.CallToolRequest())),
        ("session_id", lambda s: s.CallTool(pb.CallToolRequest(name="file_read", session_id="/"))),
        ("limit", lambda s: s.ListNotes(pb.ListNotesRequest(limit=5000))),
        ("cursor", lambda s: s.ListNotes(pb.ListNotesRequest(cursor="made up"))),
        ("query", lambda s: s.SearchNotes(pb.SearchNotesRequest(query=" "))),
        (
            "query",
            lambda s: s.SearchNotes(pb.SearchNotesRequest(query=too_long(QUERY_MAX_CHARS))),
        ),
        ("top_k", lambda s: s.SearchNotes(pb.SearchNotesRequest(query="x", top_k=21))),
        ("tags", lambda s: s.SearchNotes(pb.SearchNotesRequest(query="x", tags=["x"] * 17))),
        ("note_id", lambda s: s.GetNote(pb.GetNoteRequest(note_id="' OR 1=1"))),
        ("note_id", lambda s: s.EditNote(pb.EditNoteRequest(text="x"))),
        (
            "text",
            lambda s: s.EditNote(pb.EditNoteRequest(note_id="n", text=too_long(NOTE_MAX_CHARS))),
        ),
        ("text", lambda s: s.EditNote(pb.EditNoteRequest(note_id="n", text=""))),
        ("note_id", lambda s: s.DeleteNote(pb.DeleteNoteRequest())),
    ],
)
async def test_bad_input_is_refused_naming_the_field(
    alice: Client, field: str, call: Callable[[Any], Any]
) -> None:
    error = await refusal(call(alice.stub))
    assert error.code is Code.INVALID_ARGUMENT
    assert error.brief.startswith(f"bad {field}")


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.GetSession(pb.GetSessionRequest(session_id="nobodys")),
        lambda s: s.RunTurn(pb.RunTurnRequest(session_id="nobodys", text="hi")),
        lambda s: s.CallTool(pb.CallToolRequest(name="file_list", session_id="nobodys")),
        lambda s: s.GetNote(pb.GetNoteRequest(note_id="note-nobodys")),
        lambda s: s.EditNote(pb.EditNoteRequest(note_id="note-nobodys", text="x")),
    ],
)
async def test_what_is_not_there_is_not_found(alice: Client, call: Callable[[Any], Any]) -> None:
    error = await refusal(call(alice.stub))
    assert error.code is Code.NOT_FOUND
    assert "nobodys" in error.brief


async def test_what_belongs_to_another_user_is_not_there(house: House, alice: Client) -> None:
    bob = await house.serve("bob")
    session = await bob.session("bobs")
    await bob.answer(session, "remember that my safe word is heron")
    note_id = (await bob.stub.ListNotes(pb.ListNotesRequest())).notes[0].note_id
    for call in (
        alice.stub.CreateSession(pb.CreateSessionRequest(session_id="bobs")),
        alice.stub.GetSession(pb.GetSessionRequest(session_id="bobs")),
        alice.stub.RunTurn(pb.RunTurnRequest(session_id="bobs", text="hi")),
        alice.stub.GetNote(pb.GetNoteRequest(note_id=note_id)),
        alice.stub.EditNote(pb.EditNoteRequest(note_id=note_id, text="x")),
        alice.stub.DeleteNote(pb.DeleteNoteRequest(note_id=note_id)),
    ):
        assert (await refusal(call)).code is Code.NOT_FOUND
    assert not (await alice.stub.ListNotes(pb.ListNotesRequest())).notes
    assert (await bob.stub.GetNote(pb.GetNoteRequest(note_id=note_id))).version == 1


async def test_another_users_token_opens_nothing(house: House, alice: Client) -> None:
    bob = await house.serve("bob")
    async with open_channel(alice.address, bob.token) as channel:
        stub = gateway_pb2_grpc.GatewayStub(channel)
        for call in (
            stub.Hello(pb.HelloRequest()),
            stub.RunTurn(pb.RunTurnRequest(session_id="s", text="hi")),
            stub.ListNotes(pb.ListNotesRequest()),
        ):
            assert (await refusal(call)).code is Code.UNAUTHENTICATED


# Turns that take their time


async def _slow_words(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
    yield "so far. And"
    await asyncio.sleep(60)


async def test_a_busy_session_refuses_and_a_cancelled_turn_is_recorded() -> None:
    async with open_house(with_model=FunctionModel(stream_function=_slow_words)) as house:
        alice = await house.serve("alice")
        await alice.session("s")
        request = pb.RunTurnRequest(session_id="s", text="hi", turn_id="t1")
        stream = aiter(alice.stub.RunTurn(request))
        assert (await anext(stream)).WhichOneof("event") == "started"
        assert (await anext(stream)).text.text == "so far."
        busy = await refusal(alice.stub.RunTurn(pb.RunTurnRequest(session_id="s", text="hi")))
        assert busy.code is Code.CONFLICT
        assert "t1" in busy.brief
        assert busy.resolution
        assert (await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="t1"))).cancelled
        assert (await anext(stream)).failed.code == "cancelled"
        again = pb.CancelTurnRequest(turn_id="t1")
        assert not (await alice.stub.CancelTurn(again)).cancelled
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        assert [event.text for event in history.events] == ["hi", "so far."]
        used = pb.RunTurnRequest(session_id="s", text="hi", turn_id="t1")
        assert (await refusal(alice.stub.RunTurn(used))).code is Code.ALREADY_EXISTS


async def test_leaving_the_stream_cancels_the_turn() -> None:
    stopped = asyncio.Event()

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        if stopped.is_set():
            yield "welcome back"
            return
        try:
            yield "so far. And"
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with open_house(with_model=FunctionModel(stream_function=model)) as house:
        alice = await house.serve("alice")
        await alice.session("s")
        call = alice.stub.RunTurn(pb.RunTurnRequest(session_id="s", text="hi", turn_id="t1"))
        stream = aiter(call)
        await anext(stream)
        await anext(stream)
        call.cancel()
        await asyncio.wait_for(stopped.wait(), 60)
        assert await alice.answer("s", "I am back") == "welcome back"
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="s"))
        texts = [event.text for event in history.events]
        assert texts == ["hi", "so far.", "I am back", "welcome back"]


async def test_sessions_of_one_user_run_side_by_side() -> None:
    together = asyncio.Barrier(3)

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        await asyncio.wait_for(together.wait(), 60)
        yield "met"

    async with open_house(with_model=FunctionModel(stream_function=model)) as house:
        alice = await house.serve("alice")
        sessions = [await alice.session() for _ in range(3)]
        answers = await asyncio.gather(*(alice.answer(session, "go") for session in sessions))
        assert answers == ["met"] * 3


async def _nothing(_: ToolContext, __: Any) -> ToolOutput:
    return ToolOutput({"ran": True}, summary="ran")


RISKY = Tool("risky", "Does something risky.", Arguments, Safety.PRIVILEGED, 5.0, _nothing)


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_travels_to_the_user_and_back(approved: bool) -> None:
    replies = [tool_call("risky"), "done"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0)

    async with open_house(
        with_model=FunctionModel(stream_function=model), tools=[RISKY], approval="ask"
    ) as house:
        alice = await house.serve("alice")
        await alice.session("s")
        seen = []
        async for event in alice.stub.RunTurn(pb.RunTurnRequest(session_id="s", text="go")):
            seen.append(event.WhichOneof("event"))
            if event.WhichOneof("event") == "approval":
                answer = pb.AnswerApprovalRequest(
                    approval_id=event.approval.approval_id, approved=approved
                )
                assert (await alice.stub.AnswerApproval(answer)).accepted
                assert not (await alice.stub.AnswerApproval(answer)).accepted
            if event.WhichOneof("event") == "tool_finished":
                assert event.tool_finished.ok is approved
        assert seen == ["started", "tool_started", "approval", "tool_finished", "text", "completed"]
        unasked = await alice.stub.CallTool(pb.CallToolRequest(name="risky"))
        assert unasked.is_error


async def test_secrets_in_arguments_reach_no_event() -> None:
    replies = [tool_call("file_read", path="/shared/s3cret-t0ken"), "done"]

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield replies.pop(0)

    async with open_house(with_model=FunctionModel(stream_function=model)) as house:
        alice = await house.serve("alice")
        events = await alice.say(await alice.session(), "go")
        assert "s3cret" not in "".join(map(str, events))

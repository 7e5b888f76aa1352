"""A temporary conversation reads memory, and leaves nothing: in no list, no file, no copy."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.gateway.sessions import IDLE, OPEN_MAX
from tests.integration.test_guest_process import GUARD_S, Guest, guest  # noqa: F401 - a fixture
from tests.support.gateway.gateways import Client, Gateways, open_gateways, refusal, run_turn

SECRET = "jqxwzvky"
"""In nothing but what is said."""


class Model:
    """Answers with `replies`, in order, and keeps what it was asked with."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.refuses: Exception | None = None
        self.asked: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def __call__(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.asked.append((messages, info))
        if self.refuses is not None:
            raise self.refuses
        yield self.replies.pop(0) if self.replies else "I heard you."

    @property
    def text(self) -> str:
        """All that it was last asked with."""
        messages, info = self.asked[-1]
        return f"{messages} {info.instructions}"


def calls(tool: str, **arguments: Any) -> dict[int, DeltaToolCall]:
    return {0: DeltaToolCall(tool, json.dumps(arguments), tool_call_id="c1")}


@asynccontextmanager
async def agent(
    path: Path | None = None, **kept: Any
) -> AsyncIterator[tuple[Gateways, Client, Model]]:
    model = Model()
    async with open_gateways(
        path=path, with_model=FunctionModel(stream_function=model), **kept
    ) as gateways:
        yield gateways, await gateways.serve("alice"), model


async def begin(alice: Client) -> str:
    made = await alice.stub.CreateSession(pb.CreateSessionRequest(temporary=True, channel="test"))
    assert made.temporary
    return made.session_id


async def test_it_remembers_within_itself_and_reads_memory() -> None:
    async with agent() as (_, alice, model):
        await alice.stub.SaveNote(pb.SaveNoteRequest(text="the boat is called Fram"))
        session = await begin(alice)
        await alice.answer(session, "my number is 4711")
        await alice.answer(session, "what is the name of the boat?")
        assert "the boat is called Fram" in model.text
        assert "my number is 4711" in model.text
        assert "This conversation is temporary" in model.text
        offered = {tool.name for tool in model.asked[-1][1].function_tools}
        assert "memory_search" in offered
        assert not offered & {"memory_save", "memory_update", "memory_delete", "file_write"}
        history = await alice.stub.GetSession(pb.GetSessionRequest(session_id=session))
        assert [event.role for event in history.events] == ["user", "assistant"] * 2
        assert history.session.temporary


async def test_nothing_of_it_is_in_a_list_a_search_an_export_or_a_file(tmp_path: Path) -> None:
    async with agent(tmp_path) as (gateways, alice, model):
        await alice.answer(await alice.session(), "the cat is called Tom")
        before = await _counted(alice)
        session = await begin(alice)
        model.replies = [calls("memory_search", query=SECRET), f"I heard {SECRET}."]
        await alice.answer(session, f"this is {SECRET}, a secret of mine")
        listed = await alice.stub.ListSessions(
            pb.ListSessionsRequest(limit=100, include_archived=True)
        )
        assert session not in {each.session_id for each in listed.sessions}
        turns = (await alice.stub.ListTurns(pb.ListTurnsRequest())).turns
        assert session not in {turn.session_id for turn in turns}
        assert (await alice.stub.ListTurns(pb.ListTurnsRequest(session_id=session))).turns
        found = await alice.stub.SearchNotes(
            pb.SearchNotesRequest(query=SECRET, include_conversation=True)
        )
        assert SECRET not in str(found)
        exported = [part.lines async for part in alice.stub.ExportMemory(pb.ExportMemoryRequest())]
        assert SECRET.encode() not in b"".join(exported)
        await alice.stub.BackupMemory(pb.BackupMemoryRequest())
        assert await _counted(alice) == before
        used = await alice.stub.GetUsage(pb.GetUsageRequest(by="session"))
        assert session not in {each.key for each in used.sums}
        assert used.total.requests == 3, "what it took is counted"
        _assert_in_no_file(tmp_path)
        await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id=session))
        gone = await refusal(alice.stub.GetSession(pb.GetSessionRequest(session_id=session)))
        assert gone.code is Code.NOT_FOUND
        rows = await gateways.services["alice"].temporary.conversations.store.database.execute(
            "SELECT (SELECT COUNT(*) FROM conversation_events) + (SELECT COUNT(*) FROM chunks)"
        )
        assert rows.rows == ((0,),)
    _assert_in_no_file(tmp_path)


async def _counted(alice: Client) -> tuple[int, ...]:
    found = await alice.stub.MemoryStatistics(pb.MemoryStatisticsRequest())
    return found.sessions, found.conversation_events, found.passages, found.stored_notes


def _assert_in_no_file(place: Path) -> None:
    for file in place.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


async def test_a_provider_that_quotes_it_in_a_refusal_leaves_it_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with agent() as (_, alice, model):
        model.refuses = ModelHTTPError(400, "m", {"error": {"message": f"bad: {SECRET}"}})
        failed = (await alice.say(await begin(alice), SECRET))[-1].failed
        assert SECRET in failed.details, "the person reads it"
    assert "turn failed" in caplog.text
    assert SECRET not in caplog.text


async def test_what_would_change_something_is_refused_and_a_wish_to_save_has_its_receipt() -> None:
    async with agent() as (_, alice, model):
        session = await begin(alice)
        model.replies = [calls("memory_save", content=SECRET)]
        saving = (await alice.say(session, "what do you think?"))[-1].completed
        assert not [each for each in saving.receipts if each.outcome == "done"]
        wished = (await alice.say(session, "remember that I like tea"))[-1].completed
        (receipt,) = wished.receipts
        assert (receipt.action, receipt.outcome) == ("saved", "failed")
        assert receipt.reason == "this conversation is temporary and keeps nothing"
        assert not await alice.notes()


async def test_recalling_is_not_counted() -> None:
    async with agent() as (_, alice, model):
        await alice.call("remember", content="the boat is called Fram")
        model.replies = [calls("recall", query="boat")]
        await alice.answer(await begin(alice), "what is the boat called?")
        (note,) = await alice.notes()
        assert note.access_count == 0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (pb.CreateSessionRequest(temporary=True, session_id="mine"), "session_id"),
        (pb.CreateSessionRequest(temporary=True, parent_session_id="mine"), "parent_session_id"),
    ],
)
async def test_it_is_always_a_new_one(wrong: pb.CreateSessionRequest, field: str) -> None:
    async with agent() as (_, alice, _model):
        refused = await refusal(alice.stub.CreateSession(wrong))
        assert (refused.code, field in refused.brief) == (Code.INVALID_ARGUMENT, True)
        unknown = pb.CreateSessionRequest(session_id="temporary-of-nobody")
        assert (await refusal(alice.stub.CreateSession(unknown))).code is Code.NOT_FOUND
        call = pb.CallToolRequest(name="memory_search", session_id=await begin(alice))
        assert (await refusal(alice.stub.CallTool(call))).code is Code.NOT_FOUND


async def test_few_are_open_at_once_and_an_idle_one_ends() -> None:
    async with agent() as (gateways, alice, _):
        opened = [await begin(alice) for _ in range(OPEN_MAX + 1)]
        first = pb.GetSessionRequest(session_id=opened[0])
        assert (await refusal(alice.stub.GetSession(first))).code is Code.NOT_FOUND
        second = pb.GetSessionRequest(session_id=opened[1])
        assert (await alice.stub.GetSession(second)).session.session_id == opened[1]
        sessions = gateways.services["alice"].temporary_sessions
        await sessions.end_idle(datetime.now(UTC) + IDLE - timedelta(minutes=1))
        await alice.stub.GetSession(second)
        await sessions.end_idle(datetime.now(UTC) + IDLE + timedelta(minutes=1))
        assert (await refusal(alice.stub.GetSession(second))).code is Code.NOT_FOUND


async def test_its_end_cancels_its_turn() -> None:
    async def endless(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[str]:
        while True:
            yield f"{SECRET} "

    async with open_gateways(with_model=FunctionModel(stream_function=endless)) as gateways:
        alice = await gateways.serve("alice")
        session = await begin(alice)
        call = await alice.begin(session)
        await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id=session))
        call.cancel()
        gone = await refusal(alice.stub.GetSession(pb.GetSessionRequest(session_id=session)))
        assert gone.code is Code.NOT_FOUND


async def test_a_killed_agent_leaves_nothing_of_it(guest: Guest) -> None:  # noqa: F811
    process = guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        session = (await stub.CreateSession(pb.CreateSessionRequest(temporary=True))).session_id
        request = pb.StartTurnRequest(session_id=session, text=f"find {SECRET}")
        assert [event async for event in run_turn(stub, request)][-1].HasField("completed")
        await anext(run_turn(stub, request))
        process.kill()
        assert process.wait(GUARD_S) != 0
    _assert_in_no_file(guest.place)
    (guest.place / "ipc/gateway.sock").unlink(missing_ok=True)
    guest.spawn("--bootstrap-stdin")
    async with guest.client() as stub:
        with pytest.raises(grpc.RpcError) as raised:
            await stub.GetSession(pb.GetSessionRequest(session_id=session))
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        assert not (await stub.ListSessions(pb.ListSessionsRequest())).sessions
    _assert_in_no_file(guest.place)

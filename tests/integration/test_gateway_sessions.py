"""Sessions as wholes, over a real socket: named, put away, forgotten; and vectors made anew."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.memory.models import Origin
from runner.client.gateway import GatewayClient
from tests.support.gateway.gateways import Client, Gateways, open_gateways, refusal, run_turn

TEXT_OF_NOTE = "my locker is number 12"


async def listed(client: Client, *, everything: bool = False) -> list[str]:
    request = pb.ListSessionsRequest(include_archived=everything)
    return [each.session_id for each in (await client.stub.ListSessions(request)).sessions]


async def statistics(client: Client) -> pb.MemoryStatisticsReply:
    return await client.stub.MemoryStatistics(pb.MemoryStatisticsRequest())


async def test_a_session_is_renamed_and_that_is_no_use_of_it(alice: Client) -> None:
    for session_id in ("first", "second"):
        await alice.session(session_id)
    request = pb.RenameSessionRequest(session_id="first", title="Plans für 2027")
    renamed = await alice.stub.RenameSession(request)
    assert (renamed.session_id, renamed.title) == ("first", "Plans für 2027")
    assert await listed(alice) == ["second", "first"]


async def test_a_conversation_of_any_length_is_told_in_pages(
    gateways: Gateways, alice: Client
) -> None:
    """Larger than a message of gRPC can be; a turn that lies on the seam has its receipts once."""
    await alice.session("long")
    memory = gateways.memory
    for number in range(40):
        turn_id, text = f"t{number // 3}", f"{number} " + "x" * 500_000
        await memory.conversations.append(
            "long", turn_id=turn_id, role="tool", text=text, payload="[]"
        )
        if number % 3 == 0:
            origin = Origin("agent", "test", "long", turn_id)
            await memory.save(f"note of {turn_id}", [], origin)
    page = await alice.stub.GetSession(pb.GetSessionRequest(session_id="long", limit=1000))
    assert page.before == page.events[0].sequence > 1
    async with await GatewayClient.open(alice.peer, channel_name="test") as client:
        for limit in (40, 17):
            history = await client.get_session("long", limit)
            said = [event.text.split()[0] for event in history.events]
            assert said == [str(number) for number in range(40 - limit, 40)]
            unanswered = [event.sequence for event in history.events if event.incomplete]
            assert unanswered == [
                number + 1 for number in range(40 - limit, 40) if number % 3 == 2 or number == 39
            ]
            turns = list(dict.fromkeys(event.turn_id for event in history.events))
            assert [receipt.turn_id for receipt in history.receipts] == turns


async def test_an_archived_session_is_hidden_searched_and_comes_back_when_used(
    alice: Client,
) -> None:
    await alice.session("old")
    await alice.answer("old", "the zeppelin leaves at noon")
    await alice.session("new")
    archive = pb.ArchiveSessionRequest(session_id="old", archived=True)
    away = await alice.stub.ArchiveSession(archive)
    assert away.archived_at > away.updated_at
    again = await alice.stub.ArchiveSession(archive)
    assert again.archived_at == away.archived_at
    assert await listed(alice) == ["new"]
    assert await listed(alice, everything=True) == ["new", "old"]
    counts = await statistics(alice)
    assert (counts.sessions, counts.archived_sessions) == (2, 1)
    found = await alice.stub.SearchNotes(
        pb.SearchNotesRequest(query="zeppelin", include_conversation=True)
    )
    assert "zeppelin" in found.notes[0].text
    assert (found.notes[0].source, found.notes[0].origin.session_id) == ("conversation", "old")
    await alice.answer("old", "help")
    assert await listed(alice) == ["old", "new"]
    await alice.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id="new", archived=True))
    back = await alice.stub.ArchiveSession(pb.ArchiveSessionRequest(session_id="new"))
    assert back.archived_at == ""
    assert await listed(alice) == ["old", "new"]


async def test_a_forgotten_session_is_gone_and_its_notes_stay(alice: Client) -> None:
    await alice.session("gone")
    await alice.answer("gone", f"remember that {TEXT_OF_NOTE}")
    await alice.answer("gone", "the zeppelin leaves at noon")
    await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="gone"))
    for call in (
        alice.stub.GetSession(pb.GetSessionRequest(session_id="gone")),
        alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="gone")),
        alice.stub.RenameSession(pb.RenameSessionRequest(session_id="gone", title="x")),
    ):
        assert (await refusal(call)).code is Code.NOT_FOUND
    found = await alice.stub.SearchNotes(
        pb.SearchNotesRequest(query="zeppelin locker", include_conversation=True)
    )
    assert [note.text for note in found.notes] == [TEXT_OF_NOTE]
    counts = await statistics(alice)
    assert (counts.sessions, counts.conversation_events, counts.notes) == (0, 0, 1)
    assert await alice.session("gone") == "gone", "the id is free again"
    history = await alice.stub.GetSession(pb.GetSessionRequest(session_id="gone"))
    assert not history.events


async def test_a_session_is_not_forgotten_while_a_turn_runs_in_it() -> None:
    go_on = asyncio.Event()

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield "One moment. "
        await go_on.wait()
        yield "Done."

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("busy")
        call = await alice.begin("busy", "t1")
        forget = pb.ForgetSessionRequest(session_id="busy")
        error = await refusal(alice.stub.ForgetSession(forget))
        assert error.code is Code.CONFLICT
        assert error.brief == "session 'busy' is busy with turn 't1'"
        assert "cancel" in error.resolution
        go_on.set()
        *_, last = [event async for event in call]
        assert last.completed.text == "One moment. Done."
        await alice.stub.ForgetSession(forget)
        assert await listed(alice) == []


async def test_no_turn_starts_in_a_session_that_is_being_forgotten(gateways: Gateways) -> None:
    alice = await gateways.serve("alice")
    await alice.session("s")
    with gateways.memory.in_use.held("s", "its removal"):
        call = run_turn(alice.stub, pb.StartTurnRequest(session_id="s", text="hi"))
        assert (await refusal(call)).brief == "session 's' is busy with its removal"
    assert await alice.answer("s", "help")


async def test_a_turn_whose_session_another_guest_forgets_says_so() -> None:
    vanish = asyncio.Event()

    async def model(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        yield "One moment. "
        await vanish.wait()

    async with open_gateways(with_model=FunctionModel(stream_function=model)) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        call = await alice.begin("s")
        gateways.memory.in_use.release("s")  # the other one knows nothing of this turn
        await gateways.memory.sessions.forget("s")
        vanish.set()
        *_, last = [event async for event in call]
        assert (last.failed.code, last.failed.message) == (
            "not_found",
            "the session was forgotten meanwhile",
        )


async def test_vectors_are_made_anew_on_request(gateways: Gateways, alice: Client) -> None:
    session = await alice.session()
    await alice.answer(session, f"remember that {TEXT_OF_NOTE}")
    before = await statistics(alice)
    reply = await alice.stub.ReembedMemory(pb.ReembedMemoryRequest())
    assert reply.passages == before.passages > 1
    assert not before.vectors
    async with asyncio.timeout(60):
        while (counts := await statistics(alice)).passages_embedded != counts.passages:
            await asyncio.sleep(0.01)
    assert counts.embedding_model.startswith("hashing-")
    assert not counts.vectors
    assert not counts.encrypted


async def test_delegated_work_knows_the_session_that_it_comes_from(alice: Client) -> None:
    await alice.session("boss")
    request = pb.CreateSessionRequest(session_id="work", parent_session_id="boss")
    assert (await alice.stub.CreateSession(request)).parent_session_id == "boss"
    resumed = await alice.stub.CreateSession(pb.CreateSessionRequest(session_id="work"))
    assert resumed.parent_session_id == "boss"
    (listed,) = (await alice.stub.ListSessions(pb.ListSessionsRequest())).sessions
    assert listed.session_id == "boss"
    everything = pb.ListSessionsRequest(include_delegated=True)
    sessions = (await alice.stub.ListSessions(everything)).sessions
    assert {each.session_id: each.parent_session_id for each in sessions} == {
        "work": "boss",
        "boss": "",
    }
    back = pb.CreateSessionRequest(session_id="boss", parent_session_id="work")
    assert (await alice.stub.CreateSession(back)).parent_session_id == ""

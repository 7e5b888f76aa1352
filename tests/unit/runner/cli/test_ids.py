"""Ids of sessions and notes, given by how they begin."""

from collections.abc import AsyncIterator

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.agent import find_note, find_session
from runner.client.gateway import GatewayClient
from tests.support.gateway.fake_gateway import FakeGateway

SESSIONS = ("session-1a2b", "session-1c", "plans", "plans-2027", "sess")


@pytest.fixture
async def agent(gateway: FakeGateway) -> AsyncIterator[GatewayClient]:
    gateway.sessions = {each: gateway_pb2.Session(session_id=each) for each in SESSIONS}
    gateway.page = 1
    for note_id, text in {
        "note-1a11": "first\x1b note",
        "note-1a22": "second note",
        "note-2b": "third note",
    }.items():
        gateway.holds(note_id, text)
    gateway.holds("note-3c", superseded=True)
    client = await GatewayClient.open(gateway.peer, channel_name="test")
    async with client:
        yield client


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("session-1a2b", "session-1a2b"),
        ("session-1a", "session-1a2b"),
        ("1c", "session-1c"),
        ("plans", "plans"),
        ("plans-", "plans-2027"),
        ("sess", "sess"),
    ],
)
async def test_a_unique_beginning_names_a_session(
    agent: GatewayClient, given: str, meant: str
) -> None:
    assert await find_session(agent, given) == meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("note-2b", "note-2b"),
        ("note-2", "note-2b"),
        ("2", "note-2b"),
        ("1a2", "note-1a22"),
        ("3", "note-3c"),
    ],
)
async def test_a_unique_beginning_names_a_note(
    agent: GatewayClient, given: str, meant: str
) -> None:
    assert (await find_note(agent, given)).note_id == meant


@pytest.mark.parametrize(
    ("find", "given", "code", "why"),
    [
        (find_session, "1", Code.INVALID_ARGUMENT, "1 can mean 2 sessions"),
        (find_session, "pl", Code.INVALID_ARGUMENT, "plans, plans-2027|plans-2027, plans"),
        (find_session, "x", Code.NOT_FOUND, "session not found: x"),
        (find_session, "", Code.NOT_FOUND, "session not found"),
        (find_note, "1a", Code.INVALID_ARGUMENT, r"note-1a22 \(second .*note-1a11 \(first␛ note"),
        (find_note, "x", Code.NOT_FOUND, "note not found: x"),
        (find_note, "", Code.NOT_FOUND, "note not found"),
    ],
)
async def test_what_begins_none_or_several_is_refused(
    agent: GatewayClient, find: type[object], given: str, code: Code, why: str
) -> None:
    with pytest.raises(WireError, match=why) as caught:
        await find(agent, given)  # type: ignore[call-arg, misc]
    assert caught.value.code is code


async def test_of_more_than_can_be_listed_only_whole_ids_are_known(agent: GatewayClient) -> None:
    assert await find_session(agent, "plans-20", listed_max=2) == "plans-20"
    assert (await find_note(agent, "note-2b", listed_max=2)).note_id == "note-2b"
    with pytest.raises(WireError, match="only a whole id is found"):
        await find_note(agent, "note-2", listed_max=2)


async def test_a_failure_that_is_no_absence_is_passed_on(
    gateway: FakeGateway, agent: GatewayClient
) -> None:
    gateway.unreadable = WireError(Code.DATA_LOSS, "the file is damaged", resolution="restore it")
    with pytest.raises(WireError, match="the file is damaged"):
        await find_note(agent, "note-2b")

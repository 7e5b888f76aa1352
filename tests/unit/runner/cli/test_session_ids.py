"""Ids of sessions, given by how they begin."""

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli import ids
from runner.cli.ids import resolve
from runner.client.gateway import GatewayClient
from tests.unit.runner.cli.fake_gateway import FakeGateway

IDS = ("session-1a2b", "session-1c", "plans", "plans-2027", "sess")


async def resolved(gateway: FakeGateway, given: str) -> str:
    gateway.sessions = {each: gateway_pb2.Session(session_id=each) for each in IDS}
    client = await GatewayClient.open(gateway.endpoint, gateway.token, channel_name="test")
    try:
        return await resolve(client, given)
    finally:
        await client.close()


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
async def test_a_unique_beginning_is_enough(gateway: FakeGateway, given: str, meant: str) -> None:
    assert await resolved(gateway, given) == meant


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        ("1", Code.INVALID_ARGUMENT, "2 sessions begin with 1"),
        ("pl", Code.INVALID_ARGUMENT, "plans, plans-2027|plans-2027, plans"),
        ("x", Code.NOT_FOUND, "session not found: x"),
        ("", Code.NOT_FOUND, "session not found"),
    ],
)
async def test_an_ambiguous_one_is_refused(
    gateway: FakeGateway, given: str, code: Code, why: str
) -> None:
    with pytest.raises(WireError, match=why) as caught:
        await resolved(gateway, given)
    assert caught.value.code is code


async def test_of_more_sessions_than_can_be_listed_only_whole_ids_are_known(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "LISTED_MAX", 2)
    assert await resolved(gateway, "plans-20") == "plans-20"

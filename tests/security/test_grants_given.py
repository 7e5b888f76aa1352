"""What a person allows for a session is theirs, and that session's."""

from collections.abc import AsyncIterator

import pytest
from wire.errors import Code
from wire.v1 import gateway_pb2 as pb

from guest.tools.base import Safety
from tests.security.test_tool_approvals import Detonator, call, detonator
from tests.support.gateway.gateways import Client, Gateways, open_gateways, refusal
from tests.support.tools.pipelines import tool

__all__ = ["detonator"]
OFFER = "every call of detonate"


@pytest.fixture
async def gateways(detonator: Detonator) -> AsyncIterator[Gateways]:
    tools = [tool("detonate", detonator.run, Safety.PRIVILEGED)]
    async with open_gateways(tools=tools, approval="ask") as opened:
        yield opened


@pytest.fixture
async def alice(gateways: Gateways) -> Client:
    client = await gateways.serve("alice")
    await client.session("s")
    return client


async def decide(client: Client, approval: pb.ApprovalRequested, **how: object) -> bool:
    request = pb.DecideRequest(approval_id=approval.approval_id, **how)  # type: ignore[arg-type]
    return (await client.stub.Decide(request)).accepted


async def allowed(client: Client) -> pb.Grant:
    asked = (await call(client, "first", may_ask=True, session_id="s")).approval
    assert list(asked.offers) == [OFFER]
    assert await decide(client, asked, approved=True, offer=1)
    (grant,) = (await client.stub.ListGrants(pb.ListGrantsRequest())).grants
    return grant


async def test_nobody_else_gives_or_has_one(gateways: Gateways, alice: Client) -> None:
    grant = await allowed(alice)
    assert (grant.scope, grant.text, grant.channel) == ("session:s", OFFER, "gateway")
    assert not (await call(alice, "again", session_id="s")).is_error
    await alice.session("t")
    for elsewhere in ("t", ""):
        assert (await call(alice, "no", session_id=elsewhere)).is_error
    assert not (await call(alice, "no", may_ask=True)).approval.offers
    bob = await gateways.serve("bob")
    await bob.session("b")
    assert (await call(bob, "no", session_id="b")).is_error
    assert not (await bob.stub.ListGrants(pb.ListGrantsRequest())).grants
    taken = await bob.stub.WithdrawGrant(pb.WithdrawGrantRequest(grant_id=grant.grant_id))
    assert not taken.withdrawn
    assert not (await call(alice, "still", session_id="s")).is_error


@pytest.mark.parametrize(
    ("approved", "offer"), [(True, 2), (True, 4_000_000_000), (False, 1), (False, 2)]
)
async def test_what_is_not_offered_is_not_given(alice: Client, approved: bool, offer: int) -> None:
    asked = (await call(alice, "first", may_ask=True, session_id="s")).approval
    error = await refusal(
        alice.stub.Decide(
            pb.DecideRequest(approval_id=asked.approval_id, approved=approved, offer=offer)
        )
    )
    assert error.code is Code.INVALID_ARGUMENT
    assert not (await alice.stub.ListGrants(pb.ListGrantsRequest())).grants
    assert (await alice.stub.ListApprovals(pb.ListApprovalsRequest())).approvals == [asked]


async def test_a_forgotten_session_takes_them_along(alice: Client) -> None:
    await allowed(alice)
    await alice.stub.ForgetSession(pb.ForgetSessionRequest(session_id="s"))
    assert not (await alice.stub.ListGrants(pb.ListGrantsRequest())).grants
    await alice.session("s")
    assert (await call(alice, "no", session_id="s")).is_error

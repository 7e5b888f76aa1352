"""A call that a person has to allow does not run without that, whatever its client sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from wire.v1 import gateway_pb2 as pb

from guest.tools.base import Safety, ToolContext, ToolOutput
from tests.support.gateway.gateways import Client, Gateways, open_gateways
from tests.support.tools.pipelines import EchoArguments, tool

STOPPED_BY = "approvals that hold for one caller, one tool and its arguments, once"


@dataclass
class Detonator:
    """What must not happen by itself."""

    went_off: list[str] = field(default_factory=list)

    async def run(self, _: ToolContext, arguments: EchoArguments) -> ToolOutput:
        self.went_off.append(arguments.text)
        return ToolOutput({"text": arguments.text})


@pytest.fixture
def detonator() -> Detonator:
    return Detonator()


@pytest.fixture
async def gateways(detonator: Detonator) -> AsyncIterator[Gateways]:
    tools = [
        tool(name, detonator.run, Safety.PRIVILEGED) for name in ("detonate", "detonate_loudly")
    ]
    async with open_gateways(tools=tools, approval="ask") as opened:
        yield opened


@pytest.fixture
async def alice(gateways: Gateways) -> Client:
    return await gateways.serve("alice")


async def call(
    client: Client, text: str, tool: str = "detonate", channel: str = "mcp", **fields: Any
) -> pb.CallToolReply:
    arguments = json.dumps({"text": text})
    request = pb.CallToolRequest(name=tool, arguments_json=arguments, channel=channel, **fields)
    return await client.stub.CallTool(request)


async def asked(client: Client, text: str) -> str:
    reply = await call(client, text, may_ask=True)
    assert reply.is_error
    return reply.approval.approval_id


async def decide(client: Client, approval_id: str, *, approved: bool = True) -> bool:
    request = pb.DecideRequest(approval_id=approval_id, approved=approved, channel="console")
    return (await client.stub.Decide(request)).accepted


async def test_a_call_runs_once_a_person_has_allowed_it(
    alice: Client, detonator: Detonator
) -> None:
    """Whoever decides: here not the client that asked."""
    approval_id = await asked(alice, "now")
    listed = await alice.stub.ListApprovals(pb.ListApprovalsRequest())
    (waiting,) = listed.approvals
    assert (waiting.tool, waiting.channel, waiting.turn_id) == ("detonate", "mcp", "")
    assert json.loads(waiting.arguments_json) == {"text": "now"}
    early = await call(alice, "now", approval_id=approval_id)
    assert early.approval == waiting
    assert detonator.went_off == []
    assert await decide(alice, approval_id)
    done = await call(alice, "now", approval_id=approval_id)
    assert json.loads(done.data_json) == {"text": "now"}
    assert detonator.went_off == ["now"]


@pytest.mark.attempt(
    "a call hides from the person who decides what it does",
    stopped_by="a question that the gateway words, which every surface shows as it is",
)
async def test_hidden_characters(alice: Client) -> None:
    reply = await call(alice, "ls\u202e\ufe0f\u3164\n  cwd\n  │ /tmp ", may_ask=True)
    assert reply.approval.text.split("\n") == [
        "allow detonate?",
        "  text",
        "  │ ls<U+202E><U+FE0F><U+3164>",
        "  │   cwd",
        "  │   │ /tmp␠",
    ]


@pytest.mark.attempt("a client names an approval that nobody gave", stopped_by=STOPPED_BY)
async def test_a_made_up_approval(alice: Client, detonator: Detonator) -> None:
    reply = await call(alice, "now", approval_id="approval-made-up")
    assert "this approval is not known" in reply.text
    assert detonator.went_off == []


@pytest.mark.attempt("a client uses an approval for other arguments", stopped_by=STOPPED_BY)
async def test_other_arguments(alice: Client, detonator: Detonator) -> None:
    approval_id = await asked(alice, "a little")
    assert await decide(alice, approval_id)
    assert (await call(alice, "everything", approval_id=approval_id)).is_error
    assert detonator.went_off == []


@pytest.mark.attempt("a client uses an approval for another tool", stopped_by=STOPPED_BY)
async def test_another_tool(alice: Client, detonator: Detonator) -> None:
    approval_id = await asked(alice, "now")
    assert await decide(alice, approval_id)
    assert (await call(alice, "now", "detonate_loudly", approval_id=approval_id)).is_error
    assert detonator.went_off == []


@pytest.mark.attempt("a client uses what another client was allowed", stopped_by=STOPPED_BY)
async def test_another_client(alice: Client, detonator: Detonator) -> None:
    approval_id = await asked(alice, "now")
    assert await decide(alice, approval_id)
    assert (await call(alice, "now", channel="access-other", approval_id=approval_id)).is_error
    assert detonator.went_off == []


@pytest.mark.attempt("a client uses an approval twice", stopped_by=STOPPED_BY)
async def test_twice(alice: Client, detonator: Detonator) -> None:
    approval_id = await asked(alice, "now")
    assert await decide(alice, approval_id)
    assert not (await call(alice, "now", approval_id=approval_id)).is_error
    assert (await call(alice, "now", approval_id=approval_id)).is_error
    assert detonator.went_off == ["now"]


@pytest.mark.attempt("a client goes on after a refusal", stopped_by=STOPPED_BY)
async def test_refused(alice: Client, detonator: Detonator) -> None:
    approval_id = await asked(alice, "now")
    assert await decide(alice, approval_id, approved=False)
    assert not await decide(alice, approval_id)
    reply = await call(alice, "now", approval_id=approval_id)
    assert "not approved by the user" in reply.text
    assert detonator.went_off == []


@pytest.mark.attempt("another user decides on a call", stopped_by="each user's own gateway")
async def test_another_user(gateways: Gateways, alice: Client, detonator: Detonator) -> None:
    bob = await gateways.serve("bob")
    approval_id = await asked(alice, "now")
    assert not await decide(bob, approval_id)
    assert (await call(alice, "now", approval_id=approval_id)).is_error
    assert detonator.went_off == []


@pytest.mark.attempt("a client waits with an approval until it has expired", stopped_by=STOPPED_BY)
async def test_expired(gateways: Gateways, detonator: Detonator) -> None:
    alice = await gateways.serve("alice", approval_wait_s=1)
    approval_id = await asked(alice, "now")
    assert await decide(alice, approval_id)
    await asked(alice, "what expires after it")
    while (await alice.stub.ListApprovals(pb.ListApprovalsRequest())).approvals:
        await asyncio.sleep(0.05)
    assert (await call(alice, "now", approval_id=approval_id)).is_error
    assert detonator.went_off == []


@pytest.mark.attempt("a client that shows no questions runs a command", stopped_by="the pipeline")
async def test_who_cannot_ask(alice: Client, detonator: Detonator) -> None:
    reply = await call(alice, "now")
    assert "needs approval, and nobody is here to give it" in reply.text
    assert not reply.HasField("approval")
    assert detonator.went_off == []

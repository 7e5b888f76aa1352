"""Asking a person, through their client, whether a call may run.

The gateway keeps the approval and alone says whether it holds: for this very call, once, and until
it expires. A client's answer is a decision like any other, made with the client's own scopes; what
else a client sends back is worth nothing.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient, wording

WAIT_MAX_S: Final = 3600.0
"""For how long a question may be answered; the gateway's own limit is shorter."""
_QUESTION: Final = "approval"

Context = ServerRequestContext[Any, Any]


def can_ask(context: Context) -> bool:
    """Whether the client can show a question to a person."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.session.can_send_request


async def ask(
    agent: GatewayClient, context: Context, approval: gateway_pb2.ApprovalRequested
) -> types.InputRequiredResult | None:
    """Ask, and decide as the person says. Older clients are asked at once; for newer ones the
    question is the result, and they call again with the answer."""
    question = types.ElicitRequestFormParams(
        message=wording(approval), requested_schema={"type": "object", "properties": {}}
    )
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        return types.InputRequiredResult(
            input_requests={_QUESTION: types.ElicitRequest(params=question)},
            request_state=approval.approval_id,
        )
    try:
        async with asyncio.timeout(_seconds_until(approval.expires_at)):
            answer = await context.session.elicit_form(
                question.message, question.requested_schema, context.request_id
            )
        approved = answer.action == "accept"
    except (TimeoutError, MCPError):
        approved = False
    await agent.decide(approval.approval_id, approved=approved)
    return None


async def decide(
    agent: GatewayClient, approval_id: str, answers: types.InputResponses | None
) -> None:
    """Decide as the answer says that a client sent back. No answer decides nothing: somebody else
    may have decided meanwhile."""
    answer = (answers or {}).get(_QUESTION)
    if isinstance(answer, types.ElicitResult):
        await agent.decide(approval_id, approved=answer.action == "accept")


def _seconds_until(at: str) -> float:
    left = (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds() if at else WAIT_MAX_S
    return max(0.0, min(left, WAIT_MAX_S))

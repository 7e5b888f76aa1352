"""The agent's tools. A call of a client passes the same pipeline, and the same policy, as one of
the agent's own model.

Where a person has to allow a call, they are asked through their client. The gateway keeps the
approval and alone says whether it holds: for this very call, once, and until it expires. A client's
answer is a decision like any other, made with the client's own scopes; what else a client sends
back is worth nothing.
"""

import asyncio
import json
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from wire.errors import WireError
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient, wording

WAIT_MAX_S: Final = 3600.0
"""For how long a question may be answered; the gateway's own limit is shorter."""
_QUESTION: Final = "approval"

Context = ServerRequestContext[Any, Any]
PROGRESS_S: Final = 1.0
"""How often a client that asked for progress hears that a call still runs."""

_T = TypeVar("_T")


async def list_tools(agent: GatewayClient) -> types.ListToolsResult:
    """The tools that this caller may call."""
    return types.ListToolsResult(tools=[_tool(each) for each in await agent.list_tools()])


async def call_tool(
    agent: GatewayClient, context: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Call a tool. Where a person has to allow it, ask them through the client, or refuse it."""
    arguments = json.dumps(params.arguments or {})

    async def called(approval_id: str = "") -> gateway_pb2.CallToolReply:
        call = agent.call_tool(
            params.name,
            arguments,
            may_ask=_can_ask(context),
            approval_id=approval_id,
        )
        return await _while_told(context, params.name, call)

    try:
        if params.request_state is not None:
            await _decide(agent, params.request_state, params.input_responses)
            return _result(await called(params.request_state))
        reply = await called()
        if not reply.HasField("approval"):
            return _result(reply)
        asked = await _ask(agent, context, reply.approval)
        return _result(await called(reply.approval.approval_id)) if asked is None else asked
    except WireError as error:
        return _failed(error)


async def _while_told(context: Context, name: str, call: Awaitable[_T]) -> _T:
    """What `call` gives; until then the client is told that it runs. Leaving cancels the call."""
    began = time.monotonic()
    running = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait({running}, timeout=PROGRESS_S))[0]:
            seconds = time.monotonic() - began
            await context.session.report_progress(
                seconds, message=f"{name} has run for {seconds:.0f} s"
            )
        return await running
    finally:
        running.cancel()


def _tool(described: gateway_pb2.ToolDescription) -> types.Tool:
    reads = described.safety == "read_only"
    result = described.result_schema_json
    return types.Tool(
        name=described.name,
        description=described.description,
        input_schema=json.loads(described.arguments_schema_json),
        output_schema=json.loads(result) if result else None,
        annotations=types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=not reads,
            idempotent_hint=reads,
            open_world_hint=described.safety == "privileged",
        ),
    )


def _result(reply: gateway_pb2.CallToolReply) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=reply.text)],
        structured_content=json.loads(reply.data_json) if reply.data_json else None,
        is_error=reply.is_error,
    )


def _failed(error: WireError) -> types.CallToolResult:
    """The model's message where an operator must act."""
    said = [error.brief, error.details, error.resolution and f"to mend it: {error.resolution}"]
    text = types.TextContent(text="; ".join(filter(None, said)))
    return types.CallToolResult(content=[text], is_error=True)


def _can_ask(context: Context) -> bool:
    """Whether the client can show a question to a person."""
    capabilities = context.session.client_capabilities
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None or (elicitation.form is None and elicitation.url is not None):
        return False
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS or context.session.can_send_request


async def _ask(
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
    await agent.decide(approval.approval_id, answer=approved)
    return None


async def _decide(
    agent: GatewayClient, approval_id: str, answers: types.InputResponses | None
) -> None:
    """Decide as the answer says that a client sent back. No answer decides nothing: somebody else
    may have decided meanwhile."""
    answer = (answers or {}).get(_QUESTION)
    if isinstance(answer, types.ElicitResult):
        await agent.decide(approval_id, answer=answer.action == "accept")


def _seconds_until(at: str) -> float:
    left = (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds() if at else WAIT_MAX_S
    return max(0.0, min(left, WAIT_MAX_S))

"""Calls of tools that a client makes by itself, without a model of ours."""

import json
from dataclasses import dataclass
from typing import Final

from wire.v1 import gateway_pb2 as pb

from guest.errors import ToolError
from guest.gateway.sessions import Sessions
from guest.gateway.turns.approvals import OPEN_MAX, Approval, Approvals
from guest.memory.models import now
from guest.tools.base import Approve, Offer, Tool, ToolContext
from guest.tools.pipeline import ToolPipeline
from guest.tools.results import result_schema

_UNKNOWN: Final = "this approval is not known: it was used, has expired, or is of another call"


@dataclass(frozen=True)
class _Asked:
    """A call that was not run until a person allows it: who wanted what."""

    approval: Approval
    caller: ToolContext
    tool: str
    question: str


class ToolCalls:
    """The tools as clients see and call them, in the pipeline of the model's own calls.

    Where a person has to allow a call it is made twice: the first time it asks, the second time it
    names the approval. That holds for the same caller, tool and arguments, once, and until it
    expires; who decides, and through which client, is `Approvals`' matter.
    """

    def __init__(
        self, user_id: str, pipeline: ToolPipeline, approvals: Approvals, sessions: Sessions
    ) -> None:
        self._user_id = user_id
        self._pipeline = pipeline
        self._approvals = approvals
        self._sessions = sessions
        self._asked: dict[str, _Asked] = {}

    async def offered(self, _: pb.ListToolsRequest) -> pb.ListToolsReply:
        return pb.ListToolsReply(
            tools=[
                pb.ToolDescription(
                    name=tool.name,
                    description=tool.description,
                    arguments_schema_json=json.dumps(tool.arguments.model_json_schema()),
                    safety=tool.safety.value,
                    result_schema_json=_schema_json(tool.name),
                )
                for tool in self._pipeline.tools()
                if not tool.in_turn
            ]
        )

    async def call(self, request: pb.CallToolRequest) -> pb.CallToolReply:
        """Run a call, or ask whether it may run."""
        session_id = request.session_id and await self._sessions.require(request.session_id)
        caller = ToolContext(self._user_id, session_id, "", request.channel)
        caller = await self._sessions.within(caller)
        waiting: list[pb.ApprovalRequested] = []

        async def ask(context: ToolContext, tool: Tool, question: str) -> bool:
            waiting.append(self._ask(caller, tool.name, question, context.offers))
            raise ToolError(f"{tool.name} waits for a person")

        async def use(_: ToolContext, tool: Tool, question: str) -> bool:
            return self._use(request.approval_id, caller, tool.name, question, waiting)

        approve: Approve | None = use if request.approval_id else ask if request.may_ask else None
        result = await self._pipeline.call(
            caller, request.name, request.arguments_json or "{}", approve
        )
        return pb.CallToolReply(
            text=result.text,
            is_error=result.is_error,
            data_json=result.data_json,
            approval=waiting[0] if waiting else None,
        )

    def _ask(
        self, caller: ToolContext, tool: str, question: str, offers: tuple[Offer, ...]
    ) -> pb.ApprovalRequested:
        asking = pb.ApprovalRequested(
            tool=tool,
            arguments_json=question,
            session_id=caller.session_id,
            channel=caller.channel,
        )
        approval = self._approvals.ask(asking, offers)
        for approval_id, asked in tuple(self._asked.items()):
            if now() >= asked.approval.request.expires_at or len(self._asked) >= OPEN_MAX:
                self._approvals.withdraw(asked.approval)
                del self._asked[approval_id]
        asked = _Asked(approval, caller, tool, question)
        self._asked[approval.request.approval_id] = asked
        return approval.request

    def _use(
        self,
        approval_id: str,
        caller: ToolContext,
        tool: str,
        question: str,
        waiting: list[pb.ApprovalRequested],
    ) -> bool:
        asked = self._asked.get(approval_id)
        if asked is None or (asked.caller, asked.tool, asked.question) != (caller, tool, question):
            raise ToolError(f"{tool} was not approved: {_UNKNOWN}")
        approval = asked.approval
        expired = now() >= approval.request.expires_at
        if not approval.decided.done() and not expired:
            waiting.append(approval.request)
            raise ToolError(f"{tool} waits for a person")
        del self._asked[approval_id]
        if expired:
            raise ToolError(f"{tool} was not approved: {_UNKNOWN}")
        return approval.decided.result().approved


def _schema_json(tool: str) -> str:
    schema = result_schema(tool)
    return "" if schema is None else json.dumps(schema)

"""The Gateway service for one user. RPCs check their arguments and delegate; no logic here."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from guest.agent.turn import Pipeline
from guest.gateway import convert, validation
from guest.gateway.notes import Notes
from guest.gateway.sessions import Sessions
from guest.gateway.transfer import Transfer
from guest.gateway.turns import Loop, Turns
from guest.memory.memory import Memory
from guest.memory.storage.files.backup import Backups
from guest.tools.base import ToolContext
from guest.tools.redaction.scrubber import Scrubber

# ruff: noqa: N802, ARG001, ARG002 - names and arguments are the contract's

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True)
class GuestInfo:
    """What Hello reports about this guest. `shell` says why there is no shell, `embedder_reason`
    why there is no embedder; an existing embedder is asked."""

    tier: str
    provider: str
    model: str
    shell: str
    version: str
    embedder_reason: str = ""
    notices: Sequence[str] = ()


def _answered_by(handler: "Callable[[GatewayService], Callable[[Any], Awaitable[Message]]]") -> Any:
    """An RPC that `handler` answers; secrets in its reply are hidden."""

    async def rpc(self: "GatewayService", request: Message, context: Context) -> Message:
        return self._shown(await handler(self)(request))

    return rpc


class GatewayService(gateway_pb2_grpc.GatewayServicer):
    """Serves the user of `memory` only: no request names a user.

    `pipeline` runs the tool calls of the model and of callers by name. A person's notes and
    sessions do not go through it: they are read and written directly, whatever tools are enabled.
    Only the secrets of this launch, which `scrubber` knows, are redacted for people as for models;
    exports and backups are exact copies. `close` cancels the running turns and waits until they are
    recorded.
    """

    def __init__(
        self,
        *,
        info: GuestInfo,
        memory: Memory,
        pipeline: Pipeline,
        loop: Loop,
        backups: Backups,
        scrubber: Scrubber,
        shell_state: Callable[[], Awaitable[str]] | None = None,
        reply_max_bytes: int = validation.REPLY_MAX_BYTES,
    ) -> None:
        self._user_id = memory.user_id
        self._info = info
        self._memory = memory
        self._pipeline = pipeline
        self._scrubber = scrubber
        self._shell_state = shell_state
        self._notes = Notes(memory, scrubber.scrub_known, reply_max_bytes)
        self._transfer = Transfer(memory, backups)
        self._sessions = Sessions(memory.conversations, memory.receipts, memory.sessions)
        self._turns = Turns(memory.user_id, loop, memory.in_use)

    async def close(self) -> None:
        await self._turns.close()

    def _shown(self, reply: Message) -> Message:
        return convert.hidden(reply, self._scrubber.scrub_known)

    CreateSession = _answered_by(lambda service: service._sessions.create)
    ListSessions = _answered_by(lambda service: service._sessions.list)
    GetSession = _answered_by(lambda service: service._sessions.history)
    RenameSession = _answered_by(lambda service: service._sessions.rename)
    ArchiveSession = _answered_by(lambda service: service._sessions.archive)
    ForgetSession = _answered_by(lambda service: service._sessions.forget)
    SaveNote = _answered_by(lambda service: service._notes.save)
    ListNotes = _answered_by(lambda service: service._notes.list)
    SearchNotes = _answered_by(lambda service: service._notes.search)
    GetNote = _answered_by(lambda service: service._notes.get)
    EditNote = _answered_by(lambda service: service._notes.edit)
    DeleteNote = _answered_by(lambda service: service._notes.delete)
    ListChanges = _answered_by(lambda service: service._notes.changes)
    UndoChange = _answered_by(lambda service: service._notes.undo)
    ReviewMemory = _answered_by(lambda service: service._notes.review)
    MemoryStatistics = _answered_by(lambda service: service._notes.statistics)
    ReembedMemory = _answered_by(lambda service: service._notes.reembed)
    BackupMemory = _answered_by(lambda service: service._transfer.back_up)
    ImportMemory = _answered_by(lambda service: service._transfer.import_)

    async def Hello(
        self, request: gateway_pb2.HelloRequest, context: Context
    ) -> gateway_pb2.HelloReply:
        embedder, shell = await asyncio.gather(self._embedder(), self._shell())
        notices = list(self._info.notices)
        if embedder != "ready":
            notices.append(f"memory searches by keyword only for now; the embedder: {embedder}")
        if (memory := self._memory.state) != "ready":
            notices.append(
                f"nothing can be saved right now, and searches answer from a copy: {memory}"
            )
        return gateway_pb2.HelloReply(
            user_id=self._user_id,
            tier=self._info.tier,
            provider=self._info.provider,
            model=self._info.model,
            shell=shell,
            embedder=embedder,
            notices=notices,
            version=self._info.version,
            memory=memory,
        )

    async def _embedder(self) -> str:
        return self._info.embedder_reason or await self._memory.embedder_state()

    async def _shell(self) -> str:
        return self._info.shell if self._shell_state is None else await self._shell_state()

    async def RunTurn(
        self, request: gateway_pb2.RunTurnRequest, context: Context
    ) -> AsyncIterator[gateway_pb2.TurnEvent]:
        text = validation.turn_text(request.text)
        turn_id = validation.identifier("turn_id", request.turn_id, optional=True)
        channel = validation.identifier("channel", request.channel, optional=True)
        session_id = await self._sessions.require(request.session_id)
        turn = await self._turns.start(session_id, text, turn_id, channel)
        context.add_done_callback(lambda _: turn.leave())  # type: ignore[arg-type]  # any callable
        async for event in turn.events():
            yield event

    async def CancelTurn(
        self, request: gateway_pb2.CancelTurnRequest, context: Context
    ) -> gateway_pb2.CancelTurnReply:
        turn_id = validation.identifier("turn_id", request.turn_id)
        return gateway_pb2.CancelTurnReply(cancelled=self._turns.cancel(turn_id))

    async def AnswerApproval(
        self, request: gateway_pb2.AnswerApprovalRequest, context: Context
    ) -> gateway_pb2.AnswerApprovalReply:
        approval_id = validation.identifier("approval_id", request.approval_id)
        accepted = self._turns.answer(approval_id, approved=request.approved)
        return gateway_pb2.AnswerApprovalReply(accepted=accepted)

    async def ListTools(
        self, request: gateway_pb2.ListToolsRequest, context: Context
    ) -> gateway_pb2.ListToolsReply:
        return gateway_pb2.ListToolsReply(
            tools=[
                gateway_pb2.ToolDescription(
                    name=tool.name,
                    description=tool.description,
                    arguments_schema_json=json.dumps(tool.arguments.model_json_schema()),
                    safety=tool.safety.value,
                )
                for tool in self._pipeline.tools()
            ]
        )

    async def CallTool(
        self, request: gateway_pb2.CallToolRequest, context: Context
    ) -> gateway_pb2.CallToolReply:
        name = validation.identifier("name", request.name)
        arguments = validation.at_most(
            "arguments_json", request.arguments_json, validation.ARGUMENTS_MAX_CHARS
        )
        channel = validation.identifier("channel", request.channel, optional=True)
        session_id = request.session_id and await self._sessions.require(request.session_id)
        caller = ToolContext(self._user_id, session_id, "", channel)
        result = await self._pipeline.call(caller, name, arguments or "{}")
        return gateway_pb2.CallToolReply(text=result.text, is_error=result.is_error)

    async def SetMemoryToken(
        self, request: gateway_pb2.SetMemoryTokenRequest, context: Context
    ) -> gateway_pb2.SetMemoryTokenReply:
        token = validation.secret("auth_token", request.auth_token)
        self._scrubber.learn(token)
        await self._memory.set_token(token)
        return gateway_pb2.SetMemoryTokenReply()

    async def ExportMemory(
        self, request: gateway_pb2.ExportMemoryRequest, context: Context
    ) -> AsyncIterator[gateway_pb2.ExportMemoryReply]:
        async for part in self._transfer.export():
            yield part

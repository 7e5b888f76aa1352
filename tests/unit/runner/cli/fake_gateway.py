"""A gateway for the tests of surfaces: real gRPC, scripted turns."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from wire.errors import Code, WireError
from wire.transport import Server, new_token
from wire.v1 import gateway_pb2, gateway_pb2_grpc

Event = gateway_pb2.TurnEvent
Script = Callable[["FakeGateway", gateway_pb2.RunTurnRequest], AsyncIterator[Event]]


def text(delta: str) -> Event:
    return Event(text=gateway_pb2.TextDelta(text=delta))


def completed(whole: str = "", *receipts: gateway_pb2.MemoryReceipt) -> Event:
    return Event(completed=gateway_pb2.TurnCompleted(text=whole, receipts=receipts))


def failed(message: str, resolution: str = "", code: str = "internal") -> Event:
    return Event(failed=gateway_pb2.TurnFailed(code=code, message=message, resolution=resolution))


def tool(name: str, summary: str, ok: bool = True) -> tuple[Event, Event]:
    return (
        Event(tool_started=gateway_pb2.ToolCallStarted(call_id="c", tool=name)),
        Event(
            tool_finished=gateway_pb2.ToolCallFinished(
                call_id="c", tool=name, ok=ok, summary=summary
            )
        ),
    )


async def echo(gateway: "FakeGateway", request: gateway_pb2.RunTurnRequest) -> AsyncIterator[Event]:
    """Answers in two deltas."""
    yield text("you said: ")
    yield text(request.text)
    yield completed(f"you said: {request.text}")


class FakeGateway(gateway_pb2_grpc.GatewayServicer):
    """One user's sessions in memory; `script` decides what a turn does."""

    def __init__(self, endpoint: str, script: Script = echo) -> None:
        self.endpoint = endpoint
        self.script = script
        self.token = ""
        self.sessions: dict[str, gateway_pb2.Session] = {}
        self.history: dict[str, list[gateway_pb2.HistoryEvent]] = {}
        self.turns: list[gateway_pb2.RunTurnRequest] = []
        self.cancelled: list[str] = []
        self.left: list[str] = []
        self.approvals: dict[str, asyncio.Future[bool]] = {}
        self.notices: list[str] = []
        self.receipts: list[gateway_pb2.MemoryReceipt] = []
        self.found = gateway_pb2.SearchNotesReply()
        self._server: Server | None = None

    async def start(self) -> None:
        """Serve as a new launch, with a token of its own."""
        self.token = new_token()
        self._server = Server(self.endpoint, self.token)
        gateway_pb2_grpc.add_GatewayServicer_to_server(self, self._server.grpc)
        await self._server.start()
        await self._server.set_serving(True)

    async def stop(self) -> None:
        """End at once, as a killed guest does."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(0)

    async def Hello(self, request: Any, context: Any) -> gateway_pb2.HelloReply:
        return gateway_pb2.HelloReply(
            user_id="alice",
            tier="process",
            provider="offline",
            model="offline",
            embedder="ready",
            shell="no shell guest runs in this tier",
            version="0.1.0",
            notices=self.notices,
        )

    async def CreateSession(self, request: Any, context: Any) -> gateway_pb2.Session:
        if request.session_id in self.sessions:
            return self.sessions[request.session_id]
        number = len(self.sessions) + 1
        session = gateway_pb2.Session(
            session_id=request.session_id or f"s{number}",
            title=request.title,
            channel=request.channel,
            updated_at=f"2026-11-20T10:00:{number:02}.000000Z",
        )
        self.sessions[session.session_id] = session
        return session

    async def ListSessions(self, request: Any, context: Any) -> gateway_pb2.ListSessionsReply:
        newest_first = list(self.sessions.values())[::-1]
        return gateway_pb2.ListSessionsReply(sessions=newest_first[: request.limit])

    async def GetSession(self, request: Any, context: Any) -> gateway_pb2.SessionHistory:
        if request.session_id not in self.sessions:
            raise WireError(Code.NOT_FOUND, f"session not found: {request.session_id}")
        events = self.history.get(request.session_id, [])[-request.limit :]
        return gateway_pb2.SessionHistory(
            session=self.sessions[request.session_id], events=events, receipts=self.receipts
        )

    async def RunTurn(self, request: Any, context: Any) -> AsyncIterator[Event]:
        self.turns.append(request)
        self.sessions[request.session_id].turns += 1
        try:
            async for event in self.script(self, request):
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.left.append(request.turn_id)
            raise

    async def CancelTurn(self, request: Any, context: Any) -> gateway_pb2.CancelTurnReply:
        self.cancelled.append(request.turn_id)
        return gateway_pb2.CancelTurnReply(cancelled=True)

    async def SearchNotes(self, request: Any, context: Any) -> gateway_pb2.SearchNotesReply:
        """What `found` holds, where its text has the words in it."""
        notes = [note for note in self.found.notes if request.query in note.text]
        return gateway_pb2.SearchNotesReply(notes=notes, warnings=self.found.warnings)

    async def until_cancelled(self, turn_id: str) -> Event:
        """What a turn that waits for its cancellation ends with."""
        while turn_id not in self.cancelled:
            await asyncio.sleep(0.005)
        return failed("cancelled", code="cancelled")

    async def approval(self, name: str, arguments: str) -> bool:
        """Whether the surface approved; a script yields `approval_event` first."""
        return await asyncio.wait_for(self.approvals[f"{name}{arguments}"], 60)

    def approval_event(self, name: str, arguments: str) -> Event:
        self.approvals[f"{name}{arguments}"] = asyncio.get_running_loop().create_future()
        return Event(
            approval=gateway_pb2.ApprovalRequested(
                approval_id=f"{name}{arguments}", tool=name, arguments_json=arguments
            )
        )

    async def AnswerApproval(self, request: Any, context: Any) -> gateway_pb2.AnswerApprovalReply:
        waiting = self.approvals.get(request.approval_id)
        if waiting is None or waiting.done():
            return gateway_pb2.AnswerApprovalReply(accepted=False)
        waiting.set_result(request.approved)
        return gateway_pb2.AnswerApprovalReply(accepted=True)

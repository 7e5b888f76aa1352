"""`/mcp`: the Model Context Protocol over streamable HTTP, for whoever is let in.

Every request stands for itself: there are no sessions to keep or to take over.
"""

import asyncio
from typing import Final, Self

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from runner.access.callers import Callers
from runner.access.exchange import read_object, whole
from runner.client.gateway import GatewayClient
from runner.mcp.server import Context, build
from runner.serve.login.authenticator import Authenticator

_BODY_BYTES: Final = 4 * 1024 * 1024


class Mcp:
    """Answers MCP clients while it is entered."""

    def __init__(self, authenticator: Authenticator, callers: Callers) -> None:
        self._authenticator = authenticator
        self._callers = callers
        self._sessions = StreamableHTTPSessionManager(build(self._agent), stateless=True)
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    @property
    def routes(self) -> list[Route]:
        return [Route("/mcp", self)]

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        if self._running is not None:
            await self._running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        request.state.caller = self._authenticator.caller(request)
        if request.method != "POST":
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        async with self._callers.large(request.state.caller):
            body = await whole(request, _BODY_BYTES)
            await asyncio.to_thread(read_object, request, body)
        unread = [{"type": "http.request", "body": body, "more_body": False}]

        async def read() -> Message:
            return unread.pop() if unread else await receive()

        await self._sessions.handle_request(scope, read, send)

    def _agent(self, context: Context) -> GatewayClient:
        assert isinstance(context.request, Request)
        caller = context.request.state.caller
        return GatewayClient(self._callers.agent(caller), caller.channel)

    async def _run(self) -> None:
        """In a task of its own, because the SDK's task group is left where it was entered."""
        async with self._sessions.run():
            self._ready.set()
            await self._ended.wait()

"""What the API server asks a node for on somebody's behalf: logs, and attached streams."""

import asyncio
import contextlib
import json
import ssl
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from aiohttp import WSMsgType, web

from tests.support.kubernetes.engine import Engine, EngineError, frames

_STDIN: Final = 0
_ERROR: Final = 3
_PROTOCOL: Final = "v4.channel.k8s.io"
_SWITCHES: Final = {"input": "stdin", "output": "stdout", "error": "stderr"}


class Attached(Protocol):
    """The container of a pod, as these requests need it."""

    container: str
    running: bool


class Streams:
    """The server of one node. `find` gives the pod of a namespace and name that is on it."""

    def __init__(
        self, engine: Engine, tls: ssl.SSLContext, find: Callable[[str, str], Attached | None]
    ) -> None:
        self._engine = engine
        self._tls = tls
        self._find = find
        self._runner: web.AppRunner

    async def open(self, address: str, port: int = 0) -> int:
        """Begin to listen. Returns the port."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        for method in ("GET", "POST"):
            app.router.add_route(method, "/attach/{namespace}/{pod}/{container}", self._attach)
        for asked in ("exec", "portForward", "run"):
            app.router.add_route("*", f"/{asked}/{{rest:.*}}", _not_done)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port, ssl_context=self._tls).start()
        return int(self._runner.addresses[0][1])

    async def close(self) -> None:
        await self._runner.cleanup()

    def _found(self, request: web.Request) -> Attached:
        found = self._find(request.match_info["namespace"], request.match_info["pod"])
        if found is None or not found.container:
            raise web.HTTPNotFound(text="the container has not been created")
        return found

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        container, asked = self._found(request).container, request.query
        if asked.get("previous") == "true":
            raise web.HTTPBadRequest(text="the stand-in keeps no log of a container before")
        options = {name: "1" for name in ("follow", "timestamps") if asked.get(name) == "true"}
        if "sinceSeconds" in asked:
            options["since"] = str(int(time.time()) - int(asked["sinceSeconds"]))
        if "sinceTime" in asked:
            options["since"] = asked["sinceTime"]
        if "tailLines" in asked:
            options["tail"] = asked["tailLines"]
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        with contextlib.suppress(EngineError, ConnectionError):
            async for block in self._engine.logs(container, **options):
                await response.write(block)
            await response.write_eof()
        return response

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        found = self._found(request)
        if not found.running:
            raise web.HTTPNotFound(text="the container does not run")
        if _PROTOCOL not in request.headers.get("Sec-WebSocket-Protocol", ""):
            raise web.HTTPForbidden(text=f"the stand-in attaches by {_PROTOCOL} only")
        wanted = {
            stream: "1"
            for switch, stream in _SWITCHES.items()
            if request.query.get(switch) in ("1", "true")
        }
        reader, writer = await self._engine.attach(found.container, **wanted)
        socket = web.WebSocketResponse(protocols=(_PROTOCOL,))
        try:
            await socket.prepare(request)
            output = asyncio.create_task(_send_output(reader, socket))
            async for message in socket:
                data = message.data
                if message.type is WSMsgType.BINARY and len(data) > 1 and data[0] == _STDIN:
                    writer.write(data[1:])
                    await writer.drain()
            output.cancel()
        finally:
            await _let_go(writer)
        return socket


async def _not_done(request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotImplemented(text=f"the stand-in has no {request.path.split('/')[1]}")


async def _send_output(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    """Copy what the container prints until it ends, then close."""
    async for channel, block in frames(reader):
        await socket.send_bytes(bytes([channel]) + block)
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    await socket.send_bytes(bytes([_ERROR]) + json.dumps(status).encode())
    await socket.close()


async def _let_go(writer: asyncio.StreamWriter) -> None:
    """End a connection to the engine when all has gone out."""
    with contextlib.suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
        await writer.drain()
        writer.close()
        await writer.wait_closed()

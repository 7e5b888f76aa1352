"""Files of a user's shared directory: `GET` and `PUT /api/users/{user}/files/{path}`.

What comes out was written by an agent, a command or a page. A browser saves it; it shows none of it
but pictures whose content says that they are, and those without any right of this server's pages.
"""

import logging
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import grpc
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from wire.errors import WireError
from wire.v1 import gateway_pb2, gateway_pb2_grpc

from runner.access.callers import Callers
from runner.access.exchange import pieces, plain
from runner.serve.login.authenticator import Authenticator

log = logging.getLogger(__name__)

FILE_MAX_BYTES: Final = 1024 * 1024 * 1024
_WHOLE_S: Final = 3_600.0
_PIECE_BYTES: Final = 256 * 1024
_SHARED: Final = "/shared/"
_PICTURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Files:
    """Answers for the files of whoever is let in."""

    def __init__(self, authenticator: Authenticator, callers: Callers) -> None:
        self._authenticator = authenticator
        self._callers = callers

    @property
    def routes(self) -> list[Route]:
        path = "/api/users/{user}/files/{path:path}"
        return [
            Route(path, self._read, methods=["GET"]),
            Route(path, self._write, methods=["PUT"]),
        ]

    async def _read(self, request: Request) -> Response:
        asked = gateway_pb2.ReadFileRequest(path=_SHARED + request.path_params["path"])
        call: Any = self._agent(request).ReadFile(asked)
        try:
            first = await call.read()
        except BaseException:
            call.cancel()
            raise
        if first is grpc.aio.EOF:
            first = gateway_pb2.FilePart()
        kind = picture(first.data)
        name = quote(first.file.name, safe="")
        shown = "inline" if kind else "attachment"
        return StreamingResponse(
            _content(first.data, call),
            headers={
                "Content-Disposition": f"{shown}; filename*=UTF-8''{name}",
                "Content-Length": str(first.file.bytes),
                "Content-Security-Policy": "default-src 'none'; sandbox",
            },
            media_type=kind or "application/octet-stream",
        )

    async def _write(self, request: Request) -> Response:
        agent = self._agent(request)
        overwrite = request.query_params.get("overwrite") == "true"
        message = gateway_pb2.WriteFileRequest(
            path=_SHARED + request.path_params["path"], overwrite=overwrite
        )
        async for piece in _of_size(pieces(request, FILE_MAX_BYTES, _WHOLE_S)):
            if len(message.data) == _PIECE_BYTES:
                reply = await agent.WriteFile(message)
                message.upload_id, message.offset = reply.upload_id, reply.received
            message.data = piece
        message.last = True
        reply = await agent.WriteFile(message)
        return JSONResponse(plain(reply.file))

    def _agent(self, request: Request) -> Any:
        caller = self._authenticator.caller(request)
        channel = self._callers.agent(caller, request.path_params["user"])
        return gateway_pb2_grpc.GatewayStub(channel)


def picture(beginning: bytes) -> str:
    """The kind of picture that begins so; empty if it is none that is shown."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _PICTURES if beginning.startswith(mark)), "")


async def _content(first: bytes, call: Any) -> AsyncIterator[bytes]:
    """A file from its first part on. If it cannot be read to its end, the answer ends before its
    length, so that the browser knows."""
    try:
        yield first
        async for part in call:
            yield part.data
    except WireError as error:
        log.info("a file was not sent to its end: %s", error)
    finally:
        call.cancel()


async def _of_size(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same bytes in pieces of `_PIECE_BYTES`, but for the last one."""
    held = bytearray()
    async for piece in body:
        held += piece
        while len(held) >= _PIECE_BYTES:
            yield bytes(held[:_PIECE_BYTES])
            del held[:_PIECE_BYTES]
    if held:
        yield bytes(held)

"""A local HTTP server that speaks OpenAI's chat-completions format, streaming included."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from guest.agent.turn import TIME

Reply = Callable[["Request", asyncio.StreamWriter], Awaitable[None]]


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


_ANNOUNCED = re.compile(rf"(?:\A|\n\n){TIME}[^\n]+:\n\n")


def untimed(request: Request) -> list[dict[str, Any]]:
    """The messages of a request, with the user's own words apart from what stands before them, and
    without the line that announces them."""
    apart: list[dict[str, Any]] = []
    for one in request.body["messages"]:
        content = one["content"]
        texts = _ANNOUNCED.split(content, 1) if isinstance(content, str) else [content]
        apart += [one | {"content": text} for text in texts if text or len(texts) == 1]
    return apart


@dataclass
class OpenAIServer:
    """Answers with `replies` in order, the last one for ever; `requests` is what it received, and
    `asked` is set once it received any. Its list of models, which is not counted, says `listing`
    of its one model. If it is an Ollama, it says `shown` of it."""

    replies: list[Reply]
    listing: dict[str, Any] = field(default_factory=dict)
    shown: dict[str, Any] = field(default_factory=dict)
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.split("\r\n")
            headers = {
                key.lower(): value.strip()
                for key, _, value in (line.partition(":") for line in lines if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(line.split(" ")[1], headers, json.loads(body or b"{}"))
            if line.startswith("GET "):
                listed = json.dumps({"data": [{"id": "test-model", **self.listing}]}).encode()
                await raw("200 OK", "application/json", listed)(request, writer)
                return
            if request.path.endswith("/api/show"):
                status = "200 OK" if self.shown else "404 Not Found"
                await raw(status, "application/json", json.dumps(self.shown).encode())(
                    request, writer
                )
                return
            self.requests.append(request)
            self.asked.set()
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            await reply(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def openai_server(*replies: Reply) -> AsyncIterator[OpenAIServer]:
    running = OpenAIServer(list(replies))
    server = await asyncio.start_server(running.handle, "127.0.0.1", 0, limit=2**20)
    running.port = server.sockets[0].getsockname()[1]
    async with server:
        yield running


async def head(writer: asyncio.StreamWriter, status: str, kind: str, *more: str) -> None:
    lines = (f"HTTP/1.1 {status}", f"content-type: {kind}", "connection: close", *more, "", "")
    writer.write("\r\n".join(lines).encode())
    await writer.drain()


def error(status: str, message: str = "no", **fields: Any) -> Reply:
    """An error body as OpenAI writes it."""

    async def reply(_: Request, writer: asyncio.StreamWriter) -> None:
        await head(writer, status, "application/json")
        writer.write(json.dumps({"error": {"message": message, **fields}}).encode())
        await writer.drain()

    return reply


def raw(status: str, kind: str, body: bytes) -> Reply:
    async def reply(_: Request, writer: asyncio.StreamWriter) -> None:
        await head(writer, status, kind)
        writer.write(body)
        await writer.drain()

    return reply


def never() -> Reply:
    async def reply(_: Request, __: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    return reply


def stream(
    *deltas: dict[str, Any],
    finish: str = "stop",
    then: str = "end",
    usage: tuple[float, float, float] = (11, 7, 0),
) -> Reply:
    """Server-sent events; `then`: "end" well, "close" without an end, "abort" the connection, or
    "hang". `usage` is the tokens in and out that are reported, and how many of those in were
    cached."""
    took, gave, cached = usage

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.body["stream"] is True
        await head(writer, "200 OK", "text/event-stream", "transfer-encoding: chunked")
        for delta in deltas:
            await _event(writer, {"choices": [{"index": 0, "delta": delta}]})
        if then == "abort":
            transport = writer.transport
            transport.abort()
            return
        if then == "hang":
            await asyncio.sleep(60)
        if then == "close":
            await _chunk(writer, b"")
            return
        await _event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        reported = {
            "prompt_tokens": took,
            "completion_tokens": gave,
            "total_tokens": took + gave,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        await _event(writer, {"choices": [], "usage": reported})
        await _chunk(writer, b"data: [DONE]\n\n")
        await _chunk(writer, b"")

    return reply


async def _event(writer: asyncio.StreamWriter, fields: dict[str, Any]) -> None:
    common = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "test-model"}
    await _chunk(writer, f"data: {json.dumps({**common, **fields})}\n\n".encode())


async def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


def says(*pieces: str, then: str = "end", finish: str = "stop") -> Reply:
    deltas = ({"role": "assistant", "content": piece} for piece in pieces)
    return stream(*deltas, finish=finish, then=then)


def calls(*named: tuple[str, str, str], usage: tuple[int, int, int] = (11, 7, 0)) -> Reply:
    """Tool calls (id, name, arguments), the arguments in two fragments each."""
    deltas: list[dict[str, Any]] = []
    for index, (call_id, name, arguments) in enumerate(named):
        half = len(arguments) // 2
        for number, piece in enumerate((arguments[:half], arguments[half:])):
            function = {"name": name, "arguments": piece} if number == 0 else {"arguments": piece}
            call = {"index": index, "function": function}
            if number == 0:
                call |= {"id": call_id, "type": "function"}
            deltas.append({"role": "assistant", "tool_calls": [call]})
    return stream(*deltas, finish="tool_calls", usage=usage)

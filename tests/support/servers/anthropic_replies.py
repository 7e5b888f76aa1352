"""Answers in Anthropic's messages format, for the server in `openai_server`."""

import asyncio
import json
from typing import Any

from tests.support.servers.openai_server import Reply, Request, head


def says(
    *pieces: str, stop: str = "end_turn", then: str = "end", cached: int = 0, tokens: int = 11
) -> Reply:
    """A streamed answer; `then`: "end" well, "close" without an end, or "abort" the connection.

    `stop` is why the model stopped, `tokens` what it reports to have read anew, and `cached` from
    its cache.
    """

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.body["stream"] is True
        await head(writer, "200 OK", "text/event-stream")
        usage = {"input_tokens": tokens, "output_tokens": 1, "cache_read_input_tokens": cached}
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "test-model",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        await _event(writer, "message_start", message=message)
        block = {"type": "text", "text": ""}
        await _event(writer, "content_block_start", index=0, content_block=block)
        for piece in pieces:
            delta = {"type": "text_delta", "text": piece}
            await _event(writer, "content_block_delta", index=0, delta=delta)
        if then == "abort":
            writer.transport.abort()
        if then != "end":
            return
        await _event(writer, "content_block_stop", index=0)
        ended = {"stop_reason": stop, "stop_sequence": None}
        await _event(writer, "message_delta", delta=ended, usage={"output_tokens": 7})
        await _event(writer, "message_stop")

    return reply


async def _event(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    data = json.dumps({"type": kind, **fields})
    writer.write(f"event: {kind}\ndata: {data}\n\n".encode())
    await writer.drain()

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


def writes(*blocks: dict[str, Any], stop: str = "end_turn", tokens: int = 11) -> Reply:
    """A streamed answer of whole blocks, whose texts, arguments and citations come as deltas."""

    async def reply(request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.body["stream"] is True
        await head(writer, "200 OK", "text/event-stream")
        begun = {"id": "msg_1", "type": "message", "role": "assistant", "model": "test-model"}
        usage = {"input_tokens": tokens, "output_tokens": 1}
        message: dict[str, Any] = begun | {"content": [], "stop_reason": None, "usage": usage}
        await _event(writer, "message_start", message=message)
        for index, block in enumerate(blocks):
            empty = {name: type(block[name])() for name in ("text", "input") if name in block}
            shown = {name: value for name, value in block.items() if name != "citations"} | empty
            await _event(writer, "content_block_start", index=index, content_block=shown)
            deltas: list[dict[str, Any]] = [
                {"type": "citations_delta", "citation": each} for each in block.get("citations", ())
            ]
            if "input" in block:
                written = json.dumps(block["input"])
                deltas.append({"type": "input_json_delta", "partial_json": written})
            if "text" in block:
                deltas.append({"type": "text_delta", "text": block["text"]})
            for delta in deltas:
                await _event(writer, "content_block_delta", index=index, delta=delta)
            await _event(writer, "content_block_stop", index=index)
        searches = sum(block["type"] == "server_tool_use" for block in blocks)
        told = {"output_tokens": 7, "input_tokens": tokens}
        used = told | {"server_tool_use": {"web_search_requests": searches}}
        ended = {"stop_reason": stop, "stop_sequence": None}
        await _event(writer, "message_delta", delta=ended, usage=used)
        await _event(writer, "message_stop")

    return reply


def search(
    query: str, *pages: tuple[str, str], id_: str = "srvtoolu_1"
) -> tuple[dict[str, Any], ...]:
    """The blocks of a search that the provider makes; without pages it has failed."""
    found = [
        {"type": "web_search_result", "title": title, "url": url, "encrypted_content": "EqgfCioI"}
        for title, url in pages
    ]
    failed = {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}
    called = {"type": "server_tool_use", "id": id_, "name": "web_search", "input": {"query": query}}
    result = {"type": "web_search_tool_result", "tool_use_id": id_, "content": found or failed}
    return called, result


async def _event(writer: asyncio.StreamWriter, kind: str, **fields: Any) -> None:
    data = json.dumps({"type": kind, **fields})
    writer.write(f"event: {kind}\ndata: {data}\n\n".encode())
    await writer.drain()

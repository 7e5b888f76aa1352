"""A turn of the agent as a response: its items, and the events of its stream in their order."""

import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from wire.v1 import gateway_pb2 as pb

from runner.openai.requests import Asked, CallRef
from runner.openai.turns import ResponseRef

SERVER_LABEL: Final = "oxydra"
_REASONS: Final = {"length": "max_output_tokens", "filtered": "content_filter"}


class ResponseWriter:
    """Writes one response. Every method returns the events that it adds to the stream.

    What the agent's own tools do are items of the type mcp_call, which clients show and do not run.
    What is OpenAI's in name only stands in the field `oxydra`: session, turn, receipts, notices.
    """

    def __init__(self, ref: ResponseRef, asked: Asked, began_at: float) -> None:
        self._ref = ref
        self._turn = uuid.UUID(ref.turn_id.removeprefix("turn-")).hex
        self._number = 0
        self._text: str | None = None
        self._calls: dict[int, str] = {}
        self._own: dict[str, Any] = {"turn_id": ref.turn_id, "receipts": [], "notices": []}
        self.response: dict[str, Any] = {
            "id": ref.response_id,
            "object": "response",
            "created_at": began_at,
            "status": "in_progress",
            "background": asked.background,
            "error": None,
            "incomplete_details": None,
            "instructions": asked.instructions or None,
            "metadata": dict(asked.metadata),
            "model": asked.model,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": asked.previous or None,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [dict(tool) for tool in asked.told_tools],
            "top_p": None,
            "usage": None,
            "oxydra": self._own,
        }

    @property
    def _output(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.response["output"]
        return items

    def begin(self, session_id: str = "") -> list[dict[str, Any]]:
        """The response begins."""
        self._set_session(session_id)
        return [
            self._event("response.created", response=self._snapshot()),
            self._event("response.in_progress", response=self._snapshot()),
        ]

    def add(self, event: pb.TurnEvent) -> list[dict[str, Any]]:
        """Something happened in the turn."""
        return list(self._added(event))

    def _added(self, event: pb.TurnEvent) -> Iterator[dict[str, Any]]:
        kind = event.WhichOneof("event")
        if kind == "started":
            self._set_session(event.started.session_id)
        elif kind == "text":
            yield from self._say(event.text.text)
        elif kind == "notice":
            self._own["notices"].append(event.notice.text)
        elif kind == "receipt":
            self._own["receipts"].append(_plain(event.receipt))
        elif kind == "tool_started":
            yield from self._call(event.index, event.tool_started)
        elif kind == "tool_finished":
            yield from self._called(event.tool_finished)
        elif kind == "client_call":
            yield from self._close_text()
            yield from self._ask_client(event.index, event.client_call)
            yield self._end("completed")
        elif kind == "completed":
            yield from self._close_text()
            self._account(event.completed)
            yield self._end("completed")
        elif kind == "incomplete":
            yield from self._close_text("incomplete")
            self._account(event.incomplete.so_far)
            reason = _REASONS.get(event.incomplete.reason)
            self.response["incomplete_details"] = {"reason": reason}
            self._own["notices"].append(event.incomplete.message)
            yield self._end("incomplete")
        elif kind == "failed":
            yield from self._close_text("incomplete")
            self._own["receipts"] = [_plain(each) for each in event.failed.receipts]
            yield self._fail(event.failed)

    def _say(self, text: str) -> Iterator[dict[str, Any]]:
        if self._text is None:
            self._text = ""
            item = {"id": self._id("msg"), "type": "message", "role": "assistant"}
            yield self._add_item({**item, "status": "in_progress", "content": []})
            yield self._part("response.content_part.added", part=_output_text(""))
        self._text += text
        yield self._part("response.output_text.delta", delta=text, logprobs=[])

    def _close_text(self, status: str = "completed") -> Iterator[dict[str, Any]]:
        if self._text is None:
            return
        text, self._text = self._text, None
        yield self._part("response.output_text.done", text=text, logprobs=[])
        yield self._part("response.content_part.done", part=_output_text(text))
        self._output[-1].update(status=status, content=[_output_text(text)])
        yield self._item_done(len(self._output) - 1)

    def _call(self, index: int, started: pb.ToolCallStarted) -> Iterator[dict[str, Any]]:
        yield from self._close_text()
        item_id = f"mcp_{self._turn}_{index}"
        item = {
            "id": item_id,
            "type": "mcp_call",
            "server_label": SERVER_LABEL,
            "name": started.tool,
            "arguments": "",
            "status": "in_progress",
        }
        yield self._add_item(item)
        place = len(self._output) - 1
        self._calls[place] = started.call_id
        at = {"item_id": item_id, "output_index": place}
        yield self._event("response.mcp_call.in_progress", **at)
        arguments = started.arguments_json
        yield self._event("response.mcp_call_arguments.delta", delta=arguments, **at)
        yield self._event("response.mcp_call_arguments.done", arguments=arguments, **at)
        self._output[-1]["arguments"] = arguments

    def _called(self, finished: pb.ToolCallFinished) -> Iterator[dict[str, Any]]:
        """A call has finished; one of the client's has no item here."""
        open_calls = (at for at, call_id in self._calls.items() if call_id == finished.call_id)
        if (index := next(open_calls, None)) is None:
            return
        del self._calls[index]
        told = finished.output or finished.summary
        item = self._output[index]
        at = {"item_id": item["id"], "output_index": index}
        if finished.ok:
            item.update(status="completed", output=told)
            yield self._event("response.mcp_call.completed", **at)
        else:
            error = {"type": "mcp_tool_execution_error", "content": told}
            item.update(status="failed", error=error)
            yield self._event("response.mcp_call.failed", **at)
        yield self._item_done(index)

    def _ask_client(self, index: int, call: pb.ClientCall) -> Iterator[dict[str, Any]]:
        item_id = f"fc_{self._turn}_{index}"
        item = {
            "id": item_id,
            "type": "function_call",
            "call_id": CallRef(self._ref.turn_id, index).call_id,
            "name": call.tool,
            "arguments": "",
            "status": "in_progress",
        }
        yield self._add_item(item)
        at = {"item_id": item_id, "output_index": len(self._output) - 1}
        arguments = call.arguments_json
        yield self._event("response.function_call_arguments.delta", delta=arguments, **at)
        yield self._event(
            "response.function_call_arguments.done", name=call.tool, arguments=arguments, **at
        )
        self._output[-1].update(arguments=arguments, status="completed")
        yield self._item_done(len(self._output) - 1)
        self._own["expires_at"] = call.expires_at

    def _account(self, done: pb.TurnCompleted) -> None:
        self._own["receipts"] = [_plain(each) for each in done.receipts]
        self._own["cost_usd"] = done.cost_usd
        self._own["answered_by"] = done.model
        self.response["usage"] = {
            "input_tokens": done.input_tokens,
            "input_tokens_details": {"cached_tokens": done.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": done.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": done.input_tokens + done.output_tokens,
        }

    def _fail(self, failed: pb.TurnFailed) -> dict[str, Any]:
        if failed.code == "cancelled":
            return self._end("incomplete", status="cancelled")
        limited = failed.code == "resource_exhausted"
        told = "; ".join(filter(None, (failed.message, failed.resolution)))
        code = "rate_limit_exceeded" if limited else "server_error"
        self.response["error"] = {"code": code, "message": told}
        return self._end("failed")

    def _end(self, kind: str, status: str = "") -> dict[str, Any]:
        self.response["status"] = status or kind
        return self._event(f"response.{kind}", response=self._snapshot())

    def _set_session(self, session_id: str) -> None:
        if session_id:
            self._own["session_id"] = session_id
            self.response["conversation"] = {"id": session_id}

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._turn}_{self._ref.after}_{len(self._output)}"

    def _add_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self._output.append(item)
        index = len(self._output) - 1
        return self._event("response.output_item.added", output_index=index, item=dict(item))

    def _item_done(self, index: int) -> dict[str, Any]:
        item = dict(self._output[index])
        return self._event("response.output_item.done", output_index=index, item=item)

    def _part(self, kind: str, **fields: Any) -> dict[str, Any]:
        index = len(self._output) - 1
        item_id = self._output[index]["id"]
        return self._event(kind, item_id=item_id, output_index=index, content_index=0, **fields)

    def _event(self, kind: str, **fields: Any) -> dict[str, Any]:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event

    def _snapshot(self) -> dict[str, Any]:
        items = [dict(item) for item in self._output]
        own = {
            name: list(value) if isinstance(value, list) else value
            for name, value in self._own.items()
        }
        return {**self.response, "output": items, "oxydra": own}


def seconds(rfc3339: str) -> float:
    """A time of the gateway as OpenAI's API tells times."""
    return datetime.fromisoformat(rfc3339).timestamp()


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _plain(receipt: pb.MemoryReceipt) -> dict[str, Any]:
    return MessageToDict(receipt, preserving_proto_field_name=True)

"""A turn of the agent as a response: its items, and the events of its stream in their order."""

import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from wire.errors import in_a_line
from wire.v1 import gateway_pb2 as pb

from runner.client.turn import ToolCall, TurnSoFar, error_of
from runner.openai.requests import Asked, CallRef
from runner.openai.turns import ResponseRef, counted, own_field

SERVER_LABEL: Final = "oxydra"
_REASONS: Final = {"length": "max_output_tokens", "filtered": "content_filter"}


class ResponseWriter:
    """Writes one response. Every method returns the events that it adds to the stream.

    What the agent's own tools do are items of the type mcp_call, which clients show and do not run.
    What is OpenAI's in name only stands in the field `oxydra`: session, turn, receipts, notices.
    """

    def __init__(self, ref: ResponseRef, asked: Asked, began_at: float) -> None:
        self._ref = ref
        self._hex = uuid.UUID(ref.turn_id.removeprefix("turn-")).hex
        self._turn = TurnSoFar()
        self._number = 0
        self._text: str | None = None
        self._places: dict[int, int] = {}
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
            "tools": [],
            **asked.echoed,
            "top_p": None,
            "usage": None,
            "oxydra": own_field(ref, self._turn),
        }

    @property
    def _output(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.response["output"]
        return items

    def begin(self, session_id: str = "") -> list[dict[str, Any]]:
        self._turn.session_id = session_id
        self._tell()
        return [
            self._event("response.created", response=self._snapshot()),
            self._event("response.in_progress", response=self._snapshot()),
        ]

    def add(self, event: pb.TurnEvent) -> Iterator[dict[str, Any]]:
        kind, call = event.WhichOneof("event"), self._turn.add(event)
        if kind == "text":
            yield from self._say(event.text.text)
            return
        self._tell()
        if call is not None:
            yield from self._call(call) if kind == "tool_started" else self._called(call)
        elif kind == "client_call":
            yield from self._close_text()
            yield from self._ask_client(event.index, event.client_call)
            self._account(event.client_call)
            yield self._end("completed")
        elif kind == "completed":
            yield from self._close_text()
            self._account(event.completed)
            yield self._end("completed")
        elif kind == "incomplete":
            yield from self._close_text("incomplete")
            self._account(event.incomplete.so_far)
            self.response["incomplete_details"] = {"reason": _REASONS.get(event.incomplete.reason)}
            yield self._end("incomplete")
        elif kind == "failed":
            yield from self._close_text("incomplete")
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

    def _call(self, call: ToolCall) -> Iterator[dict[str, Any]]:
        yield from self._close_text()
        item = {
            "id": f"mcp_{self._hex}_{call.index}",
            "type": "mcp_call",
            "server_label": SERVER_LABEL,
            "name": call.started.tool,
        }
        self._places[call.index] = len(self._output)
        at = {"item_id": item["id"], "output_index": len(self._output)}
        yield self._add_item({**item, "arguments": "", "status": "in_progress"})
        yield self._event("response.mcp_call.in_progress", **at)
        yield from self._arguments("mcp_call_arguments", call.started.arguments_json)

    def _arguments(self, kind: str, arguments: str, **done: str) -> Iterator[dict[str, Any]]:
        """Those of the item that was added last."""
        at = {"item_id": self._output[-1]["id"], "output_index": len(self._output) - 1}
        yield self._event(f"response.{kind}.delta", delta=arguments, **at)
        yield self._event(f"response.{kind}.done", arguments=arguments, **done, **at)
        self._output[-1]["arguments"] = arguments

    def _called(self, call: ToolCall) -> Iterator[dict[str, Any]]:
        """A call has finished; one of the client's has no item here."""
        if (index := self._places.get(call.index)) is None:
            return
        finished = call.finished
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
        item = {
            "id": f"fc_{self._hex}_{index}",
            "type": "function_call",
            "call_id": CallRef(self._ref.turn_id, index).call_id,
            "name": call.tool,
        }
        yield self._add_item({**item, "arguments": "", "status": "in_progress"})
        yield from self._arguments("function_call_arguments", call.arguments_json, name=call.tool)
        self._output[-1]["status"] = "completed"
        yield self._item_done(len(self._output) - 1)

    def _account(self, took: pb.TurnCompleted | pb.ClientCall) -> None:
        usage = self.response["usage"] = counted(took, "input", "output")
        usage["input_tokens_details"]["cache_write_tokens"] = 0
        usage["output_tokens_details"] = {"reasoning_tokens": 0}

    def _fail(self, failed: pb.TurnFailed) -> dict[str, Any]:
        if failed.code == "cancelled":
            return self._end("incomplete", status="cancelled")
        limited = failed.code == "resource_exhausted"
        told = in_a_line(error_of(failed))
        code = "rate_limit_exceeded" if limited else "server_error"
        self.response["error"] = {"code": code, "message": told}
        return self._end("failed")

    def _end(self, kind: str, status: str = "") -> dict[str, Any]:
        self.response["status"] = status or kind
        return self._event(f"response.{kind}", response=self._snapshot())

    def _tell(self) -> None:
        """Write what is known of the turn into the response."""
        self.response["oxydra"] = own_field(self._ref, self._turn)
        if self._turn.session_id:
            self.response["conversation"] = {"id": self._turn.session_id}

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._hex}_{self._ref.after}_{len(self._output)}"

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
        return {**self.response, "output": [dict(item) for item in self._output]}


def seconds(rfc3339: str) -> float:
    """A time of the gateway in the format of OpenAI's API."""
    return datetime.fromisoformat(rfc3339).timestamp()


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

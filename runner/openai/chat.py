"""A turn of the agent as a chat completion, whole or in chunks.

The agent's own calls are no tool_calls, which a client would have to run: they stand, like receipts
and notices, in the field `oxydra` of the completion or of its last chunk.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from wire.v1 import gateway_pb2 as pb

from runner.access.exchange import plain
from runner.client.turn import TurnSoFar
from runner.openai.requests import Asked, CallRef
from runner.openai.turns import ResponseRef, counted, own_field

_REASONS: Final = {"length": "length", "filtered": "content_filter"}


class ChatWriter:
    """Writes one completion. `add` returns the chunks that it adds to the stream.

    Attributes:
        failed: Why there is no completion, once the turn has failed.
    """

    def __init__(self, ref: ResponseRef, asked: Asked) -> None:
        self._ref = ref
        self._asked = asked
        self._head = {
            "id": ref.response_id.replace("resp_", "chatcmpl-", 1),
            "created": int(time.time()),
            "model": asked.model,
        }
        self._turn = TurnSoFar()
        self._calls: list[dict[str, Any]] = []
        self._finish = "stop"
        self._usage: dict[str, Any] | None = None
        self.failed: pb.TurnFailed | None = None

    def begin(self, session_id: str = "") -> list[dict[str, Any]]:
        """The completion begins."""
        self._turn.session_id = session_id
        return [self._chunk({"role": "assistant", "content": ""})]

    def add(self, event: pb.TurnEvent) -> Iterator[dict[str, Any]]:
        """Something happened in the turn."""
        kind = event.WhichOneof("event")
        self._turn.add(event)
        if kind == "text":
            yield self._chunk({"content": event.text.text})
        elif kind == "client_call":
            yield self._chunk({"tool_calls": [self._client_call(event)]})
            self._finish = "tool_calls"
            self._usage = counted(event.client_call, "prompt", "completion")
            yield from self._end()
        elif kind == "completed":
            self._usage = counted(event.completed, "prompt", "completion")
            yield from self._end()
        elif kind == "incomplete":
            self._usage = counted(event.incomplete.so_far, "prompt", "completion")
            self._finish = _REASONS.get(event.incomplete.reason, "length")
            yield from self._end()
        elif kind == "failed":
            self.failed = event.failed

    @property
    def completion(self) -> dict[str, Any]:
        """The whole completion."""
        message: dict[str, Any] = {"role": "assistant", "content": self._turn.text}
        if self._calls:
            message["tool_calls"] = self._calls
        choice = {
            "index": 0,
            "message": {**message, "refusal": None},
            "finish_reason": self._finish,
            "logprobs": None,
        }
        usage = {"usage": self._usage} if self._usage else {}
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            **usage,
            "oxydra": self._own(),
        }

    def _own(self) -> dict[str, Any]:
        own = own_field(self._ref, self._turn)
        finished = [call.finished for call in self._turn.calls if call.finished.tool]
        own["calls"] = [plain(each) for each in finished]
        return own

    def _client_call(self, event: pb.TurnEvent) -> dict[str, Any]:
        asked = event.client_call
        call = {
            "id": CallRef(self._ref.turn_id, event.index).call_id,
            "type": "function",
            "function": {"name": asked.tool, "arguments": asked.arguments_json},
        }
        self._calls.append(call)
        return {"index": 0, **call}

    def _end(self) -> Iterator[dict[str, Any]]:
        yield {**self._chunk({}, self._finish), "oxydra": self._own()}
        if self._asked.with_usage and self._usage:
            yield {**self._chunk({}), "choices": [], "usage": self._usage}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

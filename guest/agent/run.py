"""What one running turn has done so far: recorded to the store, told to the watcher."""

from collections.abc import AsyncIterable, Callable
from typing import Any

from pydantic_ai.messages import (
    FunctionToolResultEvent,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from wire.v1 import gateway_pb2

from guest.agent import history
from guest.agent.save_guard import SaveGuard
from guest.agent.toolset import TurnDeps, finished
from guest.agent.turn import Emit, Pipeline, TurnRequest
from guest.tools.base import Approve, Safety, ToolResult

_SUMMARY_CHARS = 200


class Run:
    """The state of one turn; made for it and dropped with it.

    `steps` counts model requests, `answer` is the last recorded answer,
    `unrecorded` the text that was streamed but is not stored yet.
    """

    def __init__(
        self,
        request: TurnRequest,
        store: history.Store,
        pipeline: Pipeline,
        redact: Callable[[str], str],
        emit: Emit,
        approve: Approve | None,
    ) -> None:
        self.request = request
        self.steps = 0
        self.answer = ""
        self.unrecorded = ""
        self._store = store
        self._emit = emit
        self._guard = SaveGuard(pipeline, request.context, approve)
        self._reading = {t.name for t in pipeline.tools() if t.safety is Safety.READ_ONLY}
        self._recorded: set[str] = set()
        self.deps = TurnDeps(
            context=request.context,
            emit=emit,
            record=self.record_call,
            redact=redact,
            approve=approve,
        )

    async def stream_answer(self, stream: AsyncIterable[Any]) -> None:
        """Pass the text of one streamed answer on, as it comes."""
        async for event in stream:
            text = ""
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                text = event.part.content
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            if text:
                await self._say(text)

    async def record_answer(self, response: ModelResponse) -> None:
        """Store a whole answer; a final one is first made true by the save guard."""
        self.answer = history.storable(history.text_of(response))
        if not response.tool_calls:
            addition = await self._guard.amend(self.request.text, self.answer)
            if addition:
                addition = f"\n\n{addition}" if self.answer else addition
                await self._say(addition)
                self.answer += addition
                response = history.with_text(response, addition)
        await self._append("assistant", self.answer, history.to_payload(response))
        self.unrecorded = ""

    async def record_cut_off(self) -> None:
        """Store the text of an answer that never became whole."""
        said, self.unrecorded = self.unrecorded, ""
        await self._append("assistant", said, history.to_payload(history.assistant_text(said)))

    async def record_call(self, call_id: str, tool: str, result: ToolResult) -> None:
        """Store a finished call's result."""
        self._guard.saw(tool, result, changes=tool not in self._reading)
        self._recorded.add(call_id)
        message = history.tool_message(call_id, tool, result.text, is_error=result.is_error)
        await self._append("tool", f"{tool}: {result.summary}", history.to_payload(message))

    async def watch_calls(self, events: AsyncIterable[Any]) -> None:
        """See the calls of one answer through, with those that reached no tool."""
        self._recorded.clear()  # some models number their calls anew in every answer
        async for event in events:
            if isinstance(event, FunctionToolResultEvent):
                part = event.part
                if part.tool_call_id not in self._recorded:
                    await self._record_refused(part.tool_call_id, part.tool_name, str(part.content))

    async def _record_refused(self, call_id: str, tool: str, text: str) -> None:
        tool = history.storable(tool)
        result = ToolResult(
            text=text, is_error=True, summary=text.split("\n", 1)[0][:_SUMMARY_CHARS], duration_ms=0
        )
        await self._emit(gateway_pb2.ToolCallStarted(call_id=call_id, tool=tool))
        await self.record_call(call_id, tool, result)
        await self._emit(finished(call_id, tool, result))

    async def tell_if_unstored(self) -> None:
        """Tell the watcher, once, that what is said is not being stored right now."""
        if sentence := self._store.unstored(self.request.context.session_id):
            before = "\n\n" if self.answer else ""
            await self._emit(gateway_pb2.TextDelta(text=f"{before}({sentence})\n\n"))

    async def _say(self, text: str) -> None:
        text = history.storable(text)
        self.unrecorded += text
        await self._emit(gateway_pb2.TextDelta(text=text))

    async def _append(self, role: str, text: str, payload: str) -> None:
        context = self.request.context
        await self._store.append(
            context.user_id,
            context.session_id,
            turn_id=context.turn_id,
            role=role,
            text=history.storable(text),
            payload=payload,
        )
        await self.tell_if_unstored()

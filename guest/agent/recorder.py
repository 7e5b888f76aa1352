"""What one running turn has done so far: recorded to the store, told to the watcher."""

from collections.abc import AsyncIterable, Callable, Iterable, Sequence
from dataclasses import replace
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
from guest.agent.guard.earlier import earlier_in
from guest.agent.guard.tool_events import event_text
from guest.agent.save_guard import SaveGuard
from guest.agent.toolset import TurnDeps, finished
from guest.agent.turn import Emit, Pipeline, TurnRequest
from guest.memory.models import Event
from guest.memory.storage.changes import Unbroken
from guest.tools.base import Approve, ToolContext, ToolResult

_SUMMARY_CHARS = 200
_BREAK = "\n\n"


class Run:
    """The state of one turn; made for it and dropped with it.

    `steps` counts model requests, `answer` is the last recorded answer,
    `unrecorded` the text that was streamed but not handed to the store yet. Text is
    streamed by whole sentences, and only where it is true (`guest.agent.guard.held_text`):
    what is held back while calls run, and then shown, becomes the beginning of the next
    answer.
    """

    def __init__(
        self,
        request: TurnRequest,
        store: history.Store,
        pipeline: Pipeline,
        redact: Callable[[str], str],
        emit: Emit,
        approve: Approve | None,
        *,
        earlier: Sequence[Event] = (),
    ) -> None:
        self.request = request
        self.steps = 0
        self.answer = ""
        self.unrecorded = ""
        self._store = store
        self._storing = Unbroken()  # else what a cancelled turn was storing is stored again
        self._emit = emit
        before = earlier_in(earlier)
        self._guard = SaveGuard(pipeline, request, approve, before, self._context)
        self._material = dict.fromkeys(before.material)
        self._prompted: tuple[str, ...] = ()
        self._recorded: set[str] = set()
        self._answers = 0
        self._paragraph_due = False
        self.deps = TurnDeps(
            context=self._context,
            emit=emit,
            record=self.record_call,
            redact=redact,
            approve=approve,
        )

    def shown(self, material: Iterable[str], note_ids: Iterable[str] = ()) -> None:
        """The prompt has brought in these notes, and this material that nobody vouched for."""
        self._prompted = tuple(material)
        self._material |= dict.fromkeys(self._prompted)
        self._guard.shown(tuple(note_ids))

    async def stream_answer(self, stream: AsyncIterable[Any]) -> None:
        """Pass the text of one streamed answer on, as it comes."""
        said = apart = False
        async for event in stream:
            text = ""
            if isinstance(event, PartStartEvent):
                apart = said and event.previous_part_kind != "text"
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                text = event.part.content
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                text = event.delta.content_delta
            if text:
                text = _BREAK + text if apart else text
                said, apart = True, False
                await self._say(self._guard.text.add(history.storable(text)))

    async def record_answer(self, response: ModelResponse) -> None:
        """Store a whole answer as it was shown; a final one is first made true."""
        self._answers += 1
        if response.tool_calls:
            await self._say(self._guard.text.pause())
        else:
            await self._say(self._guard.text.end())
            if history.text_of(response):  # else the model is asked once more
                await self._add(await self._guard.amend(self.unrecorded))
        self.answer, self.unrecorded = self.unrecorded, ""
        await self._append_answer(_showing(response, self.answer), self.answer)

    async def record_cut_off(self) -> None:
        """See through what is being stored, and store what was shown of an answer that never
        became whole."""
        await self._storing.finish()
        said, self.unrecorded = self.unrecorded, ""
        if said:
            await self._append_answer(history.assistant_text(said), said)

    async def save_what_was_asked(self) -> None:
        """For a turn that fails: show what the model has said so far and is true, save what
        the user asked to be kept, and say how that went."""
        await self._say(self._guard.text.end())
        await self._add(await self._guard.keep())

    async def record_call(
        self, call_id: str, tool: str, arguments: Any, result: ToolResult
    ) -> None:
        """Store a finished call's result."""
        self._guard.saw(tool, arguments, result, self._answers)
        self._material |= dict.fromkeys(result.material)
        self._recorded.add(call_id)
        message = history.tool_message(
            call_id, tool, result.text, is_error=result.is_error, material=result.material
        )
        await self._append("tool", event_text(tool, result), history.to_payload(message))

    async def watch_calls(self, events: AsyncIterable[Any]) -> None:
        """See the calls of one answer through, with those that reached no tool."""
        self._recorded.clear()  # some models number their calls anew in every answer
        async for event in events:
            if isinstance(event, FunctionToolResultEvent):
                part = event.part
                if part.tool_call_id not in self._recorded:
                    await self._record_refused(part.tool_call_id, part.tool_name, str(part.content))
                await self._say(self._guard.text.release())
        await self._say(self._guard.text.end())
        self._paragraph_due = bool(self.unrecorded)

    async def _record_refused(self, call_id: str, tool: str, text: str) -> None:
        tool = history.storable(tool)
        result = ToolResult(
            text=text, is_error=True, summary=text.split("\n", 1)[0][:_SUMMARY_CHARS], duration_ms=0
        )
        await self._emit(gateway_pb2.ToolCallStarted(call_id=call_id, tool=tool))
        await self.record_call(call_id, tool, None, result)
        await self._emit(finished(call_id, tool, result))

    async def tell_if_unstored(self) -> None:
        """Tell the watcher, once, that what is said is not being stored right now."""
        if sentence := self._store.unstored(self.request.context.session_id):
            before = _BREAK if self.answer else ""
            await self._emit(gateway_pb2.TextDelta(text=f"{before}({sentence}){_BREAK}"))

    def _context(self) -> ToolContext:
        """For the next call: with all that the model has before its eyes by now."""
        return replace(
            self.request.context, asked=self.request.text, material=tuple(self._material)
        )

    async def _add(self, statement: str) -> None:
        """Say something in the runtime's own name, as a paragraph."""
        if statement:
            self._paragraph_due = bool(self.unrecorded)
            await self._say(history.storable(statement))

    async def _say(self, text: str) -> None:
        if self._guard.text.struck and not self.unrecorded:
            text = text.lstrip()
        if not text:
            return
        if self._paragraph_due:
            self._paragraph_due = False
            ended = len(self.unrecorded) - len(self.unrecorded.rstrip("\n"))
            text = _BREAK[ended:] + text.lstrip()
        await self._emit(gateway_pb2.TextDelta(text=text))
        self.unrecorded += text

    async def _append_answer(self, response: ModelResponse, text: str) -> None:
        """Store an answer; what its prompt had brought in, later turns have through it."""
        if self._prompted:
            response = replace(response, metadata={"material": list(self._prompted)})
        await self._append("assistant", text, history.to_payload(response))

    async def _append(self, role: str, text: str, payload: str) -> None:
        context = self.request.context
        await self._storing.run(
            self._store.append(
                context.user_id,
                context.session_id,
                turn_id=context.turn_id,
                role=role,
                text=history.storable(text),
                payload=payload,
            )
        )
        await self.tell_if_unstored()


def _showing(response: ModelResponse, text: str) -> ModelResponse:
    """`response` with `text` instead of its own, where that is another."""
    if history.storable(history.text_of(response)) == text:
        return response
    others = [part for part in response.parts if not isinstance(part, TextPart)]
    place = next((n for n, part in enumerate(response.parts) if isinstance(part, TextPart)), 0)
    place = min(place, len(others))
    shown = [TextPart(text)] if text else []
    return replace(response, parts=[*others[:place], *shown, *others[place:]])

"""Records what a running turn does in the store, and reports it to the watcher."""

import json
import re
import time
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic_ai.messages import FunctionToolResultEvent, ModelResponse, PartStartEvent
from pydantic_ai.usage import RunUsage
from wire.text import visible
from wire.v1 import gateway_pb2 as pb

from guest.agent import history, waiting
from guest.agent.answer_form import NO_FORM
from guest.agent.deferred import FIND_TOOLS, FoundTools
from guest.agent.events import INCOMPLETE, REQUEST, is_users
from guest.agent.incomplete import Incomplete, Reason, Size
from guest.agent.meter import Bill, countable
from guest.agent.models.at_home import WITHHELD
from guest.agent.prompt.builder import SECRETS
from guest.agent.prompt.fitting import Sent
from guest.agent.reading import Reading
from guest.agent.receipts import saving, second_chance
from guest.agent.receipts.ledger import Ledger, parsed, to_message
from guest.agent.receipts.saving import Call
from guest.agent.repetition import AGAIN, Repetition, SameCalls
from guest.agent.turn import Answer, AskClient, Emit, TurnRequest
from guest.errors import ToolError
from guest.memory.conversations.store import Conversations
from guest.memory.models import LOCAL, MARKED, Event, Receipt
from guest.memory.storage.changes import Background
from guest.tools.base import Approve, Found, Reply, Tool, ToolContext, ToolResult
from guest.tools.clock import Clock
from guest.tools.memory.provenance import dated
from guest.tools.pipeline import ToolPipeline

_SUMMARY_CHARS = 200
_PAGES = 50
_WITHHELD = (
    "notes tagged local, and what came of them, were not sent: this model runs elsewhere, or its "
    "server does not say at POST /api/show that it runs here"
)
_BREAK = "\n\n"
_IDS = re.compile(r"(?<![\w-])(?:note-)?([0-9a-f]{8}(?:-[0-9a-f-]{27})?)(?![\w-])", re.IGNORECASE)


@dataclass(repr=False, eq=False)
class Run:
    """The state of one turn, discarded with it.

    Attributes:
        tools: Those that the session has found.
        clock: The time that it may take; stands still while a person is waited for.
        steps: The number of requests to the model.
        searches: The number of searches by its provider.
        bill: What they took.
        refusals: What the model is told of calls that must not run, by their ids.
        cut: Why that text is incomplete if it stays so.
        answered_by: The label of the model that answered last.
        sent: What the last request was made of; None before the first.
        keep_beside: Takes what stood beside the user's message in it.
        form: How the model's answer must be. One that must be of a form is shown when it is whole.
    """

    request: TurnRequest
    store: Conversations
    tools: FoundTools
    pipeline: ToolPipeline
    redact: Callable[[str], str]
    emit: Emit
    approve: Approve | None
    clock: Clock
    bill: Bill
    ask_client: AskClient | None = None
    earlier: Sequence[Event] = ()

    def __post_init__(self) -> None:
        self.steps = self.searches = 0
        self.refusals: dict[str, str] = {}
        self._unrecorded: list[str] = []
        self.cut: Reason = "stopped"
        self.usage = RunUsage()
        self.answered_by = ""
        self.sent: Callable[[], Sent | None] = lambda: None
        self.keep_beside: Callable[[str], None] = lambda _: None
        self._prompt_notes: Found = ()
        self._tool_notes: dict[str, tuple[str, str]] = {}
        self.form = self.request.client.form
        self.ledger = Ledger(self.pipeline, self._approved if self.approve else None)
        self._offered = [tool.name for tool in self.pipeline.tools()]
        self._storing = Background()  # otherwise a cancelled turn would store twice
        self._changing = Background()  # a change of memory that has begun is completed
        self._material = dict.fromkeys(history.material_in(self.earlier))
        self._vouched = dict.fromkeys(each.text for each in self.earlier if is_users(each))
        self._prompted: tuple[str, ...] = ()
        self._secrets_are_told = False
        self._hides = 0
        self._calls: list[Call] = []
        self._recorded: set[str] = set()
        self._answers: list[str] = []
        self._paragraph_due = False
        self._saved_by_itself = False
        self._deletes: tuple[str, ...] = ()
        self._decided: dict[str, bool] = {}
        self._told: dict[str, str] = {}
        self._reading = Reading(())
        self._allowed: list[str] = []
        self._same = SameCalls()
        self._is_local = self._tells_of_home = False

    @property
    def unrecorded(self) -> str:
        """Streamed text that is not stored yet."""
        return "".join(self._unrecorded)

    @property
    def answer(self) -> str:
        """The model's whole answer, without text beside tool calls."""
        return _BREAK.join(self._answers)

    def shown(self, material: Iterable[str], vouched: Iterable[str], found: Found) -> None:
        """Record the material, the user's own words, and the recalled notes in the prompt."""
        self._prompt_notes = found
        self._prompted = tuple(material)
        self._material |= dict.fromkeys(self._prompted)
        self._vouched |= dict.fromkeys(vouched)

    async def stream_answer(
        self,
        stream: AsyncIterable[Any],
        reading: Reading,
        *,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Forward the text of one streamed answer. One that adds nothing is not forwarded, where
        the model was asked once more.

        Args:
            reading: Says what of it may be shown.
            begun: Is called when its first event has come.

        Raises `Incomplete` for an answer that is too long to be kept, or repeats itself.
        """
        said = apart = False
        pending = ""
        size = Size()
        repetition = Repetition(self.request.text)
        self._reading = reading
        self._allowed.clear()
        async for event in stream:
            begun()
            written, thought = size.add(event)
            repeats = repetition.add(written or thought)
            await self._searched(event, getattr(event, "part", None))
            if isinstance(event, PartStartEvent):
                apart = said and event.previous_part_kind != "text"
            text = reading.add(written) if written else ""
            if repeats:
                self._unrecorded = [repetition.once(self.unrecorded + text)]
                raise Incomplete("repeated")
            if reading.unopened:
                await self._was_thinking()
                pending, reading.unopened = "", False
            if not text:
                continue
            pending += _BREAK + text if apart else text
            said, apart = True, False
            if not self._adds_nothing(pending.strip()):
                self._hides = 0
                await self._stream_text(history.storable(pending))
                pending = ""
        pending += reading.finish()
        if not self._adds_nothing(pending.strip()):
            await self._stream_text(history.storable(pending))

    async def _searched(self, event: Any, part: Any) -> None:
        """Record a search that the model's provider has made; what it has found is material."""
        kind = event.event_kind, getattr(part, "part_kind", "")
        if kind == ("part_end", "builtin-tool-call"):
            self.searches += 1
            query = visible(self.redact(str(part.args_as_dict().get("query"))))[:_SUMMARY_CHARS]
            call = pb.ToolCallStarted(call_id=part.tool_call_id, tool=part.tool_name, told=query)
            await self.begin(call)
        if kind == ("part_start", "builtin-tool-return"):
            query = self._told.get(part.tool_call_id, "")
            pages = part.content[:_PAGES] if isinstance(part.content, list) else []
            rows = (visible(f"{each.get('url')} {each.get('title')}") for each in pages)
            text = "\n".join(row[: _SUMMARY_CHARS * 2] for row in rows) or "nothing is found"
            result = _result(text, is_error=not pages)
            result = replace(result, material=(f"web: search for {query}",))
            await self._record_call(part.tool_call_id, part.tool_name, {"query": query}, result)

    async def answers_with(self, marks: Collection[str]) -> None:
        """Note whether the next answer stays on this machine; say once if it is made without what
        does."""
        self._is_local = LOCAL in marks
        if WITHHELD in marks and not self._tells_of_home:
            self._tells_of_home = True
            await self.notice(_WITHHELD)

    async def record_answer(self, response: ModelResponse) -> None:
        """Store a whole answer as it was shown."""
        self.ledger.next_reply()
        changes = (self.ledger.change_of(each.tool_name, each.args) for each in response.tool_calls)
        deletes = (each.note_id for each in changes if each and each.action == "deleted")
        self._deletes = tuple(filter(None, deletes))
        self._decided = {}
        if (self.form or self._reading.held) and not response.tool_calls:
            self._unrecorded.clear()
            await self._stream_text(history.storable(history.text_of(response)), whole=True)
        said = self._take_unrecorded()
        if response.tool_calls:
            await self._append_answer(response, said)
        elif said or not history.text_of(response):  # else nothing was to be added
            if said:
                self._answers.append(said)
            await self._append_answer(response, said)

    async def record_cut_off(self) -> None:
        """Store the shown text of an incomplete answer, and finish running writes."""
        await self._storing.finish()
        said = self._take_unrecorded()
        if said:
            self._answers.append(said)
            marks = {INCOMPLETE: self.cut} | ({LOCAL: True} if self._is_local else {})
            answer = replace(history.assistant_text(said), metadata=marks)
            await self._append_answer(answer, said)
        await self._changing.finish()

    async def _was_thinking(self) -> None:
        """Tell the watcher that what was streamed of an answer was no part of it."""
        if self.unrecorded:
            self._unrecorded.clear()
            self._paragraph_due = True
            await self.notice("what stands above was the model's thinking; its answer follows")

    def drop_unrecorded(self) -> None:
        """Forget what was streamed and not shown of an answer that is not of the form."""
        self._unrecorded.clear()

    def second_chance(self) -> str:
        """The text with which to ask the model once more; empty if that is not needed."""
        if self.form or (self._saved_by_itself and self.ledger.receipts):
            return ""
        can_save = any(self.ledger.change_of(name, {}) for name in self._offered)
        ok = len(second_chance.NOTHING_TO_ADD) + 1
        self._hides = second_chance.SHORT_CHARS if can_save else ok
        return second_chance.facts(self.request.text, self.answer, self.ledger, can_save=can_save)

    def _adds_nothing(self, text: str) -> bool:
        """Whether an answer that the model was asked for once more begins so, and is hidden if it
        ends there. None is that follows a call."""
        repeated = self.answer.strip().startswith(text)
        return bool(self._hides) and (len(text) <= self._hides or repeated)

    def ask_once_more(self) -> None:
        """Start a new paragraph for the model's next answer."""
        self._paragraph_due = bool(self._answers)

    async def save_by_itself(self) -> None:
        """Save once what the user clearly asked for, if nothing was saved in this turn."""
        done = self._saved_by_itself or self.ledger.kept
        if not done and (request := saving.request_in(self.request.own_words)):
            self._saved_by_itself = True
            self.ledger.next_reply()
            self._is_local |= any(MARKED in each.payload for each in self.earlier)
            saver = saving.Saver(self.ledger, self._offered, self._context)
            request = replace(request, words=dated(request.words, self.request.today))
            previous = history.previous_answer(self.earlier)
            work = saver.save(request, self._calls, previous, self._emit_receipt)
            await self._changing.run(work)

    async def call(self, call_id: str, tool: str, arguments: Any) -> ToolResult:
        """Run one call of the model, store its result and tell the watcher. A change of memory
        is completed even if the turn is cancelled."""
        if refusal := self.refusals.pop(call_id, ""):
            return await self._refuse(call_id, tool, refusal)
        if tool == FIND_TOOLS:
            found = await self.tools.find(str(parsed(arguments).get("query", "")))
            return await self._record_call(call_id, tool, arguments, _result(found))
        await self.tools.use(tool)
        call = self._call(call_id, tool, arguments)
        if self.ledger.change_of(tool, arguments) is not None:
            return await self._changing.run(call)
        return await call

    async def call_client(self, call_id: str, tool: str, arguments: Any) -> ToolResult:
        """Have the client run a call of the model, store its result and tell the watcher."""
        if refusal := self.refusals.pop(call_id, ""):
            return await self._refuse(call_id, tool, refusal)
        with self.clock.stopped():
            result = await self._run_by_client(call_id, tool, arguments)
        return await self._record_call(call_id, tool, arguments, result)

    async def _run_by_client(self, call_id: str, tool: str, arguments: Any) -> ToolResult:
        """Have the client run a call; it says how the model's answer must be then."""
        began = time.monotonic()
        try:
            read = json.loads(arguments) if isinstance(arguments, str) else arguments
        except ValueError:
            read = None
        answer: Answer | None = Answer("the arguments must be a JSON object", is_error=True)
        if isinstance(read, dict):
            call = pb.ClientCall(
                call_id=call_id,
                tool=tool,
                arguments_json=history.storable(self.redact(json.dumps(read, ensure_ascii=False))),
                input_tokens=countable(self.usage.input_tokens),
                output_tokens=countable(self.usage.output_tokens),
            )
            answer = None if self.ask_client is None else await self.ask_client(call)
            self.form = NO_FORM if answer is None else answer.form
        if answer is None:
            answer = Answer(
                "the client's program has not answered this call in time", is_error=True
            )
        return replace(
            _result(history.storable(self.redact(answer.output)), is_error=answer.is_error),
            duration_ms=round((time.monotonic() - began) * 1000),
            material=(f"{tool}, a tool of the client",),
        )

    async def watch_calls(self, events: AsyncIterable[Any]) -> None:
        """Handle the calls of one answer, including those that reached no tool.

        Raises `BudgetError` if one of them is made again and again; see `SameCalls`.
        """
        self._recorded.clear()  # some models number their calls anew in every answer
        async for event in events:
            if isinstance(event, FunctionToolResultEvent):
                part = event.part
                if part.tool_call_id not in self._recorded:
                    await self._record_refused(part.tool_call_id, part.tool_name, str(part.content))
        self._same.end_answer()

    def first_token(self, turn_s: float) -> AbstractAsyncContextManager[Callable[[], None]]:
        """Wait for an answer to begin, with a word to the watcher; see `waiting.first_token`."""

        async def tell() -> None:
            sent = self.sent()
            size = (
                sum((sent.rules, sent.tools, sent.memory, sent.history, sent.turn)) if sent else 0
            )
            await self.notice(f"the model is still loading, or reads about {size:,} tokens")

        return waiting.first_token(self.clock, self.request.context.pause, turn_s, tell)

    async def notice(self, sentence: str) -> None:
        """Tell the watcher something in passing that is no part of the answer."""
        await self.emit(pb.Notice(text=sentence))

    async def not_shown(self, path: str, why: str) -> None:
        text = f"{path} is not shown to the model: {why}"
        await self.emit(pb.Notice(text=text, attachment=path))

    async def no_picture_is_shown(self, why: str) -> None:
        """Tell the watcher that the model is shown no picture after all."""
        for each in self.request.attachments:
            if each.image:
                await self.not_shown(each.path, why)

    async def notify_if_unstored(self) -> None:
        """Tell the watcher once if the conversation is not being stored right now."""
        if sentence := self.store.unstored(self.request.context.session_id):
            before = _BREAK if self._answers else ""
            told = pb.TextDelta(text=f"{before}({sentence}){_BREAK}")
            await self.emit(pb.Notice(text=sentence) if self.form else told)

    async def begin(self, event: pb.ToolCallStarted) -> None:
        """Tell the watcher of a call, and remember what is told of it."""
        self._told[event.call_id] = event.told
        await self.emit(event)

    @property
    def said(self) -> tuple[str, ...]:
        """What the user has said, in this turn and before."""
        own = (self.request.own_words, *(e.text for e in self.earlier if is_users(e)))
        return tuple(filter(None, own))

    @property
    def vouched(self) -> tuple[str, ...]:
        """The user's own words and notes that the model has seen."""
        return tuple(self._vouched)

    @property
    def has_read(self) -> bool:
        """Whether the model has read in this turn what nobody vouches for."""
        return bool(self._prompted) or any(call.result.material for call in self._calls)

    @property
    def has_person(self) -> bool:
        return self.approve is not None

    async def allows(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Ask a person about a call of the coming ones. A yes is one for its approval, too."""
        assert self.approve is not None
        shown = self.redact(json.dumps(arguments, ensure_ascii=False))
        try:
            with self.clock.stopped():
                allowed = await self.approve(self._context(), tool, shown) is True
        except ToolError:
            allowed = False
        self._allowed += [tool.name] * allowed
        return allowed

    async def _approved(self, context: ToolContext, tool: Tool, arguments_json: str) -> bool:
        """What a person says to a call; of deletions, once to all of one reply."""
        assert self.approve is not None
        if tool.name in self._allowed:
            self._allowed.remove(tool.name)
            return True
        asked = json.loads(arguments_json) if tool.asks else {}
        if asked and asked.keys() <= self._decided.keys():
            return all(self._decided[each] for each in asked)
        self._decided |= dict.fromkeys(asked, False)
        with self.clock.stopped():
            approved = await self.approve(context, tool, arguments_json)
        self._decided |= dict.fromkeys(asked, approved)
        return approved

    async def _call(self, call_id: str, tool: str, arguments: Any) -> ToolResult:
        result = await self.ledger.call(self._context(), tool, arguments)
        if "[redacted:" in result.text and not self._secrets_are_told:
            self._secrets_are_told = True
            result = replace(result, text=f"{result.text}\nNote: {SECRETS}")
        result = await self._record_call(call_id, tool, arguments, result)
        for receipt in result.receipts:
            if receipt.outcome != "failed":  # which the model, or the runtime, may still mend
                await self._emit_receipt(receipt)
        return result

    async def _emit_receipt(self, receipt: Receipt) -> None:
        words = self.ledger.words_of(receipt)
        await self.emit(to_message(receipt, self.request.context.turn_id, words))

    async def _record_call(
        self, call_id: str, tool: str, arguments: Any, result: ToolResult
    ) -> ToolResult:
        """Store what a call brought and tell the watcher."""
        self._hides = 0
        if self._is_local:
            result = replace(result, local=(*result.local, ""))
        self._calls.append(call := Call(tool, parsed(arguments), result))
        if self._same.add(call):
            result = replace(result, text=f"{result.text}\nNote: {AGAIN}")
        self._material |= dict.fromkeys(result.material)
        self._vouched |= dict.fromkeys(result.vouched)
        self._tool_notes |= {note_id: (how, tool) for note_id, how in result.found}
        self._recorded.add(call_id)
        message = history.tool_message(
            *(call_id, tool, result.text),
            is_error=result.is_error,
            material=result.material,
            told=self._told.pop(call_id, ""),
            local=result.local,
        )
        await self._append("tool", history.event_text(tool, result), history.to_payload(message))
        await self.emit(_finished(call_id, tool, result))
        return result

    async def _record_refused(self, call_id: str, tool: str, text: str) -> None:
        tool = history.storable(tool)
        await self.emit(pb.ToolCallStarted(call_id=call_id, tool=tool))
        await self._refuse(call_id, tool, text)

    async def _refuse(self, call_id: str, tool: str, text: str) -> ToolResult:
        """Answer a call that does not run, store that and tell the watcher."""
        return await self._record_call(call_id, tool, None, _result(text, is_error=True))

    def _context(self) -> ToolContext:
        """The context of the next call, with all material and all of the user's own words that the
        model has seen so far."""
        return replace(
            self.request.context,
            asked=self.request.own_words,
            vouched=tuple(self._vouched),
            material=tuple(self._material),
            reply=Reply(self._known(), self._deletes),
            local=self._is_local,
        )

    def _known(self) -> frozenset[str]:
        """The notes that a search of this turn has found (a list of the newest is none), that were
        recalled beside the message, or that the user has named."""
        sent = self.sent()
        recalled = self._prompt_notes if sent is None or sent.recalled else ()
        found = [(note_id, how) for note_id, (how, _) in self._tool_notes.items()]
        shown = (note_id for note_id, how in (*found, *recalled) if how)
        named = (f"note-{each.lower()}" for each in _IDS.findall(self.request.own_words))
        return frozenset((*shown, *named))

    async def _stream_text(self, text: str, *, whole: bool = False) -> None:
        if not text:
            return
        if self._paragraph_due:
            self._paragraph_due = False
            await self.emit(pb.TextDelta(text=_BREAK))
        if whole or not self.form:
            await self.emit(pb.TextDelta(text=text))
        self._unrecorded.append(text)

    def _take_unrecorded(self) -> str:
        said = self.unrecorded
        self._unrecorded.clear()
        return said

    async def _append_answer(self, response: ModelResponse, text: str) -> None:
        """Store an answer with the material of its prompt, which later turns inherit from it, and
        with what its request was made of."""
        marks = dict(response.metadata or {})
        if self._prompted:
            marks["material"] = list(self._prompted)
        if (sent := self.sent()) is not None:
            made_of = asdict(sent) | {"notes": self._notes_in(sent)}
            self.keep_beside(made_of.pop("beside"))
            marks[REQUEST] = made_of
        if marks:
            response = replace(response, metadata=marks)
        await self._append("assistant", text, history.to_payload(response))

    def _notes_in(self, sent: Sent) -> list[tuple[str, str, str]]:
        """The notes that the model has seen: each once, with how it was found and the tool that
        showed it."""
        prompted = (each for each in self._prompt_notes if sent.recalled or not each[1])
        found = {note_id: (how, "") for note_id, how in prompted}
        shown = {**self._tool_notes, **found}
        return [(note_id, how, tool) for note_id, (how, tool) in shown.items()]

    async def _append(self, role: str, text: str, payload: str) -> None:
        context = self.request.context
        await self._storing.run(
            self.store.append(
                context.session_id,
                turn_id=context.turn_id,
                role=role,
                text=history.storable(text),
                payload=payload,
            )
        )
        await self.notify_if_unstored()


def _result(text: str, *, is_error: bool = False) -> ToolResult:
    """What a call gives that no tool has run."""
    summary = next(iter(text.splitlines()), "")[:_SUMMARY_CHARS]
    return ToolResult(text=text, is_error=is_error, summary=summary, duration_ms=0)


def _finished(call_id: str, tool: str, result: ToolResult) -> pb.ToolCallFinished:
    return pb.ToolCallFinished(
        call_id=call_id,
        tool=tool,
        ok=not result.is_error,
        summary=history.storable(result.summary),
        duration_ms=result.duration_ms,
        output=history.storable(result.printed),
    )

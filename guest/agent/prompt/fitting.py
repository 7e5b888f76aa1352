"""Keeps every request of a turn within the window, by cutting in a fixed order.

First recalled memory is left out. Then tool outputs of earlier turns are shortened, oldest first;
then the oldest turns are dropped whole; then tool outputs of the running turn are shortened. The
summary, the scratchpad and the handoff note are cut last. The rules and the user's message are
never cut.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai import RetryModelRequest, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import ModelRequestContext
from wire.errors import Code
from wire.tools import MEMORY_TOOLS

from guest.agent.models.errors import is_too_long
from guest.agent.models.windows import Windows
from guest.agent.prompt.builder import Prepared, Sections
from guest.agent.prompt.recall import without
from guest.agent.prompt.window import of_messages, of_part, of_tools
from guest.agent.prompt.working_memory import WRITING
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME
from guest.errors import GuestError
from guest.memory.search.tokens import bytes_within, tokens_of

_SHORTENED: Final = " [… shortened to fit the window]"
_LEAST: Final = 100
"""The tokens that a shortened output keeps: its subject and beginning."""
_NOTES_BYTES: Final = 600
_NOTES_SHARE: Final = 4
"""Of a result's notes a shortened output keeps so many bytes, or one part in so many of it."""
_CUTS_MAX: Final = 3
"""How often a request is cut to half of its size that the provider finds too long."""
_NOTE_BYTES: Final = 150
"""The least that is kept of a long note: its beginning and its end."""


@dataclass(frozen=True)
class Sent:
    """What the parts of a request take, in estimated tokens.

    `window` is what it was fitted into: `window_set` as configured, or less where the model has
    refused that; `window_known` is the model's as its provider documents it, or 0. `recalled` says
    whether recalled memory is in it.
    """

    rules: int
    tools: int
    memory: int
    history: int
    turn: int
    window: int
    window_set: int
    window_known: int
    recalled: bool


class FitToWindow(AbstractCapability[Any]):
    """Cuts each request of one turn to the window, right before it is sent.

    `working` returns the current working memory, for requests after a call that may have changed
    it. Notes that a memory tool has shown, changed or deleted in this turn are removed from
    recalled memory.

    Where the provider says that the model's window is smaller, the request is cut to half of what
    was sent and tried again, a few times. `windows` learn what it took then, and `notice` tells
    it. `sent` is the last request.
    """

    def __init__(
        self,
        prepared: Prepared,
        asked: str,
        window: int,
        working: Callable[[], Awaitable[str]],
        *,
        windows: Windows,
        model: str = "",
        window_known: int = 0,
        notice: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._prepared = prepared
        self._asked = asked
        self._configured = window
        self._windows = windows
        self._model = model
        self._window_known = window_known
        self._notice = notice
        self._window = windows.of(model)
        self._working = working
        self._sent = 0
        self.sent: Sent | None = None
        self._refused: Exception | None = None

    async def prepare_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - all is in the request
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        parameters = request_context.model_request_parameters
        own = self._prepared.instructions
        parts = parameters.instruction_parts or []
        others = sum(tokens_of(part.content) for part in parts if part.content != own)
        tools = of_tools([*parameters.function_tools, *parameters.output_tools]) + others
        messages = _with_beside("", request_context.messages, self._asked)
        running = messages[_begin(messages, self._asked) :]
        sections = self._prepared.sections
        if any(part.tool_name in WRITING for part in _results(running)):
            sections = replace(sections, working=await self._working())
        remembered = [part for part in _results(running) if part.tool_name in MEMORY_TOOLS]
        if remembered and sections.relevant:
            told = "\n".join(part.model_response_str() for part in remembered)
            sections = replace(sections, relevant=without(sections.relevant, told))
        request = self._fitted(Request(sections, messages), tools)
        self._sent = request.size + tools
        self.sent = self._parts(request, tools)
        instructions = [
            replace(part, content=request.sections.instructions) if part.content == own else part
            for part in parts
        ]
        request_context.messages = _with_beside(
            request.sections.beside, request.messages, self._asked
        )
        request_context.model_request_parameters = replace(
            parameters, instruction_parts=instructions
        )
        return request_context

    def _parts(self, request: "Request", tools: int) -> Sent:
        shown, begin = request.sections, _begin(request.messages, self._asked)
        return Sent(
            rules=tokens_of(shown.rules) + tokens_of(shown.client),
            tools=tools,
            memory=tokens_of(shown.handoff) + tokens_of(shown.beside),
            history=tokens_of(shown.summary) + of_messages(request.messages[:begin]),
            turn=of_messages(request.messages[begin:]),
            window=self._window,
            window_set=self._configured,
            window_known=self._window_known,
            recalled=bool(shown.relevant),
        )

    def _fitted(self, request: "Request", tools: int) -> "Request":
        """The request in the window that was found, which is a guess: where it cannot fit, in the
        next larger one in which it can."""
        window = self._window
        while True:
            try:
                return fit(request, self._asked, window, tools)
            except GuestError:
                if self._refused is not None and window >= min(self._sent, self._configured):
                    raise self._refused from None
                if window >= self._configured:
                    raise
                window = min(self._configured, window * 5 // 4 + 1)

    async def on_model_request_error(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - all is in the error
        *,
        request_context: ModelRequestContext,
        error: Exception,
    ) -> ModelResponse:
        if not is_too_long(error) or request_context.attempt > _CUTS_MAX:
            raise error
        self._refused, self._window = error, min(self._window, self._sent) // 2
        raise RetryModelRequest from error

    async def after_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        *,
        request_context: ModelRequestContext,  # noqa: ARG002
        response: ModelResponse,
    ) -> ModelResponse:
        if self._refused is not None:
            self._refused = None
            self._windows.learn(self._model, 0, self._window)
            if self._notice is not None:
                await self._notice(
                    f"the window of {self._model} is smaller than context_window "
                    f"({self._configured:,}), so that older turns were left out: set it to what "
                    "the model takes"
                )
        return response


def _with_beside(beside: str, messages: Sequence[ModelMessage], asked: str) -> list[ModelMessage]:
    """The messages, with `beside` in front of the user's running message, and nothing else there
    that the runtime had put beside it."""
    placed = list(messages)
    index = _begin(messages, asked)
    running = placed[index]
    if not isinstance(running, ModelRequest):
        return placed
    *before, said = running.parts
    parts = [part for part in before if not _is_beside(part)]
    parts += [UserPromptPart(beside)] if beside else []
    placed[index] = replace(running, parts=[*parts, said])
    return placed


def _is_beside(part: ModelRequestPart) -> bool:
    return (
        isinstance(part, UserPromptPart)
        and isinstance(part.content, str)
        and part.content.startswith(FROM_THE_RUNTIME)
    )


@dataclass(frozen=True)
class Request:
    """The parts that change from one request of a turn to the next."""

    sections: Sections
    messages: list[ModelMessage]

    @property
    def size(self) -> int:
        beside = UserPromptPart(self.sections.beside)
        told = tokens_of(self.sections.instructions) + (of_part(beside) if beside.content else 0)
        return told + of_messages(self.messages)


def fit(request: Request, asked: str, window: int, tools: int) -> Request:
    """Cut `request` so that it fits into `window` with `tools` tokens of tool definitions.

    `asked` is the user's message of the running turn. Raises `GuestError` RESOURCE_EXHAUSTED if the
    parts that must not be cut are too large.
    """
    most = window - tools
    if request.size <= most:
        return request
    request = replace(request, sections=replace(request.sections, relevant=""))
    running = _begin(request.messages, asked) + 1
    request = replace(request, messages=_shortened(request, most, last=running))
    request = replace(request, messages=_without_oldest(request, asked, most))
    running = _begin(request.messages, asked) + 1
    request = replace(request, messages=_shortened(request, most, first=running))
    for section in ("summary", "working", "handoff"):
        if request.size > most:
            without: dict[str, Any] = {section: ""}
            request = replace(request, sections=replace(request.sections, **without))
    if request.size > most:
        raise _too_large(request, asked, window, tools)
    return request


def _results(messages: Sequence[ModelMessage]) -> list[ToolReturnPart[Any]]:
    parts = [part for message in messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolReturnPart)]


def _without_oldest(request: Request, asked: str, most: int) -> list[ModelMessage]:
    """The messages, without as many of the oldest turns as necessary."""
    turns = _turns(request.messages, asked)
    sizes = [of_messages(turn) for turn in turns]
    size = request.size
    first = 0
    while size > most and first < len(turns) - 1:
        size -= sizes[first]
        first += 1
    return repair_messages([message for turn in turns[first:] for message in turn])


def _turns(messages: Sequence[ModelMessage], asked: str) -> list[list[ModelMessage]]:
    """Split the messages into turns that begin with a user's message; the running one is last.

    A user's message that was never answered shares one message with the next one, and possibly with
    the tool results before it; these are separated again.
    """
    turns: list[list[ModelMessage]] = [[]]
    running = _begin(messages, asked)
    for index, message in enumerate(messages):
        if not isinstance(message, ModelRequest) or index > running:
            turns[-1].append(message)
            continue
        for parts in _from_each_prompt(message.parts):
            if isinstance(parts[0], UserPromptPart):
                turns.append([])
            turns[-1].append(replace(message, parts=parts))
    return [turn for turn in turns if turn]


def _from_each_prompt(parts: Sequence[ModelRequestPart]) -> list[list[ModelRequestPart]]:
    pieces: list[list[ModelRequestPart]] = []
    for part in parts:
        if not pieces or isinstance(part, UserPromptPart):
            pieces.append([])
        pieces[-1].append(part)
    return pieces


def _begin(messages: Sequence[ModelMessage], asked: str) -> int:
    """Where the running turn begins: the last message that ends in the user's words."""
    for index in range(len(messages) - 1, -1, -1):
        last = messages[index].parts[-1:]
        if last and isinstance(last[0], UserPromptPart) and last[0].content == asked:
            return index
    return 0


def _shortened(
    request: Request, most: int, *, first: int = 0, last: int | None = None
) -> list[ModelMessage]:
    """The messages, with tool outputs from `first` to before `last` shortened as far as
    necessary."""
    too_much = request.size - most
    messages = list(request.messages)
    for index, message in enumerate(messages[:last]):
        if index < first or too_much <= 0 or not isinstance(message, ModelRequest):
            continue
        parts: list[ModelRequestPart] = []
        for part in message.parts:
            shorter = _shorter(part, too_much) if isinstance(part, ToolReturnPart) else part
            too_much -= of_part(part) - of_part(shorter)
            parts.append(shorter)
        messages[index] = replace(message, parts=parts)
    return messages


def _shorter(part: ToolReturnPart[Any], too_much: int) -> ToolReturnPart[Any]:
    """`part` with `too_much` tokens less, but not below the useful minimum. The notes at the end,
    which tell where the result comes from, are kept."""
    text = part.model_response_str()
    body, *notes = text.split("\nNote: ")
    size = tokens_of(text) - max(0, too_much)
    whole = bytes_within(text.encode(errors="replace"), max(0, size))
    ending = _SHORTENED + _notes_within(notes, max(_NOTES_BYTES, whole // _NOTES_SHARE))
    room = max(_LEAST, size - tokens_of(ending))
    encoded = body.encode(errors="replace")
    kept = encoded[: bytes_within(encoded, room)].decode(errors="ignore") + ending
    return replace(part, content=kept) if tokens_of(kept) < tokens_of(text) else part


def _notes_within(notes: Sequence[str], most: int) -> str:
    """A result's `Note: ` lines in at most `most` bytes: as many as find room, and if not all of
    them do, long ones without their middles."""
    lines = [f"\nNote: {note}".encode(errors="replace") for note in notes]
    share = most if sum(map(len, lines)) <= most else max(_NOTE_BYTES, most // len(lines))
    half = share // 2 - 2
    kept = ""
    for line in lines:
        most -= min(len(line), share)
        if most < 0:
            break
        ends = (line,) if len(line) <= share else (line[:half], line[-half:])
        kept += "…".join(end.decode(errors="ignore") for end in ends)
    return kept


def _too_large(request: Request, asked: str, window: int, tools: int) -> GuestError:
    said, rules = tokens_of(asked), tokens_of(request.sections.text)
    rest = max(0, request.size - said - rules)
    takes = {
        "say less at once": said,
        "shorten instructions": rules,
        "switch tools off": tools,
        "ask for less in one turn": rest,
    }
    fix = max(takes, key=lambda less: takes[less])
    return GuestError(
        Code.RESOURCE_EXHAUSTED,
        f"this turn does not fit into the model's window of {window:,} tokens: by estimate the "
        f"message takes {said:,}, the rules {rules:,}, the tools {tools:,} and what this turn did "
        f"so far {rest:,}",
        resolution=f"{fix}, or raise context_window in the [agent] section of runner.toml as far "
        "as the model allows, then: runner restart",
    )

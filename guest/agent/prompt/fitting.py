"""Keeps every request of a turn within the window, by cutting in a fixed order.

First recalled memory is left out, then what stood beside earlier messages. Then tool outputs of
earlier turns are shortened, oldest first. Then the oldest turns are summarised; those that cannot
be are dropped whole. Then tool outputs of the running turn are shortened. The summary, the
scratchpad and the handoff note are cut last. The rules and the user's message are never cut.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic_ai import RetryModelRequest, RunContext
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
from pydantic_ai.usage import RunUsage
from wire.errors import Code
from wire.providers import larger_window

from guest.agent import history
from guest.agent.calls import begun
from guest.agent.models.errors import is_too_long, limits_in
from guest.agent.models.windows import Windows
from guest.agent.prompt.beside import shown_beside, with_beside, without_beside, without_deleted
from guest.agent.prompt.builder import Prepared, Sections
from guest.agent.prompt.window import of_messages, of_part, of_tools
from guest.agent.requests import RequestHooks
from guest.errors import BudgetError
from guest.memory.search.tokens import bytes_within, tokens_of

Condense = Callable[..., Awaitable[tuple[Prepared, RunUsage]]]
"""See `ContextBuilder.condensed`."""
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
    whether recalled memory is in it, and `beside` is what stood beside the user's message.
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
    beside: str = ""

    @property
    def fixed(self) -> int:
        """What the same in every request takes."""
        return self.rules + self.tools


@dataclass(repr=False, eq=False)
class FitToWindow(RequestHooks):
    """Cuts each request of one turn to the window, right before it is sent.

    Turns leave only once `condense` has summarised them: it takes what was prepared, the window,
    the tokens of rules and tools, and how many are too many.

    Where the provider says that the model's window is smaller, the request is cut to what it says,
    else by half of what can go, and tried again, a few times. `windows` learn what it took then,
    and `notice` tells it. So it does where the provider has read far less than was sent. `sent` is
    the last request.
    """

    prepared: Prepared
    asked: str
    window: int
    condense: Condense
    windows: Windows
    model: str = ""
    window_known: int = 0
    notice: Callable[[str], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self._window = self.windows.of(self.model)
        self._history: list[ModelMessage] | None = None
        self._is_told = False
        self._sent = 0
        self.sent: Sent | None = None
        self._refused: Exception | None = None

    async def prepare_model_request(
        self,
        ctx: RunContext[Any],
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        parameters = request_context.model_request_parameters
        own, parts = self.prepared.instructions, parameters.instruction_parts or []
        others = sum(tokens_of(part.content) for part in parts if part.content != own)
        tools = of_tools([*parameters.function_tools, *parameters.output_tools]) + others
        messages = repair_messages(request_context.messages)
        if self._history is not None:
            messages = [*self._history, *messages[_begin(messages, self.asked) :]]
        whole = await self._condensed(ctx, Request(self.prepared.sections, messages), tools)
        request = self._fitted(whole, tools)
        if _begin(request.messages, self.asked) < _begin(whole.messages, self.asked):
            await self._tell(
                "the oldest turns do not fit into the model's window, and are left out of this "
                "request"
            )
        self._sent = request.size + tools
        self.sent = self._parts(request, tools)
        messages = _told(request, self.asked)
        request_context.messages = without_deleted(messages, self.prepared.deleted)
        return request_context

    async def _condensed(self, ctx: RunContext[Any], request: "Request", tools: int) -> "Request":
        """The request, with its oldest turns in the summary as far as they do not fit."""
        fixed = tools + tokens_of(request.sections.rules) + tokens_of(request.sections.client)
        for _ in range(_CUTS_MAX):
            lighter = _lighter(request, self.asked, self._window - tools)
            excess = lighter.size - (self._window - tools)
            before = self.prepared
            if excess <= 0 or not before.events:
                break
            self.prepared, usage = await self.condense(
                before, self._window, fixed, excess, again=self._history is not None
            )
            ctx.usage.incr(usage)
            if len(self.prepared.events) == len(before.events):
                break
            earlier = begun(history.to_messages(self.prepared.events))
            self._history = [*earlier, *history.unanswered(earlier)]
            running = request.messages[_begin(request.messages, self.asked) :]
            sections = replace(request.sections, summary=self.prepared.sections.summary)
            request = Request(sections, [*self._history, *running])
        return request

    async def _tell(self, text: str) -> None:
        """Say something about the window, once in a turn."""
        if self.notice is not None and not self._is_told:
            self._is_told = True
            await self.notice(text)

    def _parts(self, request: "Request", tools: int) -> Sent:
        shown, begin = request.sections, _begin(request.messages, self.asked)
        return Sent(
            rules=tokens_of(shown.rules) + tokens_of(shown.client),
            tools=tools,
            memory=tokens_of(request.beside),
            history=tokens_of(shown.earlier) + of_messages(request.messages[:begin]),
            turn=of_messages(request.messages[begin:]),
            window=self._window,
            window_set=self.window,
            window_known=self.window_known,
            recalled=bool(shown.relevant),
            beside=request.beside,
        )

    def _fitted(self, request: "Request", tools: int) -> "Request":
        """The request in the window that was found, which is a guess: where it cannot fit, in the
        next larger one in which it can."""
        window = self._window
        while True:
            try:
                return fit(request, self.asked, window, tools)
            except BudgetError:
                if self._refused is not None and window >= min(self._sent, self.window):
                    raise self._refused from None
                if window >= self.window:
                    raise
                window = min(self.window, window * 5 // 4 + 1)

    async def mend(self, request: ModelRequestContext, error: Exception) -> None:
        if not is_too_long(error) or request.attempt > _CUTS_MAX:
            raise error
        window, asked = limits_in(error)
        fixed = self.sent.fixed if self.sent else 0
        fitting = max(fixed, min(self._window, self._sent) + fixed) // 2
        if window and self._refused is None and self.windows.learn(self.model, window):
            by_estimate = self.windows.of(self.model) * self._sent // max(asked, self._sent, 1)
            fitting = min(by_estimate, self._sent * 9 // 10)
        self._refused, self._window = error, fitting
        raise RetryModelRequest from error

    async def read(self, _: ModelRequestContext, response: ModelResponse) -> ModelResponse:
        read = response.usage.input_tokens
        if self._refused is not None:
            self._refused = None
            self.windows.learn(self.model, 0, self._window)
            known = self.windows.known(self.model)
            await self._tell(
                f"the window of {self.model} is "
                + (f"{known:,} tokens" if known else "smaller than was known")
                + f", less than context_window ({self.window:,}): requests are kept below it"
            )
        elif self.windows.is_cut(self.model, self._sent, read):
            await self._tell(
                f"the server of {self.model} has read only {read:,} of about {self._sent:,} "
                "tokens: it cuts the conversation without a word; " + larger_window(self.model)
            )
        return response


def _told(request: "Request", asked: str) -> list[ModelMessage]:
    """The messages of a request with what the runtime tells beside them."""
    messages = repair_messages(request.messages)
    index = _begin(messages, asked)
    running = messages[index]
    if isinstance(running, ModelRequest):
        messages[index] = with_beside(running, request.beside)
    if earlier := request.sections.earlier:
        messages.insert(0, ModelRequest(parts=[UserPromptPart(earlier)]))
    return messages


@dataclass(frozen=True)
class Request:
    """The parts that change from one request of a turn to the next."""

    sections: Sections
    messages: list[ModelMessage]

    @property
    def beside(self) -> str:
        """What stands beside the user's message: nothing twice that earlier ones show."""
        return self.sections.unless_told(shown_beside(self.messages)).beside

    @property
    def size(self) -> int:
        told = (self.sections.earlier, self.beside)
        beside = sum(of_part(UserPromptPart(text)) for text in told if text)
        return tokens_of(self.sections.instructions) + beside + of_messages(self.messages)


def fit(request: Request, asked: str, window: int, tools: int) -> Request:
    """Cut `request` so that it fits into `window` with `tools` tokens of tool definitions.

    `asked` is the user's message of the running turn. Raises `BudgetError` if the parts
    that must not be cut are too large.
    """
    most = window - tools
    if request.size <= most:
        return request
    request = _lighter(request, asked, most)
    request = replace(request, messages=_without_oldest(request, asked, most))
    running = _begin(request.messages, asked) + 1
    request = replace(request, messages=_shortened(request, most, first=running))
    for section in ("summary", "working", "handoff", "project"):
        if request.size > most:
            without: dict[str, Any] = {section: ""}
            request = replace(request, sections=replace(request.sections, **without))
    if request.size > most:
        raise _too_large(request, asked, window, tools)
    return request


def _lighter(request: Request, asked: str, most: int) -> Request:
    """The request as small as it gets with all its turns, if it is larger than `most`."""
    if request.size <= most:
        return request
    request = replace(request, sections=replace(request.sections, relevant=""))
    running = _begin(request.messages, asked) + 1
    if request.size > most:
        request = replace(request, messages=[*map(without_beside, request.messages)])
    return replace(request, messages=_shortened(request, most, last=running))


def _without_oldest(request: Request, asked: str, most: int) -> list[ModelMessage]:
    """The messages, without as many of the oldest turns as necessary, and then without what stands
    before the user's words."""
    messages, size = request.messages, request.size
    first = 0
    for index, message in enumerate(messages[: _begin(messages, asked)]):
        if size <= most and (not first or _words(message) is not None):
            break
        size -= of_messages([message])
        first = index + 1
    running, *others = messages[first:]
    if size > most and isinstance(running, ModelRequest) and _words(running) == asked:
        running = replace(running, parts=running.parts[-1:])
    return [running, *others]


def _begin(messages: Sequence[ModelMessage], asked: str) -> int:
    """Where the running turn begins: the last message that ends in the user's words."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if _words(messages[index]) == asked), 0)


def _words(message: ModelMessage) -> object:
    """The user's words, with which a message ends; None if it does not."""
    last = message.parts[-1] if message.parts else None
    return last.content if isinstance(last, UserPromptPart) else None


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
    if part.files:
        too_much -= of_part(part) - of_part(
            part := replace(part, content=f"{text}\nNote: its pictures find no room")
        )
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
    cut = (
        line if len(line) <= share else line[:half] + "…".encode() + line[-half:] for line in lines
    )
    return b"".join(cut)[:most].decode(errors="ignore")


def _too_large(request: Request, asked: str, window: int, tools: int) -> BudgetError:
    said, rules = tokens_of(asked), tokens_of(request.sections.text)
    rest = max(0, request.size - said - rules)
    takes = {
        "say less at once": said,
        "shorten instructions": rules,
        "switch tools off": tools,
        "ask for less in one turn": rest,
    }
    fix = max(takes, key=lambda less: takes[less])
    return BudgetError(
        Code.RESOURCE_EXHAUSTED,
        f"this turn does not fit into the model's window of {window:,} tokens: by estimate the "
        f"message takes {said:,}, the rules {rules:,}, the tools {tools:,} and what this turn did "
        f"so far {rest:,}",
        resolution=f"{fix}, or raise context_window in the [agent] section of runner.toml as far "
        "as the model allows, then: runner restart",
    )

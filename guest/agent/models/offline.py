"""The built-in model: it does not understand language and says so, but its tool calls are real.

It is used while no provider is configured, so that everything else can be used and tested without
one. It costs no tokens. What it knows of a conversation is a `View`: the user's command, this
turn's tool results, and the note that "that" refers to.
"""

import json
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.settings import ModelSettings

from guest.agent.receipts.second_chance import FROM_THE_RUNTIME, NOTHING_TO_ADD
from guest.agent.turn import ATTACHED, TIME
from guest.memory.search.keyword import STOP_WORDS
from guest.tools.memory.provenance import dated

NAME = "offline"


_STOP_WORDS = (STOP_WORDS | {"mine", "user", "whose"}) - {"after", "before", "no", "not"}
_TIME = re.compile(rf"{TIME}\w+, (\d{{4}}-\d\d-\d\d) ")

Hits = list[dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """One finished tool call. `data` is its JSON result, None if it has none; `notes` are the
    `Note: ` lines after that."""

    tool: str
    arguments: dict[str, Any]
    ok: bool
    text: str
    data: Any
    notes: tuple[str, ...]

    def field(self, name: str) -> str:
        """A text of the result; empty if it has none of this name."""
        value = self.data.get(name) if isinstance(self.data, dict) else None
        return value if isinstance(value, str) else ""

    def rows(self, name: str = "") -> Hits:
        """The objects of a list in the result, or of the list that it is."""
        rows = self.data.get(name) if isinstance(self.data, dict) else self.data
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


@dataclass(frozen=True)
class Focus:
    """The note that the conversation is about. `topic` is the user's name for it. `fresh` means
    that the previous turn saved, found or changed it."""

    note_id: str
    text: str
    topic: str
    fresh: bool = True


@dataclass(frozen=True)
class View:
    """One request to the built-in model. `outcomes` are those of the current turn, in order;
    `focus` is the one at its beginning; `offered` names the tools that may be called, `attached`
    describes the files that came with the command. `today` is the user's day."""

    command: str
    outcomes: tuple[Outcome, ...]
    focus: Focus | None
    offered: frozenset[str]
    attached: tuple[str, ...] = ()
    today: date | None = None


def view_of(messages: Sequence[ModelMessage], offered: Iterable[str]) -> View:
    view = View("", (), None, frozenset(offered))
    attached: tuple[str, ...] = ()
    calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if not isinstance(message, ModelRequest):
            calls.update((part.tool_call_id, part) for part in message.tool_calls)
            continue
        for part in message.parts:
            if isinstance(part, UserPromptPart) and not (
                part is not message.parts[-1] and str(part.content).startswith(FROM_THE_RUNTIME)
            ):
                text = part.content if isinstance(part.content, str) else ""
                if time := _TIME.match(text):
                    view = replace(view, today=date.fromisoformat(time[1]))
                    continue
                if text.startswith(ATTACHED):
                    attached = tuple(line.removeprefix("- ") for line in text.splitlines()[1:])
                    continue
                view = replace(view, command=text.strip(), outcomes=(), focus=_refocus(view))
                view, attached = replace(view, attached=attached), ()
            elif isinstance(part, ToolReturnPart):
                outcome = _outcome(part, calls.get(part.tool_call_id))
                view = replace(view, outcomes=(*view.outcomes, outcome))
    return view


def content_words(text: str) -> frozenset[str]:
    """The words of `text` that carry meaning, in lower case and without the endings of plurals
    and genitives."""
    words = re.findall(r"[^\W_]+(?:'\w+)?", text.casefold())
    return frozenset(_singular(word) for word in words if word not in _STOP_WORDS)


def _singular(word: str) -> str:
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    return re.sub(r"(?<=..)'?s$", "", word)


def found_and_related(hits: Hits, topic: str) -> tuple[Hits, Hits]:
    """Split search results into those about `topic` and merely related ones.

    If some results have every word of the topic, only those are about it; else those that have one;
    else, where a word has another form in them, all found by keyword. A result found by meaning
    alone, or by the words of notes beside it, is only related.
    """
    by_keyword = [hit for hit in hits if _has_a_word(hit)]
    wanted = content_words(topic)
    sharing = [hit for hit in by_keyword if wanted & content_words(str(hit.get("text", "")))]
    known = surely_about(hits, topic) or sharing or by_keyword
    return known, [hit for hit in hits if hit not in known]


def surely_about(hits: Hits, topic: str) -> Hits:
    """The results with every word of `topic`: certain enough to change or delete them."""
    wanted = content_words(topic)
    return [
        hit
        for hit in hits
        if wanted and _has_a_word(hit) and wanted <= content_words(str(hit.get("text", "")))
    ]


def _has_a_word(hit: dict[str, Any]) -> bool:
    return hit.get("matched_by") in ("keyword", "both")


def subject_of(text: str) -> str:
    """What a note is about: the words before its first "is", "are", "was", "=" or ":"."""
    match = re.match(r"\s*(\S.{0,78}?)\s*(?:\s(?:is|are|was|were)\s|[=:])", text, re.IGNORECASE)
    return match[1] if match else ""


def _outcome(part: ToolReturnPart, call: ToolCallPart | None) -> Outcome:
    text = part.content if isinstance(part.content, str) else part.model_response_str()
    data, rest = None, ""
    if part.outcome == "success":
        try:
            data, end = json.JSONDecoder().raw_decode(text)
            rest = text[end:]
        except ValueError:
            data = None
    return Outcome(
        tool=part.tool_name,
        arguments=call.args_as_dict() if call else {},
        ok=part.outcome == "success",
        text=text,
        data=data,
        notes=tuple(
            line.partition(", if these are not enough: cursor")[0]  # which is for a model
            for line in rest.splitlines()
            if line.startswith("Note: ") and "pictures that follow" not in line
        ),
    )


def _refocus(view: View) -> Focus | None:
    """The note that "that" refers to after the turn in `view`."""
    focus = replace(view.focus, fresh=False) if view.focus else None
    for outcome in view.outcomes:
        if outcome.ok:
            focus = _followed(outcome, focus)
    return focus


def _followed(outcome: Outcome, focus: Focus | None) -> Focus | None:
    """The note that the conversation is about after a call."""
    given = outcome.arguments
    if outcome.tool in ("memory_save", "memory_update") and (note_id := outcome.field("note_id")):
        text = str(given.get("content", ""))
        known = focus.topic if focus and focus.note_id == note_id else ""
        return Focus(note_id, text, known or subject_of(text))
    if outcome.tool == "memory_search":
        topic = str(given.get("query", ""))
        found = surely_about(outcome.rows(), topic)
        return Focus(*_named(found[0]), topic) if len(found) == 1 else None
    is_gone = outcome.tool == "memory_delete" and focus and focus.note_id == given.get("note_id")
    return None if is_gone else focus


def _named(hit: dict[str, Any]) -> tuple[str, str]:
    return str(hit.get("note_id", "")), str(hit.get("text", ""))


class OfflineModel(Model[None]):
    """Answers a handful of plain commands."""

    def __init__(self, *, no_shell_reason: str = "") -> None:
        super().__init__()
        self._no_shell_reason = no_shell_reason

    @property
    def model_name(self) -> str:
        return NAME

    system = model_name

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,  # noqa: ARG002 - nothing to set
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self._answer(messages, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,  # noqa: ARG002
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,  # noqa: ARG002
    ) -> AsyncGenerator[StreamedResponse]:
        yield CompletedStreamedResponse(
            self._answer(messages, model_request_parameters),
            model_request_parameters=model_request_parameters,
            replay_events=True,
        )

    def _answer(
        self, messages: list[ModelMessage], parameters: ModelRequestParameters
    ) -> ModelResponse:
        view = view_of(messages, (tool.name for tool in parameters.function_tools))
        if view.command.startswith(FROM_THE_RUNTIME):
            taken: Step = TextPart(NOTHING_TO_ADD)  # it has done what it understands
        else:
            taken = step(view, self._no_shell_reason)
        if isinstance(taken, TextPart) and view.attached:
            named = "\n".join(f"You attached {each}." for each in view.attached)
            taken = TextPart(f"{named}\nSay read PATH for the text of one.\n{taken.content}")
        return ModelResponse(parts=[taken], model_name=NAME, provider_name=NAME)


Step = TextPart | ToolCallPart
"""An answer, which ends the turn, or a call, with whose result the handler is asked again."""

Handle = Callable[[View, re.Match[str]], Step | None]
"""Takes the next step of a command; None if it is not one after all."""


def call_once(
    view: View, failed: str, tell: Callable[[Outcome], str], tool: str, **arguments: Any
) -> Step:
    """Call `tool` once in this turn; then answer what `tell` makes of its outcome, or that the
    call has `failed` if `tell` makes nothing of it."""
    for outcome in reversed(view.outcomes):
        if outcome.tool == tool:
            told = outcome.ok and tell(outcome)
            return answer(told, outcome) if told else failure(failed, outcome)
    return ToolCallPart(tool, arguments)


def failure(what: str, outcome: Outcome) -> TextPart:
    """Say that `what` did not happen, and quote the tool."""
    return TextPart(f"{what}: {outcome.text}")


def answer(text: str, outcome: Outcome) -> TextPart:
    """Say `text`, followed by the tool's notes on its result."""
    return TextPart("\n".join((text, *outcome.notes)))


_SHOWN_CHARS = 1200
_RELATED_MAX = 3
_NOTHING_TO_CORRECT = (
    "I do not know which note you mean. Ask what I know about it first, or say: "
    "update NOTE-ID: the new text"
)
_POLITE = re.compile(
    r"(?:no\s+)?(?:thanks?|thank\s+you|never\s*mind|problem|worries)\b.*", re.I | re.S
)


def remember(view: View, match: re.Match[str]) -> Step:
    text = dated(match["text"], view.today)

    def tell(outcome: Outcome) -> str:
        message, note_id = outcome.field("message"), outcome.field("note_id")
        if not note_id or not message.startswith("Stored"):
            return note_id and message
        lines = [f"Saved: {_shown(text)} [id: {note_id}]{message.partition(']')[2]}"]
        if similar := outcome.rows("similar"):
            lines += ["Similar notes:", *map(_line, similar)]
        return "\n".join(lines)

    return call_once(view, "I could not save that", tell, "memory_save", content=text)


def recall(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic, "I could not search the notes")
    if not isinstance(outcome, Outcome):
        return outcome
    found, related = found_and_related(outcome.rows(), topic)
    about = _mirrored(topic)
    said, title = [], "These notes may be related:"
    if found:
        said, title = (
            [f"This is what I know about {about}:", *map(_line, found)],
            "Possibly related:",
        )
    elif content_words(topic) or not related:
        said = [f"I know nothing about {about}{' in these words' * bool(related)}."]
        title = "Possibly related, found by meaning only:"
    if related:
        said += [title, *map(_line, related[:_RELATED_MAX])]
    return answer("\n".join(said), outcome)


def correct(view: View, match: re.Match[str]) -> Step:
    if view.focus is None:
        return TextPart(_NOTHING_TO_CORRECT)
    return _change(view, view.focus, match["text"] or match["text2"])


def contradict(view: View, match: re.Match[str]) -> Step | None:
    """Correct the note of the previous turn after "no, …"; nothing if that "no" is courtesy."""
    if view.focus is None or not view.focus.fresh or _POLITE.fullmatch(match["text"]):
        return None
    return _change(view, view.focus, match["text"])


def forget_that(view: View, _: re.Match[str]) -> Step:
    if view.focus is None:
        return TextPart("I do not know which note you mean. Say: forget NOTE-ID, or forget TOPIC")
    return _delete(view, view.focus.note_id, view.focus.text)


def forget_topic(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    failed = "I deleted nothing, because I could not search the notes"
    outcome = _search(view, topic, failed)
    if not isinstance(outcome, Outcome):
        return outcome
    hits = outcome.rows()
    matching = surely_about(hits, topic)
    named_so = [hit for hit in matching if _is_about(hit, topic)]
    clear = named_so if len(named_so) == 1 else matching
    if len(clear) == 1:
        return _delete(view, *_named(clear[0]))
    candidates = clear or hits
    if not candidates:
        return answer(f"I know nothing about {_mirrored(topic)}; I deleted nothing.", outcome)
    lines = "\n".join(map(_line, candidates))
    why = "Several notes match" if clear else "No note matches for certain"
    return answer(f"{why}; I deleted nothing. Say forget NOTE-ID for one of:\n{lines}", outcome)


def _change(view: View, focus: Focus, text: str) -> Step:
    return _write(view, focus.note_id, _keeping_subject(text, focus.topic))


def _write(view: View, note_id: str, text: str) -> Step:
    text = dated(text, view.today)

    def tell(outcome: Outcome) -> str:
        changed = outcome.field("note_id")
        return f"Updated: {_shown(text)} [id: {changed}]" if changed else ""

    arguments = {"note_id": note_id, "content": text}
    return call_once(view, "I changed nothing", tell, "memory_update", **arguments)


def _delete(view: View, note_id: str, text: str) -> Step:
    what = f"Deleted: {_shown(text)} [id: {note_id}]" if text else f"Deleted [id: {note_id}]"
    return call_once(view, "I deleted nothing", lambda _: what, "memory_delete", note_id=note_id)


def _search(view: View, topic: str, failed: str) -> Step | Outcome:
    """Search; once more for the best note only, if the results were too long for an answer. Where
    that gives nothing, say that it has `failed`."""
    searches = [outcome for outcome in view.outcomes if outcome.tool == "memory_search"]
    if not searches:
        return ToolCallPart("memory_search", {"query": topic})
    last = searches[-1]
    if len(searches) == 1 and last.ok and last.data is None:
        return ToolCallPart("memory_search", {"query": topic, "top_k": 1})
    return last if last.ok and last.data is not None else failure(failed, last)


def _keeping_subject(text: str, topic: str) -> str:
    """`text`, with `topic` before it unless it names its subject itself."""
    wanted = content_words(topic)
    if not wanted or wanted & content_words(text):
        return text
    return f"{topic}: {text}"


def _is_about(hit: dict[str, Any], topic: str) -> bool:
    head = re.split(r"\s(?:is|are|was|were)\s|[=:]", str(hit.get("text", "")), maxsplit=1)[0]
    return content_words(head) == content_words(topic)


def _topic(text: str) -> str:
    return text.strip().rstrip("?.! ").strip() or text.strip()


def _mirrored(topic: str) -> str:
    """`topic` as the answer says it: "my …" becomes "your …"."""
    mirrored = re.sub(r"\bmy\b", "your", topic, flags=re.IGNORECASE)
    return "you" if mirrored.casefold() in ("me", "myself") else mirrored


def _line(hit: dict[str, Any]) -> str:
    note_id = hit.get("note_id") or hit.get("id") or "none"
    return f"- {_shown(str(hit.get('text', '')))} [id: {note_id}]"


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}… ({len(text)} characters)"


_INTRODUCTION = (
    "I am the built-in offline model: I have no understanding of language, only a few commands "
    "with real tools behind them."
)
_HELP = """Commands:
  remember that TEXT            keep a note
  what do you know about TOPIC  search the notes
  correct that: TEXT            change the note we just spoke of
  update NOTE-ID: TEXT          change a certain note
  forget TOPIC | NOTE-ID        delete a note
  read PATH | list PATH         look at files: /shared, /tmp, /vault; /skills, /projects if any
  write PATH: TEXT              write a file under /shared or /tmp
  find TEXT in PATH             search files
  run COMMAND                   run a shell command, where there is a shell"""
_NOT_UNDERSTOOD = f"{_INTRODUCTION} I did not understand that.\n{_HELP}"


def step(view: View, no_shell_reason: str) -> Step:
    """The next step for `view`. There is one for every text."""
    for pattern, handle in COMMANDS:
        match = pattern.fullmatch(view.command)
        taken = handle(view, match) if match else None
        if taken is not None:
            return _checked(taken, view, no_shell_reason)
    return TextPart(_NOT_UNDERSTOOD)


def _checked(taken: Step, view: View, no_shell_reason: str) -> Step:
    if isinstance(taken, TextPart) or taken.tool_name in view.offered:
        return taken
    if taken.tool_name == "shell_exec":
        return TextPart(
            f"There is no shell here: {no_shell_reason or 'shell_exec is not offered'}."
        )
    return TextPart(f"I cannot do that: the tool {taken.tool_name} is switched off here.")


def _content(outcome: Outcome) -> str:
    if outcome.data is None:
        return outcome.text
    kind = outcome.field("kind") or "it is empty"
    return outcome.field("content") or f"{outcome.arguments['path']}: {kind}"


def _entries(outcome: Outcome) -> str:
    lines = [f"{each.get('path')}  ({each.get('type')})" for each in outcome.rows("entries")]
    return "\n".join(lines) or f"{outcome.arguments['path']} is empty."


def _matches(outcome: Outcome) -> str:
    found = outcome.rows("matches")
    lines = [f"{each.get('path')}:{each.get('line')}: {each.get('text')}" for each in found]
    return "\n".join(lines) or f"Nothing in {outcome.arguments['path']} has that text."


def _output(outcome: Outcome) -> str:
    fields = outcome.data if isinstance(outcome.data, dict) else {}
    parts = [str(fields["stdout"]).rstrip("\n")] if fields.get("stdout") else []
    if fields.get("stderr"):
        parts.append(f"(on standard error)\n{str(fields['stderr']).rstrip()}")
    if fields.get("exit_code"):
        parts = [*(parts or ["(no output)"]), f"(exit code {fields['exit_code']})"]
    return "\n".join(parts or ["(no output)"])


def _command(pattern: str, handle: Handle) -> tuple[re.Pattern[str], Handle]:
    """A pattern over the whole text, and its handler."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), handle


def _tool(
    pattern: str, tool: str, what: str, tell: Callable[[Outcome], str]
) -> tuple[re.Pattern[str], Handle]:
    """Calls `tool` with what a command names, to do `what`."""

    def handle(view: View, match: re.Match[str]) -> Step:
        given = match.groupdict()
        return call_once(view, f"I could not {what}".format(**given), tell, tool, **given)

    return _command(pattern, handle)


_PLEASE = r"(?:please[ ,]+)?"
_NOTE_ID = r"(?P<note_id>note-[\w-]+)"
_PATH = r"(?P<path>/[^\n]*|[^\s:]+)"
_WRITE = r"write (?P<path>/[^:\n]*|[^\s:]+)\s*:\s?(?P<content>.*)"

COMMANDS = (
    _command(
        r"\?|/?help\b.*|(?:list )?commands[.!?]*|what can (?:you|i) (?:do|say).*",
        lambda *_: TextPart(f"{_INTRODUCTION}\n{_HELP}"),
    ),
    _command(
        r"(?:hi|hello|hey|good (?:morning|afternoon|evening))(?: there)?[\s.,!]*"
        r"|(?:who|what) are you\b.*",
        lambda *_: TextPart(f"Hello. {_INTRODUCTION} Say help to see them."),
    ),
    _command(
        r"(?:what do you (?:know|remember) (?:about|of)|do you (?:remember|know)(?: about)?"
        r"|recall|search(?: for)?) (?P<topic>.+)",
        recall,
    ),
    _command(r"(?:what|who)(?:'s|’s| is| are| was| were) (?P<topic>my .+)", recall),
    _command(rf"{_PLEASE}remember(?:\s+that\b|\s*:)?\s+(?P<text>\S.*)", remember),
    _command(
        rf"{_PLEASE}update {_NOTE_ID}\s*:\s*(?P<text>\S.*)",
        lambda view, match: _write(view, match["note_id"], match["text"]),
    ),
    _command(
        rf"{_PLEASE}(?:correct|update|change) (?:that|it|this)(?: to)?\s*[:,]?\s+(?P<text>\S.*)"
        r"|correction\s*:\s*(?P<text2>\S.*)",
        correct,
    ),
    _command(r"no\s*[,:]\s*(?P<text>\S+\s+\S.*)", contradict),
    _command(
        rf"{_PLEASE}(?:forget|delete)(?: note)? {_NOTE_ID}[\s.!]*",
        lambda view, match: _delete(view, match["note_id"], ""),
    ),
    _command(rf"{_PLEASE}forget (?:that|it|this)[\s.!]*", forget_that),
    _command(rf"{_PLEASE}forget(?: about| that)? (?P<topic>\S.*)", forget_topic),
    _tool(rf"{_PLEASE}(?:read|show|cat) {_PATH}", "file_read", "read {path}", _content),
    _tool(rf"{_PLEASE}(?:list|ls) {_PATH}", "file_list", "list {path}", _entries),
    _tool(_WRITE, "file_write", "write {path}", lambda done: f"Wrote {done.arguments['path']}."),
    _tool(rf"find (?P<query>\S.*?) in {_PATH}", "file_search", "search {path}", _matches),
    _tool(r"run (?P<command>\S.*)", "shell_exec", "run that", _output),
)

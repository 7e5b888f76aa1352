"""The built-in model: it does not understand language and says so, but its tool calls are real.

It is used while no provider is configured, so that everything else can be used and tested without
one. It costs no tokens.
"""

import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestParameters,
    StreamedResponse,
)
from pydantic_ai.settings import ModelSettings

from guest.agent.models import offline_view
from guest.agent.models.offline_view import (
    Focus,
    Outcome,
    View,
    content_words,
    found_and_related,
    hits_of,
    surely_about,
)
from guest.agent.receipts.second_chance import FROM_THE_RUNTIME, NOTHING_TO_ADD
from guest.tools.memory.provenance import dated

NAME = "offline"


class OfflineModel(Model[None]):
    """Answers a handful of plain commands."""

    def __init__(self, *, no_shell_reason: str = "") -> None:
        super().__init__()
        self._no_shell_reason = no_shell_reason

    @property
    def model_name(self) -> str:
        return NAME

    @property
    def system(self) -> str:
        return NAME

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
        view = offline_view.read(messages, (tool.name for tool in parameters.function_tools))
        if view.command.startswith(FROM_THE_RUNTIME):
            taken: Step = TextPart(NOTHING_TO_ADD)  # it has done what it understands
        else:
            taken = step(view, self._no_shell_reason)
        if isinstance(taken, TextPart) and view.attached:
            named = "\n".join(f"You attached {each}." for each in view.attached)
            taken = TextPart(f"{named} I cannot look at files.\n{taken.content}")
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
        message, note_id = _field(outcome, "message"), _field(outcome, "note_id")
        if not note_id or not message.startswith("Stored"):
            return note_id and message
        lines = [f"Saved: {_shown(text)} [id: {note_id}]{message.partition(']')[2]}"]
        if similar := _rows(outcome, "similar"):
            lines += ["Similar notes:", *map(_line, similar)]
        return "\n".join(lines)

    return call_once(view, "I could not save that", tell, "memory_save", content=text)


def recall(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic)
    if isinstance(outcome, ToolCallPart):
        return outcome
    if not outcome.ok or outcome.data is None:
        return failure("I could not search the notes", outcome)
    found, related = found_and_related(hits_of(outcome), topic)
    related = related[:_RELATED_MAX]
    about = _mirrored(topic)
    if found:
        said = f"This is what I know about {about}:\n" + "\n".join(map(_line, found))
        if related:
            said += "\nPossibly related:\n" + "\n".join(map(_line, related))
    elif related and content_words(topic):
        said = (
            f"I know nothing about {about} in these words. Possibly related, found by meaning "
            "only:\n" + "\n".join(map(_line, related))
        )
    elif related:
        said = "These notes may be related:\n" + "\n".join(map(_line, related))
    else:
        said = f"I know nothing about {about}."
    return answer(said, outcome)


def correct(view: View, match: re.Match[str]) -> Step:
    if view.focus is None:
        return TextPart(_NOTHING_TO_CORRECT)
    return _change(view, view.focus, match["text"] or match["text2"])


def contradict(view: View, match: re.Match[str]) -> Step | None:
    """Correct the note of the previous turn after "no, …"; nothing if that "no" is courtesy."""
    if view.focus is None or not view.focus.fresh or _POLITE.fullmatch(match["text"]):
        return None
    return _change(view, view.focus, match["text"])


def update(view: View, match: re.Match[str]) -> Step:
    return _write(view, match["note_id"], match["text"])


def forget_note(view: View, match: re.Match[str]) -> Step:
    return _delete(view, match["note_id"], "")


def forget_that(view: View, _: re.Match[str]) -> Step:
    if view.focus is None:
        return TextPart("I do not know which note you mean. Say: forget NOTE-ID, or forget TOPIC")
    return _delete(view, view.focus.note_id, view.focus.text)


def forget_topic(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic)
    if isinstance(outcome, ToolCallPart):
        return outcome
    if not outcome.ok or outcome.data is None:
        return failure("I deleted nothing, because I could not search the notes", outcome)
    hits = hits_of(outcome)
    matching = surely_about(hits, topic)
    named_so = [hit for hit in matching if _is_about(hit, topic)]
    clear = named_so if len(named_so) == 1 else matching
    if len(clear) == 1:
        return _delete(view, str(clear[0].get("note_id", "")), str(clear[0].get("text", "")))
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
        changed = _field(outcome, "note_id")
        return f"Updated: {_shown(text)} [id: {changed}]" if changed else ""

    arguments = {"note_id": note_id, "content": text}
    return call_once(view, "I changed nothing", tell, "memory_update", **arguments)


def _delete(view: View, note_id: str, text: str) -> Step:
    what = f"Deleted: {_shown(text)} [id: {note_id}]" if text else f"Deleted [id: {note_id}]"
    return call_once(view, "I deleted nothing", lambda _: what, "memory_delete", note_id=note_id)


def _search(view: View, topic: str) -> ToolCallPart | Outcome:
    """Search; once more for the best note only, if the results were too long for an answer."""
    searches = [outcome for outcome in view.outcomes if outcome.tool == "memory_search"]
    if not searches:
        return ToolCallPart("memory_search", {"query": topic})
    if len(searches) == 1 and searches[0].ok and searches[0].data is None:
        return ToolCallPart("memory_search", {"query": topic, "top_k": 1})
    return searches[-1]


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


def _field(outcome: Outcome, name: str) -> str:
    value = outcome.data.get(name) if isinstance(outcome.data, dict) else None
    return value if isinstance(value, str) else ""


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
  read PATH | list PATH         look at files under /shared, /tmp and /vault
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


def _help(_: View, __: re.Match[str]) -> Step:
    return TextPart(f"{_INTRODUCTION}\n{_HELP}")


def _greet(_: View, __: re.Match[str]) -> Step:
    return TextPart(f"Hello. {_INTRODUCTION} Say help to see them.")


def _read(view: View, match: re.Match[str]) -> Step:
    path = match["path"]

    def tell(outcome: Outcome) -> str:
        return _field(outcome, "content") or outcome.text

    return call_once(view, f"I could not read {path}", tell, "file_read", path=path)


def _list(view: View, match: re.Match[str]) -> Step:
    path = match["path"]

    def tell(outcome: Outcome) -> str:
        entries = _rows(outcome, "entries")
        lines = [f"{entry.get('path')}  ({entry.get('type')})" for entry in entries]
        return "\n".join(lines) or f"{path} is empty."

    return call_once(view, f"I could not list {path}", tell, "file_list", path=path)


def _write_file(view: View, match: re.Match[str]) -> Step:
    path, done = match["path"], f"Wrote {match['path']}."
    arguments = {"path": path, "content": match["text"]}
    return call_once(view, f"I could not write {path}", lambda _: done, "file_write", **arguments)


def _find(view: View, match: re.Match[str]) -> Step:
    path = match["path"]

    def tell(outcome: Outcome) -> str:
        lines = [
            f"{found.get('path')}:{found.get('line')}: {found.get('text')}"
            for found in _rows(outcome, "matches")
        ]
        return "\n".join(lines) or f"Nothing in {path} has that text."

    arguments = {"query": match["text"], "path": path}
    return call_once(view, f"I could not search {path}", tell, "file_search", **arguments)


def _run(view: View, match: re.Match[str]) -> Step:
    def tell(outcome: Outcome) -> str:
        fields = _fields(outcome)
        parts = [str(fields["stdout"]).rstrip("\n")] if fields.get("stdout") else []
        if fields.get("stderr"):
            parts.append(f"(on standard error)\n{str(fields['stderr']).rstrip()}")
        if not parts:
            parts.append("(no output)")
        if fields.get("exit_code"):
            parts.append(f"(exit code {fields['exit_code']})")
        return "\n".join(parts)

    command = match["command"]
    return call_once(view, "I could not run that", tell, "shell_exec", command=command)


def _fields(outcome: Outcome) -> dict[str, Any]:
    return outcome.data if isinstance(outcome.data, dict) else {}


def _rows(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    rows = _fields(outcome).get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _command(pattern: str, handle: Handle) -> tuple[re.Pattern[str], Handle]:
    """A pattern over the whole text, and its handler."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL), handle


_PLEASE = r"(?:please[ ,]+)?"
_NOTE_ID = r"(?P<note_id>note-[\w-]+)"
_PATH = r"(?P<path>/[^\n]*|[^\s:]+)"

COMMANDS = (
    _command(r"\?|/?help\b.*|(?:list )?commands[.!?]*|what can (?:you|i) (?:do|say).*", _help),
    _command(
        r"(?:hi|hello|hey|good (?:morning|afternoon|evening))(?: there)?[\s.,!]*"
        r"|(?:who|what) are you\b.*",
        _greet,
    ),
    _command(
        r"(?:what do you (?:know|remember) (?:about|of)|do you (?:remember|know)(?: about)?"
        r"|recall|search(?: for)?) (?P<topic>.+)",
        recall,
    ),
    _command(r"(?:what|who)(?:'s|’s| is| are| was| were) (?P<topic>my .+)", recall),
    _command(rf"{_PLEASE}remember(?:\s+that\b|\s*:)?\s+(?P<text>\S.*)", remember),
    _command(rf"{_PLEASE}update {_NOTE_ID}\s*:\s*(?P<text>\S.*)", update),
    _command(
        rf"{_PLEASE}(?:correct|update|change) (?:that|it|this)(?: to)?\s*[:,]?\s+(?P<text>\S.*)"
        r"|correction\s*:\s*(?P<text2>\S.*)",
        correct,
    ),
    _command(r"no\s*[,:]\s*(?P<text>\S+\s+\S.*)", contradict),
    _command(rf"{_PLEASE}(?:forget|delete)(?: note)? {_NOTE_ID}[\s.!]*", forget_note),
    _command(rf"{_PLEASE}forget (?:that|it|this)[\s.!]*", forget_that),
    _command(rf"{_PLEASE}forget(?: about| that)? (?P<topic>\S.*)", forget_topic),
    _command(rf"{_PLEASE}(?:read|show|cat) {_PATH}", _read),
    _command(rf"{_PLEASE}(?:list|ls) {_PATH}", _list),
    _command(r"write (?P<path>/[^:\n]*|[^\s:]+)\s*:\s?(?P<text>.*)", _write_file),
    _command(rf"find (?P<text>\S.*?) in {_PATH}", _find),
    _command(r"run (?P<command>\S.*)", _run),
)

"""The built-in model's few commands: a table of patterns and what each does."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from guest.agent.models.offline_view import (
    Focus,
    Outcome,
    View,
    content_words,
    found_and_related,
    hits_of,
    surely_about,
)


@dataclass(frozen=True)
class Call:
    """Call a tool; the handler is asked again with the result."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Say:
    """Answer the user, which ends the turn."""

    text: str


Step = Call | Say


def call_once(view: View, tool: str, **arguments: Any) -> Call | Outcome:
    """The outcome of `tool` in this turn, or the call that gets it."""
    for outcome in reversed(view.outcomes):
        if outcome.tool == tool:
            return outcome
    return Call(tool, arguments)


def failure(what: str, outcome: Outcome) -> Say:
    """Say that `what` did not happen, in the tool's own words."""
    return Say(f"{what}: {outcome.text}")


def answer(text: str, outcome: Outcome) -> Say:
    """Say `text`, and with it what the tool noted about its result."""
    return Say("\n".join((text, *outcome.notes)))


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
    text = match["text"]
    outcome = call_once(view, "memory_save", content=text)
    if isinstance(outcome, Call):
        return outcome
    note_id = _field(outcome, "note_id")
    if not outcome.ok or not note_id:
        return failure("I could not save that", outcome)
    message = _field(outcome, "message")
    if not message.startswith("Stored"):
        return answer(message, outcome)
    similar = outcome.data.get("similar") or []
    known = message.partition("]")[2]
    lines = [f"Saved: {_shown(text)} [id: {note_id}]{known}"]
    if similar:
        lines += ["Similar notes:", *(_line(hit) for hit in similar if isinstance(hit, dict))]
    return answer("\n".join(lines), outcome)


def recall(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic)
    if isinstance(outcome, Call):
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
        return Say(_NOTHING_TO_CORRECT)
    return _change(view, view.focus, match["text"] or match["text2"])


def contradict(view: View, match: re.Match[str]) -> Step | None:
    """ "no, …" corrects only what the turn before was about, and never a polite no."""
    if view.focus is None or not view.focus.fresh or _POLITE.fullmatch(match["text"]):
        return None
    return _change(view, view.focus, match["text"])


def update(view: View, match: re.Match[str]) -> Step:
    return _write(view, match["note_id"], match["text"])


def forget_note(view: View, match: re.Match[str]) -> Step:
    return _delete(view, match["note_id"], "")


def forget_that(view: View, _: re.Match[str]) -> Step:
    if view.focus is None:
        return Say("I do not know which note you mean. Say: forget NOTE-ID, or forget TOPIC")
    return _delete(view, view.focus.note_id, view.focus.text)


def forget_topic(view: View, match: re.Match[str]) -> Step:
    topic = _topic(match["topic"])
    outcome = _search(view, topic)
    if isinstance(outcome, Call):
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
    outcome = call_once(view, "memory_update", note_id=note_id, content=text)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok or not _field(outcome, "note_id"):
        return failure("I changed nothing", outcome)
    return answer(f"Updated: {_shown(text)} [id: {_field(outcome, 'note_id')}]", outcome)


def _delete(view: View, note_id: str, text: str) -> Step:
    outcome = call_once(view, "memory_delete", note_id=note_id)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure("I deleted nothing", outcome)
    what = f"Deleted: {_shown(text)} [id: {note_id}]" if text else f"Deleted [id: {note_id}]"
    return answer(what, outcome)


def _search(view: View, topic: str) -> Call | Outcome:
    """Search, and once more for the best note alone where the results were cut short."""
    searches = [outcome for outcome in view.outcomes if outcome.tool == "memory_search"]
    if not searches:
        return Call("memory_search", {"query": topic})
    if len(searches) == 1 and searches[0].ok and searches[0].data is None:
        return Call("memory_search", {"query": topic, "top_k": 1})
    return searches[-1]


def _keeping_subject(text: str, topic: str) -> str:
    """`text` as the user said it, led by `topic` where it would otherwise lose its subject."""
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
    """The user's "my …" as the answer says it."""
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
  run COMMAND                   run a shell command, where there is a shell
To talk freely, configure a provider: [agent] provider, model and api_key_env in runner.toml."""
_NOT_UNDERSTOOD = f"{_INTRODUCTION} I did not understand that.\n{_HELP}"


@dataclass(frozen=True)
class Command:
    """A pattern over the whole text, case-insensitive, and its handler."""

    pattern: re.Pattern[str]
    handle: Callable[[View, re.Match[str]], Step | None]


def step(view: View, no_shell_reason: str) -> Step:
    """The next step for `view`; every text has one."""
    for command in COMMANDS:
        match = command.pattern.fullmatch(view.command)
        taken = command.handle(view, match) if match else None
        if taken is not None:
            return _checked(taken, view, no_shell_reason)
    return Say(_NOT_UNDERSTOOD)


def _checked(taken: Step, view: View, no_shell_reason: str) -> Step:
    if isinstance(taken, Say) or taken.tool in view.offered:
        return taken
    if taken.tool == "shell_exec":
        return Say(f"There is no shell here: {no_shell_reason or 'shell_exec is not offered'}.")
    return Say(f"I cannot do that: the tool {taken.tool} is switched off here.")


def _help(_: View, __: re.Match[str]) -> Step:
    return Say(f"{_INTRODUCTION}\n{_HELP}")


def _greet(_: View, __: re.Match[str]) -> Step:
    return Say(f"Hello. {_INTRODUCTION} Say help to see them.")


def _read(view: View, match: re.Match[str]) -> Step:
    path = match["path"]
    outcome = call_once(view, "file_read", path=path)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure(f"I could not read {path}", outcome)
    content = _fields(outcome).get("content")
    return answer(content if isinstance(content, str) and content else outcome.text, outcome)


def _list(view: View, match: re.Match[str]) -> Step:
    path = match["path"]
    outcome = call_once(view, "file_list", path=path)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure(f"I could not list {path}", outcome)
    entries = _rows(outcome, "entries")
    lines = [f"{entry.get('path')}  ({entry.get('type')})" for entry in entries]
    return answer("\n".join(lines) or f"{path} is empty.", outcome)


def _write_file(view: View, match: re.Match[str]) -> Step:
    path = match["path"]
    outcome = call_once(view, "file_write", path=path, content=match["text"])
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure(f"I could not write {path}", outcome)
    return answer(f"Wrote {path}.", outcome)


def _find(view: View, match: re.Match[str]) -> Step:
    path = match["path"]
    outcome = call_once(view, "file_search", query=match["text"], path=path)
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure(f"I could not search {path}", outcome)
    lines = [
        f"{found.get('path')}:{found.get('line')}: {found.get('text')}"
        for found in _rows(outcome, "matches")
    ]
    return answer("\n".join(lines) or f"Nothing in {path} has that text.", outcome)


def _run(view: View, match: re.Match[str]) -> Step:
    outcome = call_once(view, "shell_exec", command=match["command"])
    if isinstance(outcome, Call):
        return outcome
    if not outcome.ok:
        return failure("I could not run that", outcome)
    fields = _fields(outcome)
    parts = [str(fields["stdout"]).rstrip("\n")] if fields.get("stdout") else []
    if fields.get("stderr"):
        parts.append(f"(on standard error)\n{str(fields['stderr']).rstrip()}")
    if not parts:
        parts.append("(no output)")
    if fields.get("exit_code"):
        parts.append(f"(exit code {fields['exit_code']})")
    return answer("\n".join(parts), outcome)


def _fields(outcome: Outcome) -> dict[str, Any]:
    return outcome.data if isinstance(outcome.data, dict) else {}


def _rows(outcome: Outcome, name: str) -> list[dict[str, Any]]:
    rows = _fields(outcome).get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _command(pattern: str, handle: Callable[[View, re.Match[str]], Step | None]) -> Command:
    return Command(re.compile(pattern, re.IGNORECASE | re.DOTALL), handle)


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

"""The built-in model's few commands: a table of patterns and what each does.

A handler looks at the view and takes the next step: call a tool or say
something. It is asked again with the result, so what it claims follows only
from tool results of this turn.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from guest.agent import offline_memory as memory
from guest.agent.offline_steps import Call, Say, Step, answer, call_once, failure
from guest.agent.offline_view import Outcome, View

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


def _write(view: View, match: re.Match[str]) -> Step:
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
        memory.recall,
    ),
    _command(r"(?:what|who)(?:'s|’s| is| are| was| were) (?P<topic>my .+)", memory.recall),
    _command(rf"{_PLEASE}remember(?:\s+that\b|\s*:)?\s+(?P<text>\S.*)", memory.remember),
    _command(rf"{_PLEASE}update {_NOTE_ID}\s*:\s*(?P<text>\S.*)", memory.update),
    _command(
        rf"{_PLEASE}(?:correct|update|change) (?:that|it|this)(?: to)?\s*[:,]?\s+(?P<text>\S.*)"
        r"|correction\s*:\s*(?P<text2>\S.*)",
        memory.correct,
    ),
    _command(r"no\s*[,:]\s*(?P<text>\S+\s+\S.*)", memory.contradict),
    _command(rf"{_PLEASE}(?:forget|delete)(?: note)? {_NOTE_ID}[\s.!]*", memory.forget_note),
    _command(rf"{_PLEASE}forget (?:that|it|this)[\s.!]*", memory.forget_that),
    _command(rf"{_PLEASE}forget(?: about| that)? (?P<topic>\S.*)", memory.forget_topic),
    _command(rf"{_PLEASE}(?:read|show|cat) {_PATH}", _read),
    _command(rf"{_PLEASE}(?:list|ls) {_PATH}", _list),
    _command(r"write (?P<path>/[^:\n]*|[^\s:]+)\s*:\s?(?P<text>.*)", _write),
    _command(rf"find (?P<text>\S.*?) in {_PATH}", _find),
    _command(r"run (?P<command>\S.*)", _run),
)

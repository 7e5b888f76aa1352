"""What a person has allowed for more than one call: in a session, or for a schedule.

A grant stands for the calls that a person was shown in words, and a call is held against it as the
offer that it would be itself: what is offered and what is allowed cannot differ. Only a command
that says all it does is offered at all. What reads, and what a project tests itself with, may be
followed by further words, of which each must be known to be harmless. What a command does is still
decided by files that an agent may have written: this is a guard-rail, and the shell guest the wall.

Grants lie in a file of this host that no tool and no command reaches. They are no part of memory:
no import, no note and no model can bring one.
"""

import hashlib
import json
import re
import shlex
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from wire.disk import store
from wire.errors import Code
from wire.text import parsed_json
from wire.zones import zone

from guest.errors import GuestError
from guest.memory.models import now
from guest.tools.arguments import exact
from guest.tools.base import Arguments, Offer, Tool, ToolContext
from guest.tools.command_policy import plain_words
from guest.watch import CallReporter

GRANTS_MAX: Final = 256
"""How many a user may have; those of the sessions that have stood longest make room."""
_SHOWN_CHARS: Final = 300

_PATHS: Final = r"(?!/)(?!(?:.*/)?\.\.(?:/|$))[\w.@%+,:^/][\w.@%+,:^/-]*"
"""Names below the working directory, and names of commits."""
_FURTHER: Final = {
    tuple(words.split()): re.compile(options, re.ASCII)
    for words, options in {
        "git status": rf"-[sbvz]+|--short|--branch|--long|--porcelain(?:=v[12])?|--|{_PATHS}",
        "git diff": rf"-[wbp]|--stat|--name-only|--name-status|--cached|--staged|--|{_PATHS}",
        "git log": rf"-n|-\d{{1,4}}|-p|--oneline|--stat|--graph|--decorate|--|{_PATHS}",
        "git show": rf"-p|--stat|--oneline|--name-only|--name-status|--|{_PATHS}",
        "ls": rf"-[1aAdhlrRSt]+|{_PATHS}",
        "cat": rf"-[nbs]+|{_PATHS}",
        "head": rf"-n|-c|-\d{{1,6}}|{_PATHS}",
        "tail": rf"-n|-c|-\d{{1,6}}|{_PATHS}",
        "wc": rf"-[clmw]+|{_PATHS}",
        "grep": rf"-[cEFHhilnorsvw]+|{_PATHS}",
        "npm test": r"--silent|-s",
        **dict.fromkeys(
            ("pytest", "python -m pytest", "python3 -m pytest"),
            r"-[qsvxl]+|--lf|--ff|--tb=(?:short|long|line|no)",
        ),
        "cargo test": r"-q|-v|--release|--all|--workspace",
        "cargo check": r"-q|-v|--release|--all|--workspace",
        "go test": r"-v|-race|-short|\./\.\.\.",
    }.items()
}
"""Commands that may be allowed by how they begin, and what each further word must match."""

_TARGETS: Final = re.compile(
    r"(?:.*_)?(?:url|uri|host|path|file|dir|directory|repo|repository|project|branch|to|recipient|"
    r"channel|database|table|command|cmd|code|script|sql|query)s?",
    re.IGNORECASE,
)
"""Names of arguments that say at what, or with what, a foreign tool acts."""
_PLACE: Final = re.compile(
    r"(https?://[a-z0-9.-]{1,253}(?::\d{1,5})?)(?:/[\w./%=&?+,-]*)?", re.ASCII
)


def offers(tool: Tool, arguments: Arguments, shown: Callable[[str], str]) -> tuple[Offer, ...]:
    """What a person can allow besides this call; none where that could not be told exactly. `shown`
    is what they may see of a text."""
    given = arguments.model_dump(mode="json")
    found = _of_command(tool, given) if tool.command else _of_tool(tool, given)
    return tuple(
        Offer(text, hashlib.sha256(json.dumps(mark).encode()).hexdigest(), command)
        for text, mark, command in found
        if len(text) <= _SHOWN_CHARS and text == exact(shown(text)) and "\n" not in text
    )


_Found = Iterable[tuple[str, object, str]]


def _of_command(tool: Tool, given: Mapping[str, Any]) -> _Found:
    places = {path.field: given[path.field] for path in tool.paths}
    fields = tool.arguments.model_fields
    free = {tool.command, "timeout_s", *places}
    if any(value != fields[name].default for name, value in given.items() if name not in free):
        return
    words = plain_words(given[tool.command])
    where = f" in {', '.join(places.values())}" if places else ""
    beginnings = (words[:count] for count in range(1, len(words) + 1))
    for first in filter(_FURTHER.__contains__, beginnings):
        if all(map(_FURTHER[first].fullmatch, words[len(first) :])):
            text = f"commands that begin with `{' '.join(first)}`{where}"
            yield text, [tool.name, "begins", first, places], shlex.join(first)
    if words:
        command = shlex.join(words)
        yield f"`{command}`{where}", [tool.name, "words", words, places], command


def _of_tool(tool: Tool, given: Mapping[str, Any]) -> _Found:
    paths = {path.field for path in tool.paths}
    targets = {name: value for name, value in given.items() if name in paths or _at(name)}
    at = {name: _place(value) for name, value in targets.items() if value not in (None, "", [])}
    told = ", ".join(f"{name} {each}" for name, each in at.items())
    yield f"every call of {tool.name}{' with ' if told else ''}{told}", [tool.name, "calls", at], ""


def _at(name: str) -> bool:
    return _TARGETS.fullmatch(name) is not None


def _place(value: object) -> str:
    """The host of an address; anything else as it is."""
    if isinstance(value, str) and (found := _PLACE.fullmatch(value)):
        return found[1]
    return json.dumps(value, ensure_ascii=False)


def session(session_id: str) -> str:
    """The scope of a session's grants."""
    return f"session:{session_id}"


def schedule(schedule_id: str) -> str:
    """The scope of a schedule's grants."""
    return f"schedule:{schedule_id}"


@dataclass(frozen=True)
class Grant:
    """What a person has allowed: `text` says it, `mark` stands for it. `command` is what the policy
    must permit for it."""

    grant_id: str
    scope: str
    text: str
    mark: str
    command: str
    channel: str
    given_at: str

    def told(self, time_zone: str) -> str:
        """What is said of a call that it allows."""
        at, today = (
            moment.astimezone(zone(time_zone))
            for moment in (datetime.fromisoformat(self.given_at), datetime.now(UTC))
        )
        when = f"{at:%H:%M}" if at.date() == today.date() else f"{at:%Y-%m-%d %H:%M}"
        return f"allowed by your word of {when}: {self.text}"


class Grants:
    """A user's grants. `file` keeps them; `witness` records who gave and withdrew them."""

    def __init__(self, file: Path | None = None, witness: CallReporter | None = None) -> None:
        self._file = file
        self._witness = witness or CallReporter(required=False)
        self._grants: list[Grant] = []
        self._sealed: list[str] = []
        try:
            known: Any = parsed_json(file.read_bytes()) if file is not None else {}
            self._grants = [Grant(**each) for each in known.get("grants", ())]
            self._sealed = [str(each) for each in known.get("sealed", ())]
        except (OSError, ValueError, TypeError, AttributeError):
            self._grants = []

    async def give(
        self, scope: str, offered: Sequence[Offer], *, channel: str, seal: bool = False
    ) -> Sequence[Grant]:
        """Keep what a person has allowed; recorded and durable when this returns. With `seal`
        nothing is ever added in this scope.

        Raises `GuestError`: FAILED_PRECONDITION for a sealed scope, RESOURCE_EXHAUSTED where no
        session's grants can make room, UNAVAILABLE where it cannot be recorded.
        """
        made = [
            Grant(f"grant-{uuid.uuid4().hex[:12]}", scope, *each, channel, now())
            for each in dict.fromkeys(offered)
        ]
        self._with(scope, made)
        for each in made:
            await self._record(each, f"allows {each.text}", channel, must=True)
        self._keep(self._with(scope, made), [*self._sealed, *([scope] if seal else [])])
        return made

    def _with(self, scope: str, made: Sequence[Grant]) -> Sequence[Grant]:
        """All that stand when these are given; raises as `give`."""
        if scope in self._sealed:
            raise GuestError(
                Code.FAILED_PRECONDITION,
                f"{scope} had its approvals when it was made, and gets no more",
                resolution="make it anew",
            )
        marks = {each.mark for each in made}
        left = [each for each in self._grants if (each.scope != scope or each.mark not in marks)]
        passing = [each for each in left if each.scope.startswith(session(""))]
        for oldest in passing[: max(0, len(left) + len(made) - GRANTS_MAX)]:
            left.remove(oldest)
        if len(left) + len(made) > GRANTS_MAX:
            raise GuestError(
                Code.RESOURCE_EXHAUSTED,
                f"{GRANTS_MAX} approvals stand already",
                resolution="runner approvals withdraw ID",
            )
        return [*left, *made]

    def allowing(self, context: ToolContext, offered: Iterable[Offer]) -> Grant | None:
        """The grant that allows a call of which this is offered; None if there is none."""
        marks = {each.mark for each in offered}
        scopes = {session(context.session_id)} if context.session_id else set[str]()
        scopes |= {schedule(context.schedule)} if context.schedule else set()
        fit = (each for each in self._grants if each.scope in scopes and each.mark in marks)
        return next(fit, None)

    def list(self, scope: str = "") -> list[Grant]:
        """All that stand, or those of a scope, oldest first."""
        return [each for each in self._grants if scope in ("", each.scope)]

    async def withdraw(self, grant_id: str, channel: str) -> bool:
        """Take a grant back; false if it does not stand any more."""
        found = [each for each in self._grants if each.grant_id == grant_id]
        self._keep([each for each in self._grants if each not in found], self._sealed)
        for each in found:
            await self._record(each, f"withdraws {each.text}", channel)
        return bool(found)

    def drop(self, scope: str) -> None:
        """Forget the grants of a session or a schedule that has ended."""
        self.restrict(lambda each: each.scope != scope)
        if scope in self._sealed:
            self._keep(self._grants, [each for each in self._sealed if each != scope])

    def restrict(self, stands: Callable[[Grant], bool]) -> None:
        """Forget those that do not stand any more."""
        left = [each for each in self._grants if stands(each)]
        if len(left) < len(self._grants):
            self._keep(left, self._sealed)

    async def _record(self, grant: Grant, about: str, channel: str, *, must: bool = False) -> None:
        kind, _, name = grant.scope.partition(":")
        record = self._witness.recording(
            tool="approval",
            safety="privileged",
            session_id=name if kind == "session" else "",
            channel=channel,
            actor="person",
            must_be_recorded=must,
        )
        await record.begin(f"{about} ({grant.scope})")
        record.end("ok", 0)

    def _keep(self, grants: Sequence[Grant], sealed: Sequence[str]) -> None:
        if self._file is not None:
            known = {"grants": [asdict(each) for each in grants], "sealed": [*sealed]}
            store(self._file, json.dumps(known))
        self._grants, self._sealed = [*grants], [*sealed]

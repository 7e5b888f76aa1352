"""The interface of a tool; everything needed to implement one."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict
from wire.errors import Code
from wire.settings import Approval

from guest.memory.models import MemoryAction, Receipt
from guest.tools.clock import Pause

EXCERPT_CONTEXT_CHARS: Final = 8192
"""How much surrounding text an `Excerpt` has on either side: more than the longest common
private key."""


class Safety(StrEnum):
    """How a call may affect the world; decides order and approval.

    READ_ONLY calls of one reply run side by side, SIDE_EFFECTING ones in
    order, PRIVILEGED ones in order and by the operator's approval policy.
    """

    READ_ONLY = "read_only"
    SIDE_EFFECTING = "side_effecting"
    PRIVILEGED = "privileged"


class Ending(NamedTuple):
    """What is told of work that has ended, and its source as material: a command, a sub-agent."""

    text: str
    source: str


@dataclass(frozen=True)
class Reply:
    """A model's reply in a turn, whose calls are taken as they are clearly meant.

    `known` are the notes that it may delete without a question: their ids, as far as the user has
    typed them. `deletes` are the ids of the notes that its calls delete, as the model wrote them.
    """

    known: frozenset[str] = frozenset()
    deletes: tuple[str, ...] = ()


class Offer(NamedTuple):
    """What a person can allow besides the call that they are asked about, in their words. `mark`
    stands for it; `command` is what the command policy must permit, if it is one."""

    text: str
    mark: str
    command: str


@dataclass(frozen=True)
class ToolContext:
    """The caller of a tool, passed to every call.

    Immutable and never stored, so that turns cannot mix. `actor` is who decided on the call: the
    model or the runtime. `asked` is the user's text in this turn, `vouched` is what the user said
    before and the model has seen again: earlier messages of the session, the user's own notes.
    `project` is the session's, in which relative paths and commands begin; empty: /shared.
    `time_zone` is where the user is. `material` names the material that the model has read: virtual
    paths, commands, notes made from material. `link` is the source of what the runtime writes, if
    that is not material. `pause` tells whether a person is asked for the turn; clocks stand still
    meanwhile. `reply` is None for a call from outside of a turn. With `local` the model has read
    what stays on this machine. `project_tag` is that of notes of the session's project, and with
    `keeps_notes` all new ones get it.
    `schedule` is the one for which the turn runs. `offers` is what a
    person who is asked about the call can allow with it.
    """

    user_id: str
    session_id: str
    turn_id: str
    channel: str
    actor: Literal["agent", "automatic"] = "agent"
    asked: str = ""
    time_zone: str = ""
    vouched: tuple[str, ...] = ()
    material: tuple[str, ...] = ()
    link: str = ""
    pause: Pause = field(default_factory=Pause, compare=False, repr=False)
    reply: Reply | None = field(default=None, compare=False, repr=False)
    local: bool = False
    project: str = ""
    project_tag: str = ""
    keeps_notes: bool = False
    schedule: str = ""
    offers: tuple[Offer, ...] = field(default=(), compare=False, repr=False)

    @property
    def turn(self) -> str:
        """The turn, among those of all sessions."""
        return f"{self.session_id} {self.turn_id}"


def _plain(schema: dict[str, Any]) -> None:
    """Drop what a model does not need: titles, and null as a default."""
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
        if each.get("default", ...) is None:
            del each["default"]


class Arguments(BaseModel):
    """Base of every tool's arguments: unknown fields and wrong types are rejected.

    Providers get `model_json_schema()`: flat, without references. A person who watches sees the
    field `telling` of a call: the first one, unless a subclass names another. `first` says of
    fields what to do before such a call, for a model that leaves them out.
    """

    telling: ClassVar[str] = ""
    first: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, json_schema_extra=_plain)


@dataclass(frozen=True)
class PathArgument:
    """Names an argument that holds a virtual path.

    Before the tool runs, the pipeline checks that the path lies under a root: a writable one if the
    call `writes`, one that the shell guest has as well if it is `for_commands`.
    """

    field: str
    writes: bool = False
    for_commands: bool = False


@dataclass(frozen=True)
class Stored:
    """Names the arguments of a call that are stored in a file or a note.

    The pipeline puts the secrets back into them for which the model saw placeholders, or refuses
    the call. `sought` are arguments that must equal what is stored already. Of a tool that is not
    READ_ONLY no other argument may hold a placeholder.
    """

    into: Literal["file", "note"]
    fields: tuple[str, ...]
    sought: tuple[str, ...] = ()


@dataclass(frozen=True)
class Excerpt:
    """A piece of a longer text, for use anywhere in `ToolOutput.data`.

    Only `text` is shown, as a string. The surroundings (at most `EXCERPT_CONTEXT_CHARS` on either
    side) let redaction recognise a secret that was cut.
    """

    text: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Spliced:
    """Pieces of a longer text, shown as one string; used like an `Excerpt`."""

    parts: tuple[str | Excerpt, ...]


Found = tuple[tuple[str, str], ...]
"""Ids of notes, each with how a search has found it; empty: by none."""


@dataclass(frozen=True)
class ToolOutput:
    """A tool's answer: `data` becomes JSON, each of `notes` a `Note: ` line.

    `data` consists of dicts, lists, tuples, strings, `Excerpt`s, `Spliced`, numbers, booleans and
    None. `summary` is one line for a person who watches, such as "Stored: [id: note-...]". `count`
    is the number of search results, for the log. `material` names the material in the answer,
    `vouched` are the user's own notes in it. `receipts` describe the changes of memory that the
    call made, `words` what that note says, after what it said before. `found` are the notes in the
    answer, each with how a search has found it. `printed`
    is what a command printed, for a person to read. `when_shown` is called
    with the number of first items, of the only list in `data`, that fit into the result, and so is
    `cursor_after`, which gives the cursor of what follows these; empty at the end. `pictures` are
    files of images; the pipeline leaves out what no model takes, and says so.
    """

    data: Any
    notes: tuple[str, ...] = ()
    summary: str = ""
    count: int | None = None
    material: tuple[str, ...] = ()
    vouched: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    found: Found = ()
    words: tuple[str, ...] = ()
    printed: tuple[str | Excerpt | Spliced, ...] = ()
    when_shown: Callable[[int], Awaitable[None]] | None = None
    cursor_after: Callable[[int], str] = lambda _: ""
    pictures: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class ToolResult:
    """The final result of a call: text of limited size, with virtual paths and without secrets.

    `is_error` marks a message that the model can act on; `code` is its kind. `summary` is one line.
    `material` comes from the `ToolOutput` or `ToolError`, `vouched`, `receipts`, `found`, `printed`
    and the beginnings of `words` from the `ToolOutput`. `data_json` is the data of `text` as one
    JSON object; empty for an error, and where it does not fit. `local` are the notes that it has
    read and that stay on this machine. `pictures` are shown to a model that sees, in this turn.
    """

    text: str
    is_error: bool
    summary: str
    duration_ms: int
    material: tuple[str, ...] = ()
    code: Code | None = None
    local: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    printed: str = ""
    vouched: tuple[str, ...] = ()
    data_json: str = ""
    found: Found = ()
    words: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()


class MemoryChange(NamedTuple):
    """What a call would change in memory; `note_id` is empty if there is no note yet."""

    action: MemoryAction
    note_id: str = ""


Run = Callable[[ToolContext, Any], Awaitable[ToolOutput]]
"""The function of a tool, called with its caller and validated arguments."""

Changes = Callable[[Mapping[str, Any]], MemoryChange | None]
"""What a call with these arguments, as the model wrote them, changes in memory."""

Asks = Callable[[ToolContext, Any], Awaitable[dict[str, str]]]
"""Of what a person is asked before a call: texts by their names; none: the call may run. Where all
are empty, of the whole call."""


@dataclass(frozen=True)
class Tool:
    """One tool.

    `description` is for the model: when to call it, what it returns, what not to do with the
    result. `run` gets validated `arguments`; it raises `guest.errors.ToolError` for what the model
    can correct, and anything else for what an operator must. `run` is cancelled after `timeout`
    seconds, or after `timeout_of` the arguments if they set the time. `paths` are the arguments
    with virtual paths, `command` the one with a shell command, `stored` those that are kept.
    `output_bytes` is room for a result
    whose arguments promise more than the pipeline's usual limit. `log_level` applies to successful
    calls. `approval` says who allows a PRIVILEGED call, if that is not as for the other tools.
    `asks` names the notes, each with its text, that a person must allow a model's call to delete.
    With `in_turn` only turns have it, and its calls run side by side.
    """

    name: str
    description: str
    arguments: type[Arguments]
    safety: Safety
    timeout: float
    run: Run
    paths: tuple[PathArgument, ...] = ()
    log_level: int = logging.INFO
    timeout_of: Callable[[Any], float] | None = None
    command: str = ""
    output_bytes: int = 0
    changes: Changes | None = None
    stored: Stored | None = None
    approval: Approval | None = None
    asks: Asks | None = None
    in_turn: bool = False


Approve = Callable[[ToolContext, Tool, str], Awaitable[bool]]
"""Asks a person about one PRIVILEGED call. Its arguments are passed as JSON, complete except for
the secrets of this guest.

True allows the call; anything else, including an exception, refuses it. The model is told the
reason in a `ToolError`.
"""

"""What a tool is, implementable from this page alone."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict
from wire.errors import Code

from guest.memory.models import MemoryAction, Receipt

EXCERPT_CONTEXT_CHARS: Final = 8192
"""How much of its surroundings an `Excerpt` brings along on either side: more
than the longest private key in common use."""


class Safety(StrEnum):
    """How a call may affect the world; decides order and approval.

    READ_ONLY calls of one reply run side by side, SIDE_EFFECTING ones in
    order, PRIVILEGED ones in order and by the operator's approval policy.
    """

    READ_ONLY = "read_only"
    SIDE_EFFECTING = "side_effecting"
    PRIVILEGED = "privileged"


@dataclass(frozen=True)
class ToolContext:
    """Who calls, passed to every call. There is no other way to know.

    Immutable and never stored, so two users' turns in flight cannot meet.
    `actor` is who decided on the call: the model, or the runtime by itself. `asked` are
    the user's words of this turn. `material` is what the model has read that nobody
    vouched for: virtual paths, commands, notes that came from such. `link` names the
    source of what the runtime writes, where that is no material.
    """

    user_id: str
    session_id: str
    turn_id: str
    channel: str
    actor: Literal["agent", "automatic"] = "agent"
    asked: str = ""
    material: tuple[str, ...] = ()
    link: str = ""


def _plain(schema: dict[str, Any]) -> None:
    """Drop what says nothing to a model: titles, and null as a default."""
    schema.pop("title", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
        if field.get("default", ...) is None:
            del field["default"]


class Arguments(BaseModel):
    """Base of every tool's arguments: unknown fields and wrong types are refused.

    `model_json_schema()` is what a provider is given: flat, without references.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, json_schema_extra=_plain)


@dataclass(frozen=True)
class PathArgument:
    """Names an argument that holds a virtual path.

    The pipeline checks it before the tool runs: it lies under one of the roots,
    under a writable one where the call `writes`, and under one that the shell
    guest has too where it is `for_commands`.
    """

    field: str
    writes: bool = False
    for_commands: bool = False


@dataclass(frozen=True)
class Excerpt:
    """A piece cut out of something longer, for use anywhere in `ToolOutput.data`.

    Only `text` is shown, as a string. The surroundings (at most
    `EXCERPT_CONTEXT_CHARS` on either side) let redaction recognise a secret
    that the cut went through.
    """

    text: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Spliced:
    """Pieces of something longer, shown as one string; for use like an `Excerpt`."""

    parts: tuple[str | Excerpt, ...]


@dataclass(frozen=True)
class ToolOutput:
    """What a tool answers: `data` becomes JSON, each of `notes` a `Note: ` line.

    `data` is made of dicts, lists, tuples, strings, `Excerpt`s, `Spliced`,
    numbers, booleans and None. `summary` is one line for a person who watches, such as
    "Stored: [id: note-...]". `count` is the number of results of a search, for
    the log. `material` names what was read that nobody vouched for. `receipts` are the
    changes of memory that the call has made.
    """

    data: Any
    notes: tuple[str, ...] = ()
    summary: str = ""
    count: int | None = None
    material: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True)
class ToolResult:
    """What the pipeline hands back: final text, bounded, virtual paths, redacted.

    `is_error` marks a message that the model can act on, and `code` says what kind of
    refusal it is. `summary` is one line. `material` is that of the tool's `ToolOutput`
    or `ToolError`, `receipts` those of its `ToolOutput`.
    """

    text: str
    is_error: bool
    summary: str
    duration_ms: int
    material: tuple[str, ...] = ()
    code: Code | None = None
    receipts: tuple[Receipt, ...] = ()


class MemoryChange(NamedTuple):
    """What a call is to change in memory; `note_id` is empty where there is no note yet."""

    action: MemoryAction
    note_id: str = ""


Run = Callable[[ToolContext, Any], Awaitable[ToolOutput]]
"""What a tool does, for a caller and with checked arguments."""


@dataclass(frozen=True)
class Tool:
    """One tool.

    `description` is written for a model: when to call it, what it gives back,
    what not to do with the result. `run` gets validated arguments of type
    `arguments`; it raises `guest.errors.ToolError` for what the model can mend
    and anything else for what an operator must. `timeout` is in seconds; `run`
    is cancelled when it has passed. Where the arguments say how long a call may
    take, `timeout_of` gives its seconds instead. `paths` are those arguments
    that hold virtual paths, `command` the one that holds a shell command.
    `output_bytes` is room for a result whose arguments promise more than the
    pipeline's own bound on what a tool answers.
    `log_level` is that of a call that went well. `changes` says what a call with these
    arguments, as the model wrote them, changes in memory: the action and the note's id.
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
    changes: Callable[[Mapping[str, Any]], MemoryChange | None] | None = None


Approve = Callable[[ToolContext, Tool, str], Awaitable[bool]]
"""Asks a person about one PRIVILEGED call, with its arguments as JSON: all of them, without
the secrets that this guest was given.

True lets the call through; anything else, an exception included, refuses it."""

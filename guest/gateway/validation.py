"""Validates the arguments of requests, and limits the size of replies."""

import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import date
from typing import Final, TypeVar, cast, get_args

from google.protobuf.message import Message
from wire.errors import Code
from wire.limits import (
    GRPC_MESSAGE_MAX_BYTES,
    ID_PATTERN,
    NOTE_MAX_CHARS,
    QUERY_MAX_CHARS,
    SEQUENCE_MAX,
    TAG_MAX_CHARS,
    TAGS_MAX,
    TURN_TEXT_MAX_CHARS,
)
from wire.network_probe import Spec
from wire.text import shortened
from wire.v1 import gateway_pb2 as pb
from wire.zones import zone

from guest.agent.answer_form import AnswerForm
from guest.agent.turn import ClientTool, FromClient
from guest.errors import GuestError
from guest.memory.models import NOTE_TYPES
from guest.memory.usage import By

MODEL_PATTERN: Final = r"[!-~]{1,200}"
TITLE_MAX_CHARS: Final = 200
LINK_MAX_CHARS: Final = 1_000
SECRET_MAX_CHARS: Final = 100_000
CURSOR_MAX_CHARS: Final = 1_000
ARGUMENTS_MAX_CHARS: Final = 1_000_000
QUESTION_MAX_CHARS: Final = 2_000
LIMIT_MAX: Final = 1_000
STALE_DAYS_MAX: Final = 36_500
CALL_OUTPUT_MAX_CHARS: Final = 262_144
CLIENT_TOOLS_MAX: Final = 64
CLIENT_TOOL_PATTERN: Final = r"[A-Za-z0-9_-]{1,64}"
CLIENT_SCHEMA_MAX_CHARS: Final = 32_768
REPLY_MAX_BYTES: Final = GRPC_MESSAGE_MAX_BYTES - 64 * 1024
CHANNEL: Final = "gateway"
"""The channel of a person who names none."""
ACTORS: Final = ("user", "agent", "automatic", "import")

_M = TypeVar("_M", bound=Message)


def identifier(field: str, value: str, *, optional: bool = False) -> str:
    """Check the name of a session, turn, note, approval or channel."""
    if (optional and not value) or re.fullmatch(ID_PATTERN, value):
        return value
    raise _bad(field, f"{_seen(value)} does not match {ID_PATTERN}")


def limit(value: int, *, default: int, maximum: int = LIMIT_MAX, field: str = "limit") -> int:
    """Check a maximum number of results; 0 means `default`."""
    if value > maximum:
        raise _bad(field, f"{value} is over the maximum of {maximum}")
    return value or default


def turn_text(value: str) -> str:
    return _text("text", value, TURN_TEXT_MAX_CHARS)


def time_zone(value: str) -> str:
    """Check the name of a time zone; empty is the user's own, and so is what a browser says that
    knows none, as under `TZ=:/etc/localtime`."""
    if value == "Etc/Unknown":
        return ""
    try:
        zone(value)
    except ValueError as error:
        raise _bad("time_zone", str(error)) from None
    return value


def untraced(request: pb.StartTurnRequest) -> None:
    """Check that a request without a trace asks for nothing that would leave one."""
    for field in ("session_id", "retry", "attachments", "client_tools", "material"):
        if getattr(request, field):
            raise _bad(field, "it must be empty where untraced is set")
    if request.HasField("form"):
        raise _bad("form", "it must be empty where untraced is set")


def temporary(request: pb.CreateSessionRequest) -> None:
    """Check that a temporary conversation is a new one, and nobody's work."""
    for field in ("session_id", "parent_session_id"):
        if getattr(request, field):
            raise _bad(field, "it must be empty where temporary is set")


def from_client(request: pb.StartTurnRequest, taken: Collection[str]) -> FromClient:
    """What the client's program adds to a turn. None of its tools may have a name that is
    `taken`."""
    if len(request.client_tools) > CLIENT_TOOLS_MAX:
        raise _bad(
            "client_tools",
            f"{len(request.client_tools)} are over the maximum of {CLIENT_TOOLS_MAX}",
        )
    tools = [_client_tool(each) for each in request.client_tools]
    names = [tool.name for tool in tools]
    for name in names:
        if name in taken:
            raise _bad("client_tools", f"{name} is a tool of the agent itself; rename yours")
        if names.count(name) > 1:
            raise _bad("client_tools", f"two tools have the name {name}")
    return FromClient(
        at_most("instructions", request.instructions, TURN_TEXT_MAX_CHARS),
        at_most("material", request.material, TURN_TEXT_MAX_CHARS),
        tuple(tools),
        form(request.form, names),
    )


def form(given: pb.AnswerForm, tools: Collection[str] | None = None) -> AnswerForm:
    """How the model's answer must be; calls that it must make are of `tools`, if they are known."""
    at_most("form", given.schema_json, CLIENT_SCHEMA_MAX_CHARS)
    for name in given.must_call:
        if tools is not None and name not in tools:
            raise _bad("form", f"{_seen(name)} is not one of client_tools")
    try:
        return AnswerForm.read(given)
    except (ValueError, RecursionError) as error:
        raise _bad("form", f"the schema of the answer: {shortened(str(error), 300)}") from None


def _client_tool(given: pb.ToolDescription) -> ClientTool:
    if not re.fullmatch(CLIENT_TOOL_PATTERN, given.name):
        raise _bad("client_tools", f"{_seen(given.name)} does not match {CLIENT_TOOL_PATTERN}")
    at_most("client_tools", given.arguments_schema_json, CLIENT_SCHEMA_MAX_CHARS)
    try:
        schema = json.loads(given.arguments_schema_json)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise _bad("client_tools", f"the schema of {given.name} is not a JSON schema of an object")
    description = at_most("client_tools", given.description, CLIENT_SCHEMA_MAX_CHARS)
    return ClientTool(given.name, description, schema)


def model(value: str) -> str:
    """Check the name of a model; empty means the configured one."""
    if not value or re.fullmatch(MODEL_PATTERN, value):
        return value
    raise _bad("model", f"{_seen(value)} does not match {MODEL_PATTERN}")


def note_text(value: str) -> str:
    return _text("text", value, NOTE_MAX_CHARS)


def query(value: str) -> str:
    return _text("query", value, QUERY_MAX_CHARS)


def tags(values: Sequence[str]) -> list[str]:
    if len(values) > TAGS_MAX:
        raise _bad("tags", f"{len(values)} are over the maximum of {TAGS_MAX}")
    return [_text("tags", value, TAG_MAX_CHARS) for value in values]


def tag(value: str) -> str:
    """Check a tag to filter by; empty means any."""
    return value and _text("tag", value, TAG_MAX_CHARS)


def actor(value: str) -> str:
    """Check an actor to filter by; empty means any."""
    return _one_of("actor", value, ACTORS)


def note_type(value: str) -> str:
    """Check a note type to filter by; empty means any."""
    return _one_of("type", value, NOTE_TYPES)


def version(field: str, value: int) -> int | None:
    """Check the expected version of a note; 0 becomes None, meaning any."""
    if value > SEQUENCE_MAX:
        raise _bad(field, f"{value} is over the maximum of {SEQUENCE_MAX}")
    return value or None


def grouping(value: str) -> By:
    """Check by what amounts are summed; empty means by day."""
    return cast("By", _one_of("by", value, get_args(By)) or "day")


def day(field: str, value: str) -> str:
    """Check a date such as 2026-11-22; may be empty."""
    try:
        if value and date.fromisoformat(value).isoformat() != value:
            raise ValueError
    except ValueError:
        raise _bad(field, f"{_seen(value)} is not a day such as 2026-11-22") from None
    return value


def cursor(value: str) -> str:
    return at_most("cursor", value, CURSOR_MAX_CHARS)


def link(value: str) -> str:
    """Check the source of a text: one line, may be empty."""
    if len(value.splitlines()) > 1:
        raise _bad("link", "it must be one line")
    return at_most("link", value, LINK_MAX_CHARS)


def title(value: str, *, optional: bool = False) -> str:
    """Check the title of a session: one line."""
    if optional and not value:
        return value
    if len(value.splitlines()) > 1:
        raise _bad("title", "it must be one line")
    return _text("title", value, TITLE_MAX_CHARS)


def secret(field: str, value: str) -> str:
    """Check a token or key: printable ASCII; errors never show it."""
    if not value or not value.isascii() or not value.isprintable():
        raise _bad(field, "it must be one line of printable ASCII characters")
    return at_most(field, value, SECRET_MAX_CHARS)


def at_most(field: str, value: str, maximum: int) -> str:
    """Check text of at most `maximum` characters without NUL; may be empty."""
    if len(value) > maximum:
        raise _bad(field, f"{len(value)} characters are over the maximum of {maximum}")
    if "\0" in value:
        raise _bad(field, "it must not hold NUL characters")
    return value


def _one_of(field: str, value: str, accepted: Sequence[str]) -> str:
    if not value or value in accepted:
        return value
    raise _bad(field, f"{_seen(value)} is not one of {', '.join(accepted)}")


def _text(field: str, value: str, maximum: int) -> str:
    if not value.strip():
        raise _bad(field, "it must not be blank")
    return at_most(field, value, maximum)


def _seen(value: str) -> str:
    return repr(shortened(value, 80))


def _bad(field: str, why: str) -> GuestError:
    return GuestError(Code.INVALID_ARGUMENT, f"bad {field}: {why}")


async def largest_page(
    limit: int, page: Callable[[int], Awaitable[_M]], max_bytes: int = REPLY_MAX_BYTES
) -> _M:
    """Call `page` with `limit`, then half of it, and so on, until the reply is small enough."""
    reply = await page(limit)
    while reply.ByteSize() > max_bytes and limit > 1:
        limit //= 2
        reply = await page(limit)
    return reply


def network_spec(content: bytes) -> Spec:
    """What the runner says for a trial of the ways out."""
    try:
        return Spec.from_json(content)
    except ValueError as error:
        raise _bad("spec", str(error)) from None

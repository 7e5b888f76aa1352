"""Validates the arguments of requests, and limits the size of replies."""

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeVar, get_args

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from wire.errors import Code
from wire.limits import (
    CURSOR_MAX_CHARS,
    GRPC_MESSAGE_MAX_BYTES,
    ID_PATTERN,
    NOTE_MAX_CHARS,
    QUERY_MAX_CHARS,
    SEQUENCE_MAX,
    TAG_MAX_CHARS,
    TAGS_MAX,
    TOP_K_MAX,
    TURN_TEXT_MAX_CHARS,
)
from wire.network_probe import Spec
from wire.text import shortened
from wire.v1 import gateway_pb2 as pb
from wire.zones import today, zone

from guest.agent.answer_form import AnswerForm
from guest.agent.turn import ClientTool, FromClient
from guest.errors import GuestError
from guest.memory.models import NOTE_TYPES
from guest.memory.period import checked_day
from guest.memory.usage import By
from guest.memory.when import days
from guest.notices.outbox import KEPT_MAX, KEY_MAX_CHARS, KINDS

MODEL_PATTERN: Final = r"[!-~]{1,200}"
TITLE_MAX_CHARS: Final = 200
LINK_MAX_CHARS: Final = 1_000
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


def check(request: Message) -> None:
    """Refuse a request with a field that does not pass its check of the contract."""
    for name, test, required in checked_fields(request.DESCRIPTOR):
        value = getattr(request, name)
        if value or required:
            test(name, value)


@cache
def checked_fields(kind: Descriptor) -> list[tuple[str, Callable[[str, Any], object], bool]]:
    """The fields of a request that have a check, and whether they are required."""
    options = [(field.name, field.GetOptions().Extensions) for field in kind.fields]
    return [
        (name, CHECKS[given[pb.check]], given[pb.required])
        for name, given in options
        if given[pb.check]
    ]


def identifier(field: str, value: str) -> str:
    """Check the name of a session, turn, note, approval or channel."""
    _matching(field, value, ID_PATTERN)
    return value


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


def asked(request: pb.StartTurnRequest) -> str:
    """The text of a turn; empty for one that tries the last one again."""
    if request.retry:
        return ""
    _text("text", request.text, TURN_TEXT_MAX_CHARS)
    return request.text


def untraced(request: pb.StartTurnRequest) -> None:
    """Check that a request without a trace asks for nothing that would leave one."""
    for field in ("session_id", "retry", "attachments", "client_tools", "material"):
        if getattr(request, field):
            raise _bad(field, "it must be empty where untraced is set")
    if request.HasField("form"):
        raise _bad("form", "it must be empty where untraced is set")


def in_order(since: str, before: str) -> None:
    """Check that a time does not end before it begins."""
    if since and before and before <= since:
        raise _bad("before", f"{before} is not after since, {since}")


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
        request.instructions,
        request.material,
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
    _matching("client_tools", given.name, CLIENT_TOOL_PATTERN)
    at_most("client_tools", given.arguments_schema_json, CLIENT_SCHEMA_MAX_CHARS)
    try:
        schema = json.loads(given.arguments_schema_json)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict) or schema.get("type") != "object":
        raise _bad("client_tools", f"the schema of {given.name} is not a JSON schema of an object")
    description = at_most("client_tools", given.description, CLIENT_SCHEMA_MAX_CHARS)
    return ClientTool(given.name, description, schema)


def at_most(field: str, value: str, maximum: int) -> str:
    """Check text of at most `maximum` characters without NUL; may be empty."""
    if len(value) > maximum:
        raise _bad(field, f"{len(value)} characters are over the maximum of {maximum}")
    if "\0" in value:
        raise _bad(field, "it must not hold NUL characters")
    return value


def _matching(field: str, value: str, pattern: str) -> None:
    if not re.fullmatch(pattern, value):
        raise _bad(field, f"{_seen(value)} does not match {pattern}")


def _one_of(field: str, value: str, accepted: Sequence[str]) -> None:
    if value not in accepted:
        raise _bad(field, f"{_seen(value)} is not one of {', '.join(accepted)}")


def _no_more_than(field: str, value: int, maximum: int) -> None:
    if value > maximum:
        raise _bad(field, f"{value} is over the maximum of {maximum}")


def _text(field: str, value: str, maximum: int) -> None:
    if not value.strip():
        raise _bad(field, "it must not be blank")
    at_most(field, value, maximum)


def _line(field: str, value: str, maximum: int, length: Callable[[str, str, int], object]) -> None:
    if len(value.splitlines()) > 1:
        raise _bad(field, "it must be one line")
    length(field, value, maximum)


def tags(field: str, values: Sequence[str]) -> None:
    if len(values) > TAGS_MAX:
        raise _bad(field, f"{len(values)} are over the maximum of {TAGS_MAX}")
    for value in values:
        _text(field, value, TAG_MAX_CHARS)


def commands(field: str, values: Sequence[str]) -> None:
    _no_more_than(field, len(values), TAGS_MAX)
    for value in values:
        _text(field, value, QUESTION_MAX_CHARS)


def numbers(field: str, values: Sequence[int]) -> None:
    _no_more_than(field, len(values), KEPT_MAX)
    _no_more_than(field, max(values, default=0), SEQUENCE_MAX)


def _readable(field: str, value: str, read: Callable[[str], object]) -> None:
    try:
        read(value)
    except ValueError as error:
        raise _bad(field, str(error)) from None


CHECKS: Final[Mapping[str, Callable[[str, Any], object]]] = {
    "id": identifier,
    "model": partial(_matching, pattern=MODEL_PATTERN),
    "note": partial(_text, maximum=NOTE_MAX_CHARS),
    "new_note": partial(at_most, maximum=NOTE_MAX_CHARS),
    "query": partial(_text, maximum=QUERY_MAX_CHARS),
    "tag": partial(_text, maximum=TAG_MAX_CHARS),
    "tags": tags,
    "commands": commands,
    "title": partial(_line, maximum=TITLE_MAX_CHARS, length=_text),
    "link": partial(_line, maximum=LINK_MAX_CHARS, length=at_most),
    "cursor": partial(at_most, maximum=CURSOR_MAX_CHARS),
    "from_client": partial(at_most, maximum=TURN_TEXT_MAX_CHARS),
    "arguments": partial(at_most, maximum=ARGUMENTS_MAX_CHARS),
    "question": partial(at_most, maximum=QUESTION_MAX_CHARS),
    "output": partial(at_most, maximum=CALL_OUTPUT_MAX_CHARS),
    "type": partial(_one_of, accepted=NOTE_TYPES),
    "actor": partial(_one_of, accepted=ACTORS),
    "by": partial(_one_of, accepted=get_args(By)),
    "kind": partial(_one_of, accepted=KINDS),
    "key": partial(_line, maximum=KEY_MAX_CHARS, length=_text),
    "day": partial(_readable, read=checked_day),
    "when": partial(_readable, read=lambda value: days(value, today())),
    "limit": partial(_no_more_than, maximum=LIMIT_MAX),
    "top_k": partial(_no_more_than, maximum=TOP_K_MAX),
    "stale_days": partial(_no_more_than, maximum=STALE_DAYS_MAX),
    "numbers": numbers,
    "version": partial(_no_more_than, maximum=SEQUENCE_MAX),
}
"""The checks that fields of requests name in the contract."""


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

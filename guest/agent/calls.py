"""Tool calls as they may be stored and sent on, whatever a model has written.

Providers refuse a whole request for one call in its history with an odd name, or with an id that is
there twice. And what is stored must fit into a line of an export, and be read again at any time.
"""

import json
import re
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from guest.tools.arguments import DEPTH_MAX, nested_deeper

CALLS_MAX: Final = 64
"""How many calls one answer may have."""

ARGUMENTS_MAX_BYTES: Final = 1024 * 1024
"""How much all calls of one answer may hold: escaped three times, it still fits into an export."""

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}", re.ASCII)
"""OpenAI refuses ids longer than 40 characters; servers that speak its API make longer ones."""
_ID_BEGINNING: Final = 34
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_NAME_MAX_CHARS: Final = 64
_UNNAMED: Final = "unnamed"
_NOT_KEPT: Final = "(The beginning of this conversation is not kept.)"
_OMITTED: Final = "omitted"
"""The one argument of a call that is kept without its own."""


_TOO_MUCH: Final = (
    "the arguments of one answer's calls may have {most} bytes together, and these had {size}: "
    "this call was not run; write less at once, in several calls"
)
_TOO_MANY: Final = (
    f"one answer may have {CALLS_MAX} calls, and this had more: this one and those behind it were "
    "not run; call them in your next answer"
)


def checked(
    response: ModelResponse, messages: Iterable[ModelMessage], refusals: MutableMapping[str, str]
) -> ModelResponse:
    """The answer to `messages` with calls as they may be stored and run, and no blank text beside
    them.

    `refusals` gets an entry by id for each call that must not run: what the model is told. The
    arguments of such a call are not kept.
    """
    if not response.tool_calls:
        return response
    answers = [each for each in messages if isinstance(each, ModelResponse)]
    known = {call.tool_call_id for answer in answers for call in answer.tool_calls}
    parts: list[ModelResponsePart] = []
    calls = size = 0
    for part in response.parts:
        if not isinstance(part, ToolCallPart):
            if not (isinstance(part, TextPart) and _is_blank(part)):
                parts.append(part)
            continue
        calls += 1
        if calls > CALLS_MAX:
            continue
        call = _renamed(part, known)
        size += size_of(call)
        refusal = fault_of(call.args)
        if size > ARGUMENTS_MAX_BYTES:
            refusal = _TOO_MUCH.format(most=ARGUMENTS_MAX_BYTES, size=size)
        if calls == CALLS_MAX < len(response.tool_calls):
            refusal = _TOO_MANY
        if refusal:
            refusals[call.tool_call_id] = refusal
            call = without_arguments(call)
        parts.append(call)
    return replace(response, parts=parts)


def readable(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Stored messages with calls as any provider accepts them: each id is there once, every call
    has a name, and none has arguments that `checked` refuses. Blank texts are left out, and
    answers that say nothing."""
    known = set[str]()
    pending: dict[str, list[str]] = {}
    made: list[ModelMessage] = []
    for message in messages:
        parts: list[Any] = []
        if isinstance(message, ModelResponse):
            pending = {}
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                call = _renamed(part, known)
                if size_of(call) > ARGUMENTS_MAX_BYTES or fault_of(call.args):
                    call = without_arguments(call)
                pending.setdefault(part.tool_call_id, []).append(call.tool_call_id)
                parts.append(call)
            elif isinstance(part, ToolReturnPart):
                answers = pending.get(part.tool_call_id)
                if answers:
                    result = cast("ToolReturnPart[Any]", part)
                    name = name_of(result.tool_name)
                    parts.append(replace(result, tool_call_id=answers.pop(0), tool_name=name))
            elif not _is_blank(part):
                parts.append(part)
        if isinstance(message, ModelResponse) and all(isinstance(p, ThinkingPart) for p in parts):
            continue
        if parts:
            made.append(replace(cast(Any, message), parts=parts))
    return made


def begun(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """The messages, of which providers demand that the first is a user's."""
    if messages and isinstance(messages[0], ModelResponse):
        return [ModelRequest([UserPromptPart(_NOT_KEPT)]), *messages]
    return list(messages)


def _is_blank(part: Any) -> bool:
    content = getattr(part, "content", None)
    return isinstance(content, str) and not content.strip() and not getattr(part, "signature", None)


def name_of(name: str) -> str:
    """The name of a tool as providers accept it; a name of no tool stays one."""
    return _NO_NAME.sub("_", name)[:_NAME_MAX_CHARS] or _UNNAMED


def size_of(call: ToolCallPart[Any]) -> int:
    """The bytes of a call's arguments."""
    args: Any = call.args
    if isinstance(args, str):
        return len(args.encode(errors="replace"))
    if not args or nested_deeper(args, DEPTH_MAX):
        return 0
    return len(json.dumps(args, ensure_ascii=False, default=str).encode(errors="replace"))


def fault_of(arguments: Any) -> str:
    """What arguments have that no tool accepts, or that not every provider can be sent; empty for
    nothing, and for text that is no JSON."""
    deep = f"arguments must not be nested deeper than {DEPTH_MAX} levels"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except RecursionError:
            return deep
        except ValueError:
            return ""
    if nested_deeper(arguments, DEPTH_MAX):
        return deep
    try:
        json.dumps(arguments, allow_nan=False, default=str)
    except ValueError:
        return "arguments must have no NaN and no infinite number"
    return ""


def without_arguments(call: ToolCallPart[Any]) -> ToolCallPart[Any]:
    return replace(call, args={_OMITTED: "these arguments were not kept"})


def _renamed(part: ToolCallPart[Any], known: set[str]) -> ToolCallPart[Any]:
    """The call with a name that providers accept, and an id that is not `known` yet: the same for
    the same history."""
    call_id = part.tool_call_id
    if not _ID.fullmatch(call_id):
        call_id = _NO_NAME.sub("_", call_id)[:_ID_BEGINNING] or "call"
    base, number = call_id[:_ID_BEGINNING], 1
    while call_id in known:
        number += 1
        call_id = f"{base}-{number}"
    known.add(call_id)
    return replace(part, tool_name=name_of(part.tool_name), tool_call_id=call_id)

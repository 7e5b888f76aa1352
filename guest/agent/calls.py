"""Tool calls as they may be stored and sent on, whatever a model has written.

Providers refuse a whole request for one call in its history with an odd name, or with an id that is
there twice. And what is stored must fit into a line of an export, and be read again at any time.
"""

import json
import re
import uuid
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
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
from pydantic_ai.models import ModelRequestContext

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


class CheckCalls(AbstractCapability[Any]):
    """Checks the calls of each answer before they are stored and run, and drops blank text beside
    them.

    `refusals` gets an entry by id for each call that must not run: what the model is told. The
    arguments of such a call are not kept.
    """

    def __init__(self, refusals: MutableMapping[str, str]) -> None:
        self._refusals = refusals

    async def after_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the request has it all
        *,
        request_context: ModelRequestContext,
        response: ModelResponse,
    ) -> ModelResponse:
        if not response.tool_calls:
            return response
        known = {call.tool_call_id for call in _calls_of(request_context.messages)}
        parts: list[ModelResponsePart] = []
        calls = room = 0
        for part in response.parts:
            if not isinstance(part, ToolCallPart):
                if not (isinstance(part, TextPart) and _is_blank(part)):
                    parts.append(part)
                continue
            calls += 1
            if calls > CALLS_MAX:
                continue
            call = replace(
                cast("ToolCallPart[Any]", part),
                tool_name=name_of(part.tool_name),
                tool_call_id=_new_id(part.tool_call_id, known),
            )
            known.add(call.tool_call_id)
            room += size_of(call)
            if refusal := self._refusal(call, room):
                self._refusals[call.tool_call_id] = refusal
                call = without_arguments(call)
            parts.append(call)
        if calls > CALLS_MAX:
            last = max(i for i, part in enumerate(parts) if isinstance(part, ToolCallPart))
            kept = cast("ToolCallPart[Any]", parts[last])
            parts[last] = without_arguments(kept)
            self._refusals[kept.tool_call_id] = (
                f"one answer may have {CALLS_MAX} calls, and this had more: this one and those "
                "behind it were not run; call them in your next answer"
            )
        return replace(response, parts=parts)

    def _refusal(self, call: ToolCallPart[Any], size: int) -> str:
        """Why a call must not run; empty if it may. `size` includes the calls before it."""
        if size > ARGUMENTS_MAX_BYTES:
            return (
                f"the arguments of one answer's calls may have {ARGUMENTS_MAX_BYTES} bytes "
                f"together, and these had {size}: this call was not run; write less at once, in "
                "several calls"
            )
        return fault_of(call.args)


def readable(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Stored messages with calls as any provider accepts them: each id is there once, every call
    has a name, and none has arguments that `CheckCalls` refuses. Blank texts are left out, and
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
                call = _readable(part, known)
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
    """The call without its arguments, which cannot be kept."""
    return replace(call, args={_OMITTED: "these arguments were not kept"})


def _readable(part: ToolCallPart[Any], known: set[str]) -> ToolCallPart[Any]:
    call = replace(
        part,
        tool_name=name_of(part.tool_name),
        tool_call_id=_numbered(part.tool_call_id, known),
    )
    known.add(call.tool_call_id)
    if size_of(call) > ARGUMENTS_MAX_BYTES or fault_of(call.args):
        return without_arguments(call)
    return call


def _numbered(call_id: str, known: set[str]) -> str:
    """The id, with a number behind it if it is known: the same for the same history."""
    if _ID.fullmatch(call_id) and call_id not in known:
        return call_id
    numbered = base = _NO_NAME.sub("_", call_id)[:_ID_BEGINNING] or "call"
    number = 1
    while numbered in known:
        number += 1
        numbered = f"{base}-{number}"
    return numbered


def _new_id(call_id: str, known: set[str]) -> str:
    if _ID.fullmatch(call_id) and call_id not in known:
        return call_id
    return f"call-{uuid.uuid4().hex}"


def _calls_of(messages: Sequence[ModelMessage]) -> Iterable[ToolCallPart[Any]]:
    for message in messages:
        if isinstance(message, ModelResponse):
            yield from message.tool_calls

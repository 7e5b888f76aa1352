"""What a request asks for, read from the two forms in which clients send it."""

import json
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from wire.text import bounded_json
from wire.v1 import gateway_pb2 as pb

from runner.openai.errors import BadRequest

VALUES_MAX: Final = 50_000
OWN_MODEL: Final = "oxydra"
"""The model that stands for the agent with whichever model it is configured to ask."""

_IGNORED: Final = frozenset(
    """
    access_programs context_management frequency_penalty image include logit_bias
    max_completion_tokens max_output_tokens max_tokens max_tool_calls metadata moderation
    parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_options
    prompt_cache_retention reasoning reasoning_effort safety_identifier seed service_tier stop
    store temperature top_p truncation user verbosity web_search_options
    """.split()  # noqa: SIM905 - readable as prose
)
"""Fields that change nothing: the agent's own settings hold."""
_ONLY: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "text": ({"format": {"type": "text"}}, {}),
}
"""Fields of which only these values can be served; null always can."""
_NEVER: Final[Mapping[str, str]] = {
    "audio": "the agent answers in text",
    "functions": "send them as tools",
    "function_call": "send tool_choice",
    "prompt": "send the text itself as instructions or input",
}
_CHAT: Final = frozenset({"messages", "model", "stream", "stream_options", "tools"})
_RESPONSES: Final = frozenset(
    """
    background conversation input instructions model previous_response_id stream stream_options
    tools
    """.split()  # noqa: SIM905 - readable as prose
)
_KNOWN: Final = _IGNORED | frozenset(_ONLY) | frozenset(_NEVER)
_ECHOED: Final = frozenset({"reasoning", "item_reference", "mcp_call", "mcp_list_tools"})
"""Items of an earlier response that clients send back, and that the agent knows already."""
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
_IMAGES: Final = (
    "images and files reach the agent through its shared directory, not through this API"
)
_CALL_ID: Final = re.compile(r"call_([0-9a-f]{32})_([0-9]{1,9})")
_METADATA_MAX: Final = 16


@dataclass(frozen=True)
class Exchange:
    """What the user said, and what was answered."""

    asked: str
    answered: str = ""


@dataclass(frozen=True)
class CallRef:
    """A call of a client's tool: the turn that waits for it, and the event that asked for it."""

    turn_id: str
    index: int

    @property
    def call_id(self) -> str:
        """As the client sees it."""
        return f"call_{uuid.UUID(self.turn_id.removeprefix('turn-')).hex}_{self.index}"

    @classmethod
    def read(cls, param: str, call_id: str) -> "CallRef":
        """Raises `BadRequest` for an unknown id."""
        if (match := _CALL_ID.fullmatch(call_id)) is None:
            raise BadRequest(
                param,
                f"{call_id[:80]!r} is not a call of this agent",
                "send the id as it came with the call",
            )
        return cls(f"turn-{uuid.UUID(match[1])}", int(match[2]))


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        talk: The conversation as the client tells it, the question last.
        instructions: What the client's program tells the model.
        answer: Instead of a question: what the client's tool gave back for `call`.
        previous: The id of the response that this one follows.
        conversation: The session that this one belongs to.
        metadata: Of the client's own, handed back.
    """

    model: str
    talk: tuple[Exchange, ...] = ()
    instructions: str = ""
    call: CallRef | None = None
    answer: str = ""
    tools: tuple[pb.ToolDescription, ...] = ()
    told_tools: tuple[Mapping[str, Any], ...] = ()
    stream: bool = False
    with_usage: bool = False
    background: bool = False
    previous: str = ""
    conversation: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def question(self) -> str:
        return self.talk[-1].asked if self.talk else ""

    @property
    def agent_model(self) -> str:
        """As the gateway is asked for it."""
        return "" if self.model == OWN_MODEL else self.model


def json_object(body: bytes) -> Mapping[str, Any]:
    """The body of a request. Raises `BadRequest`."""
    try:
        sent = bounded_json(body, VALUES_MAX)
    except ValueError as error:
        raise BadRequest("body", f"it is not accepted as JSON: {str(error)[:200]}") from None
    if not isinstance(sent, dict):
        raise BadRequest("body", "it must be a JSON object")
    return sent


def chat_request(sent: Mapping[str, Any]) -> Asked:
    """Read a request for a chat completion. Raises `BadRequest`."""
    _check_fields(sent, _CHAT)
    messages = _list("messages", sent.get("messages"))
    reader = _Reader()
    for number, message in enumerate(messages):
        reader.message(f"messages[{number}]", message)
    options = _object("stream_options", sent.get("stream_options"))
    return reader.asked(
        "messages", sent, _tools(sent), with_usage=bool(options.get("include_usage"))
    )


def responses_request(sent: Mapping[str, Any]) -> Asked:
    """Read a request for a response. Raises `BadRequest`."""
    _check_fields(sent, _RESPONSES)
    reader = _Reader()
    if instructions := _string("instructions", sent.get("instructions")):
        reader.instructions.append(instructions)
    given = sent.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for number, item in enumerate(_list("input", items)):
        reader.item(f"input[{number}]", item)
    conversation = sent.get("conversation")
    if isinstance(conversation, Mapping):
        conversation = conversation.get("id")
    previous = _string("previous_response_id", sent.get("previous_response_id"))
    if previous and conversation:
        raise BadRequest("previous_response_id", "conversation is given too", "send one of them")
    background = _switch("background", sent.get("background"))
    if background and _switch("stream", sent.get("stream")):
        raise BadRequest("background", "a stream is asked for too", "send one of them")
    return reader.asked(
        "input",
        sent,
        _tools(sent),
        background=background,
        previous=previous,
        conversation=_string("conversation", conversation),
    )


class _Reader:
    """Reads a conversation, message by message."""

    def __init__(self) -> None:
        self.instructions: list[str] = []
        self._talk: list[Exchange] = []
        self._answers: list[tuple[str, str]] = []
        self._asks = False

    def message(self, param: str, sent: object) -> None:
        """A message of a chat, or one that is an item of a response's input."""
        message = _object(param, sent)
        role = message.get("role")
        if role in ("system", "developer"):
            self.instructions.append(_text(param, message.get("content")))
        elif role == "user":
            self._talk.append(Exchange(_text(param, message.get("content"))))
            self._answers, self._asks = [], True
        elif role == "assistant":
            self._answered(_text(param, message.get("content")))
        elif role == "tool":
            self._output(f"{param}.tool_call_id", message, "tool_call_id", "content")
        else:
            raise BadRequest(
                f"{param}.role",
                f"{str(role)[:40]!r} is not one of system, developer, user, assistant, tool",
            )

    def item(self, param: str, sent: object) -> None:
        """An item of a response's input."""
        item = _object(param, sent)
        kind = _string(f"{param}.type", item.get("type", "message"))
        if kind == "message":
            self.message(param, item)
        elif kind == "function_call":
            self._answered("")
        elif kind == "function_call_output":
            self._output(f"{param}.call_id", item, "call_id", "output")
        elif kind not in _ECHOED:
            raise BadRequest(
                f"{param}.type",
                f"{kind[:40]!r} is not one of message, function_call, function_call_output, "
                f"{', '.join(sorted(_ECHOED))}",
            )

    def asked(
        self,
        param: str,
        sent: Mapping[str, Any],
        tools: tuple[Mapping[str, Any], ...],
        **more: Any,
    ) -> Asked:
        call = answer = None
        if self._answers:
            call_id, answer = self._answers[-1]
            call = CallRef.read(param, call_id)
        elif not self._asks:
            raise BadRequest(param, "it must end with a message of the user or a tool's output")
        return Asked(
            model=_string("model", sent.get("model")) or OWN_MODEL,
            talk=tuple(self._talk),
            instructions="\n\n".join(filter(None, self.instructions)),
            call=call,
            answer=answer or "",
            tools=() if sent.get("tool_choice") == "none" else tuple(map(_described, tools)),
            told_tools=tools,
            stream=_switch("stream", sent.get("stream")),
            metadata=_metadata(sent.get("metadata")),
            **more,
        )

    def _answered(self, text: str) -> None:
        self._answers, self._asks = [], False
        if not self._talk:
            self._talk.append(Exchange(""))
        last = self._talk[-1]
        self._talk[-1] = Exchange(last.asked, last.answered + text)

    def _output(self, param: str, sent: Mapping[str, Any], name: str, content: str) -> None:
        self._answers.append((_string(param, sent.get(name)), _text(param, sent.get(content, ""))))
        self._asks = False


def _check_fields(sent: Mapping[str, Any], used: frozenset[str]) -> None:
    for name, value in sent.items():
        if name not in used and name not in _KNOWN:
            raise BadRequest(
                name[:80],
                "this field is not known",
                f"leave it out; known are {', '.join(sorted(used | _KNOWN))}",
            )
        if value is None or value in ([], {}):
            continue
        if name in _NEVER:
            raise BadRequest(name, _NEVER[name])
        if name in _ONLY and not _accepted(value, _ONLY[name]):
            accepted = ", ".join(json.dumps(each) for each in _ONLY[name])
            raise BadRequest(name, f"only {accepted} can be served")


def _accepted(value: Any, accepted: Iterable[Any]) -> bool:
    if isinstance(value, Mapping):  # of text, verbosity changes nothing
        value = {name: each for name, each in value.items() if name != "verbosity"}
    return any(value == each and type(value) is type(each) for each in accepted)


def _tools(sent: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The client's tools, in the flat form of responses."""
    tools = []
    for number, given in enumerate(_list("tools", sent.get("tools") or [])):
        param = f"tools[{number}]"
        tool = _object(param, given)
        if tool.get("type") != "function":
            raise BadRequest(
                f"{param}.type",
                f'{str(tool.get("type"))[:40]!r} is not "function"',
                "the agent has tools of its own for the rest",
            )
        flat = _object(param, tool["function"]) if "function" in tool else tool
        tools.append(
            {
                "type": "function",
                "name": _string(f"{param}.name", flat.get("name")),
                "description": _string(f"{param}.description", flat.get("description")),
                "parameters": _object(f"{param}.parameters", flat.get("parameters")),
                "strict": bool(flat.get("strict")),
            }
        )
    return tuple(tools)


def _described(tool: Mapping[str, Any]) -> pb.ToolDescription:
    return pb.ToolDescription(
        name=tool["name"],
        description=tool["description"],
        arguments_schema_json=json.dumps(tool["parameters"] or {"type": "object"}),
    )


def _text(param: str, content: object) -> str:
    """The text of a message's content, which is a string or a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(_list(f"{param}.content", content)):
        given = _object(f"{param}.content[{number}]", part)
        kind = _string(f"{param}.content[{number}].type", given.get("type"))
        if kind not in _TEXT_PARTS:
            raise BadRequest(
                f"{param}.content[{number}].type",
                f"{kind[:40]!r} cannot be shown to the agent",
                _IMAGES,
            )
        texts.append(_string(f"{param}.content[{number}]", given.get("text", given.get("refusal"))))
    return "\n".join(texts)


def _metadata(given: object) -> Mapping[str, str]:
    told = _object("metadata", given)
    if len(told) > _METADATA_MAX or not all(isinstance(each, str) for each in told.values()):
        raise BadRequest("metadata", f"it must be at most {_METADATA_MAX} strings by name")
    return dict(told)


def _object(param: str, given: object) -> Mapping[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadRequest(param, "it must be an object")
    return given


def _list(param: str, given: object) -> list[Any]:
    if not isinstance(given, list):
        raise BadRequest(param, "it must be a list")
    return given


def _string(param: str, given: object) -> str:
    if given is None:
        return ""
    if not isinstance(given, str):
        raise BadRequest(param, "it must be a string")
    return given


def _switch(param: str, given: object) -> bool:
    if given is None:
        return False
    if not isinstance(given, bool):
        raise BadRequest(param, "it must be true or false")
    return given

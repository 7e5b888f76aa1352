"""What a request asks for, read from the two forms in which clients send it, and errors as OpenAI's
API reports them."""

import base64
import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from wire.errors import Code, WireError, in_a_line
from wire.text import bounded_json
from wire.v1 import gateway_pb2 as pb

from runner.access.agents import NoAgent
from runner.access.exchange import STATUS_OF
from runner.client.attachments import place_of

_STATUS: Final = {**STATUS_OF, Code.TIMEOUT: 408, Code.FAILED_PRECONDITION: 400}
_TYPE: Final = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
}


class BadRequest(WireError):  # noqa: N818 - what clients call it
    """A request that cannot be served. `param` names the field."""

    def __init__(self, param: str, why: str, resolution: str = "") -> None:
        super().__init__(Code.INVALID_ARGUMENT, f"bad {param}: {why}", resolution=resolution)
        self.param = param


def status_of(error: WireError) -> int:
    """The HTTP status that says the same as `error`. Clients ask again after 503."""
    if isinstance(error, NoAgent):
        return 503
    return getattr(error, "status", 0) or _STATUS[error.code]


def body_of(error: WireError) -> dict[str, Any]:
    """`error` in the shape that the SDKs read. The message says all that an operator is told."""
    status = status_of(error)
    return {
        "error": {
            "message": in_a_line(error),
            "type": _TYPE.get(status, "invalid_request_error"),
            "param": error.param if isinstance(error, BadRequest) else None,
            "code": str(error.code),
        }
    }


VALUES_MAX: Final = 50_000
OWN_MODEL: Final = "oxydra"
"""The model that stands for the agent with whichever model it is configured to ask."""

_ONLY: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
}
"""Fields of which only these values can be served; null always can."""
_NEVER: Final[Mapping[str, str]] = {
    "audio": "the agent answers in text",
    "functions": "send them as tools",
    "function_call": "send tool_choice",
    "prompt": "send the text itself as instructions or input",
    **dict.fromkeys(
        "guided_json guided_regex guided_choice guided_grammar structured_outputs".split(),  # noqa: SIM905
        "send response_format with a json_schema",
    ),
}
"""Fields without which the answer would be another one. All other fields that are not named here
change nothing, because the agent's own settings hold."""
_ECHOED: Final = frozenset({"reasoning", "item_reference", "mcp_call", "mcp_list_tools"})
"""Items of an earlier response that clients send back, and that the agent knows already."""
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_ITEMS: Final = ("message", "function_call", "function_call_output")
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
_PICTURES: Final = frozenset({"image_url", "input_image"})
_FILES: Final = frozenset({"file", "input_file"})
_PLACE: Final = "/shared/pictures"
_PICTURES_MAX: Final = 16
_DATA: Final = re.compile(r"data:image/([a-z0-9]{1,20})[^,]{0,40};base64,", re.ASCII)
_ANY_DATA: Final = re.compile(r"(data:[^,]{0,100};base64,)?", re.ASCII)
_UNFETCHED: Final = "a picture at an address, which nothing is fetched from: send it as data"
_NOT_SHOWN: Final = "(Not shown to the model: "
_SAID_BEFORE: Final = re.compile(rf"\A(?:{re.escape(_NOT_SHOWN)}[^\n]*\)\n\n)+")
_ANY_OBJECT: Final = {"type": "object"}
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
        pictures: And other files of the question, by their paths: one sent again is one file.
        unshown: What else it came with, and cannot be shown to the model.
        form: How the answer must be; None: as the model likes.
        echoed: What of the request the response repeats.
        metadata: Of the client's own, handed back.
    """

    model: str
    talk: tuple[Exchange, ...] = ()
    instructions: str = ""
    call: CallRef | None = None
    answer: str = ""
    tools: tuple[pb.ToolDescription, ...] = ()
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    unshown: tuple[str, ...] = ()
    form: pb.AnswerForm | None = None
    echoed: Mapping[str, Any] = field(default_factory=dict)
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
    _check_fields(sent)
    messages = _list("messages", sent.get("messages"))
    reader = _Reader()
    for number, message in enumerate(messages):
        reader.message(f"messages[{number}]", message)
    options = _object("stream_options", sent.get("stream_options"))
    wanted = _object("response_format", sent.get("response_format"))
    inner = _object("response_format.json_schema", wanted.get("json_schema"))
    schema = _schema("response_format", wanted.get("type"), inner.get("schema"))
    return reader.asked("messages", sent, schema, with_usage=bool(options.get("include_usage")))


def responses_request(sent: Mapping[str, Any]) -> Asked:
    """Read a request for a response. Raises `BadRequest`."""
    _check_fields(sent)
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
    wanted = _object("text.format", _object("text", sent.get("text")).get("format"))
    return reader.asked(
        "input",
        sent,
        _schema("text.format", wanted.get("type"), wanted.get("schema")),
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
        self._pictures: dict[str, bytes] = {}
        self._unshown: list[str] = []
        self._asks = False

    def message(self, param: str, sent: object) -> None:
        """A message of a chat, or one that is an item of a response's input."""
        message = _object(param, sent)
        role = message.get("role")
        if role in ("system", "developer"):
            self.instructions.append(_text(param, message.get("content")))
        elif role == "user":
            self._pictures, self._unshown = {}, []
            text = self._content(param, message.get("content"))
            self._talk.append(Exchange(text or ("(a picture)" if self._pictures else "")))
            self._answers, self._asks = [], True
        elif role == "assistant":
            self._answered(_SAID_BEFORE.sub("", _text(param, message.get("content"))))
        elif role == "tool":
            self._output(f"{param}.tool_call_id", message, "tool_call_id", "content")
        else:
            raise _not_one_of(f"{param}.role", role, _ROLES)

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
            raise _not_one_of(f"{param}.type", kind, [*_ITEMS, *sorted(_ECHOED)])

    def asked(
        self,
        param: str,
        sent: Mapping[str, Any],
        schema: str,
        **more: Any,
    ) -> Asked:
        given = _tools(sent)
        tools, must_call = _chosen(sent, given)
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
            tools=tuple(map(_described, tools)),
            pictures=self._pictures,
            unshown=tuple(dict.fromkeys(self._unshown)),
            form=pb.AnswerForm(schema_json=schema, must_call=must_call)
            if schema or must_call
            else None,
            echoed={
                "tool_choice": sent.get("tool_choice") or "auto",
                "tools": list(given),
                "text": sent.get("text") or {"format": {"type": "text"}},
            },
            stream=_switch("stream", sent.get("stream")),
            metadata=_metadata(sent.get("metadata")),
            **more,
        )

    def _content(self, param: str, content: object) -> str:
        """The text of a user's message; what else is in it is noted."""
        if content is None or isinstance(content, str):
            return content or ""
        texts = []
        for number, given in enumerate(_list(f"{param}.content", content)):
            part = _object(f"{param}.content[{number}]", given)
            kind = _string(f"{param}.content[{number}].type", part.get("type"))
            if kind in _TEXT_PARTS:
                texts.append(_part_text(f"{param}.content[{number}]", part))
            elif kind in _PICTURES:
                url = part.get("image_url")
                url = url.get("url") if isinstance(url, Mapping) else url
                self._file(f"{param}.content[{number}]", url, "")
            elif kind in _FILES:
                file = _object(f"{param}.content[{number}].file", part.get("file", part))
                name = str(file.get("filename") or "file")
                self._file(f"{param}.content[{number}]", file.get("file_data"), name)
            else:
                self._unshown.append(f"a part of the type {kind[:40]!r}, which is not taken here")
        return "\n".join(texts)

    def _file(self, param: str, url: object, name: str) -> None:
        """A file that came as data, or a picture: that has no name."""
        match = (_ANY_DATA if name else _DATA).match(url) if isinstance(url, str) else None
        if match is None or not isinstance(url, str):
            self._unshown.append(_UNFETCHED if not name else "a file that is not sent as data")
        elif len(self._pictures) == _PICTURES_MAX:
            self._unshown.append(f"more than {_PICTURES_MAX} pictures and files of one message")
        else:
            try:
                data = base64.b64decode(url[match.end() :], validate=True)
            except ValueError:
                raise BadRequest(param, "its data is not base64") from None
            picture = f"{_PLACE}/{hashlib.sha256(data).hexdigest()[:16]}.{match[1]}"
            self._pictures[place_of(name, data) if name else picture] = data

    def _answered(self, text: str) -> None:
        self._answers, self._asks = [], False
        if not self._talk:
            self._talk.append(Exchange(""))
        last = self._talk[-1]
        self._talk[-1] = Exchange(last.asked, last.answered + text)

    def _output(self, param: str, sent: Mapping[str, Any], name: str, content: str) -> None:
        self._answers.append((_string(param, sent.get(name)), _text(param, sent.get(content, ""))))
        self._asks = False


def _not_one_of(param: str, given: object, accepted: Iterable[str]) -> BadRequest:
    return BadRequest(param, f"{str(given)[:40]!r} is not one of {', '.join(accepted)}")


def not_shown(what: Sequence[str]) -> str:
    """What an answer begins with where something is not shown to the model; a client that sends the
    answer back has not said it."""
    return f"{_NOT_SHOWN}{' '.join('; '.join(what).split())}.)\n\n" if what else ""


def _check_fields(sent: Mapping[str, Any]) -> None:
    for name, value in sent.items():
        if value is None or value in ([], {}):
            continue
        if name in _NEVER:
            raise BadRequest(name, _NEVER[name])
        if name in _ONLY and not any(value == each for each in _ONLY[name]):
            accepted = ", ".join(json.dumps(each) for each in _ONLY[name])
            raise BadRequest(name, f"only {accepted} can be served")


def _schema(param: str, kind: object, schema: object) -> str:
    """The JSON schema of the answer; empty: it may be any text."""
    if kind in (None, "text"):
        return ""
    if kind == "json_object":
        return json.dumps(_ANY_OBJECT)
    if kind == "json_schema":
        return json.dumps(_object(f"{param}.schema", schema) or _ANY_OBJECT)
    raise _not_one_of(f"{param}.type", kind, ("text", "json_object", "json_schema"))


def _chosen(
    sent: Mapping[str, Any], tools: tuple[Mapping[str, Any], ...]
) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    """The tools that the model may call, and of which it must call one; none: it need not."""
    choice = sent.get("tool_choice")
    given: Any = choice if isinstance(choice, Mapping) else {"type": choice or "auto"}
    kind = given.get("type")
    inner = given.get(kind) if isinstance(kind, str) else None
    given = inner if isinstance(inner, Mapping) else given  # of chats
    names = chosen = [tool["name"] for tool in tools]
    if kind == "function":
        chosen, kind = [given.get("name")], "required"
    elif kind == "allowed_tools":
        kind = given.get("mode", "auto")
        listed = [_object("tool_choice", e) for e in _list("tool_choice.tools", given.get("tools"))]
        chosen = [_object("tool_choice", e.get("function") or e).get("name") for e in listed]
        tools = tuple(tool for tool in tools if tool["name"] in chosen)
    if kind not in ("auto", "none", "required"):
        raise BadRequest(
            "tool_choice", "it is not one of auto, none, required, a function, allowed_tools"
        )
    if unknown := [each for each in chosen if each not in names]:
        raise BadRequest("tool_choice", f"{str(unknown[0])[:80]!r} is not one of tools")
    if kind == "required" and not chosen:
        raise BadRequest("tool_choice", "a call is required, and no tools are given")
    return (() if kind == "none" else tools), (chosen if kind == "required" else [])


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
    parts = [_object(f"{param}.content", each) for each in _list(f"{param}.content", content)]
    return "\n".join(
        _part_text(f"{param}.content[{number}]", part)
        for number, part in enumerate(parts)
        if part.get("type") in _TEXT_PARTS
    )


def _part_text(param: str, part: Mapping[str, Any]) -> str:
    return _string(param, part.get("text", part.get("refusal")))


def _metadata(given: object) -> Mapping[str, str]:
    told = _object("metadata", given)
    if len(told) > _METADATA_MAX or not all(isinstance(each, str) for each in told.values()):
        raise BadRequest("metadata", f"it must be at most {_METADATA_MAX} strings by name")
    return dict(told)


_Kind = TypeVar("_Kind")


def _typed(kind: type[_Kind], called: str, param: str, given: object) -> _Kind:
    """`given`, if it is of a kind; an empty one for None. Raises `BadRequest`."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise BadRequest(param, f"it must be {called}")
    return given


def _list(param: str, given: object) -> list[Any]:
    """As the others do, but None is none."""
    return _typed(list, "a list", param, "" if given is None else given)


_object: Final = partial(_typed, dict, "an object")
_string: Final = partial(_typed, str, "a string")
_switch: Final = partial(_typed, bool, "true or false")

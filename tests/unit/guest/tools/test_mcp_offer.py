"""Schemas after the shapes of a hundred public tools: what providers are shown of them, and that
every call that the full schema allows reaches the server as it was meant.

The rules are those that the three providers are known to refuse requests by.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, validators
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import ToolDefinition
from wire.settings import McpServerSettings
from wire.text import visible
from wire.tools import SESSION_META

from guest.agent.toolset import definition
from guest.errors import ToolError
from guest.tools.arguments import SchemaArguments, check
from guest.tools.base import Safety, ToolContext
from guest.tools.mcp import schema as foreign
from guest.tools.mcp.offer import ApprovedTools, offered, restored, safe_name
from guest.tools.mcp.schema import SchemaError, reduced
from guest.tools.mcp.server import McpServer

PUBLIC: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("public_tools.json").read_text(encoding="utf-8")
)
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII)
_FUNCTION = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}", re.ASCII)
_NOT_AT_THE_TOP = {"anyOf", "oneOf", "allOf", "enum", "not"}


def parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and all within it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
    for each in (*inner, schema.get("items"), schema.get("additionalProperties")):
        if isinstance(each, dict):
            yield from parts(each)


def common(tool: ToolDefinition) -> Iterator[str]:
    """What all three refuse."""
    schema = tool.parameters_json_schema
    if not _FUNCTION.fullmatch(tool.name):
        yield f"name {tool.name}"
    if schema.get("type") != "object" or _NOT_AT_THE_TOP & schema.keys():
        yield "schema must have type 'object' and no union at the top"
    for part in parts(schema):
        yield from (
            f"key {name}" for name in part.get("properties", ()) if not _KEY.fullmatch(name)
        )
        yield from (
            f"{word} is not permitted" for word in ("oneOf", "allOf", "$ref") if word in part
        )


def openai(tool: ToolDefinition) -> Iterator[str]:
    if len(tool.description or "") > 1024:
        yield "description: string too long"
    for part in parts(tool.parameters_json_schema):
        if part.get("type") == "array" and "items" not in part:
            yield "array schema missing items"
        if len({str(each) for each in part.get("enum", ())}) != len(part.get("enum", ())):
            yield "enum has duplicates"


def anthropic(tool: ToolDefinition) -> Iterator[str]:
    for error in Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(
        tool.parameters_json_schema
    ):
        yield f"must match JSON Schema draft 2020-12: {error.message}"
    for part in parts(tool.parameters_json_schema):
        if len(set(part.get("required", ()))) != len(part.get("required", ())):
            yield "required has duplicates"


def google(tool: ToolDefinition) -> Iterator[str]:
    for part in parts(tool.parameters_json_schema):
        kind = part.get("type")
        if isinstance(kind, list):
            yield f"Invalid value at 'type': {kind}"
        if "anyOf" in part and part.keys() - {"anyOf", "description"}:
            yield f"any_of must be the only field set: {part.keys()}"
        if part.get("format", "date-time") not in ("enum", "date-time"):
            yield "format: only 'enum' and 'date-time' are supported for STRING type"
        yield from (f"Unknown name {word}" for word in part if word.startswith("exclusive"))
        if "enum" in part and kind != "string":
            yield "enum: only allowed for STRING type"
        if not all(part.get("enum", ())):
            yield "enum: cannot be empty"
        if {"properties", "required"} & part.keys() and kind != "object":
            yield "properties: only allowed for OBJECT type"
        if kind == "array" and "items" not in part:
            yield "items: missing field"
        for name in part.get("required", ()):
            if name not in part.get("properties", ()):
                yield f"required[{name}]: property is not defined"


def models() -> Iterator[tuple[Callable[[ToolDefinition], Iterator[str]], Model]]:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from pydantic_ai.providers.google import GoogleProvider
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    yield openai, OpenAIChatModel("gpt-5", provider=OpenAIProvider(api_key="k"))
    served = OpenAICompatibleProvider("served", base_url="http://x/v1", api_key="k")
    yield google, OpenAIChatModel("gemini-3-flash", provider=served)
    yield anthropic, AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(api_key="k"))
    yield google, GoogleModel("gemini-3-flash", provider=GoogleProvider(api_key="k"))


PROGRAM = McpServerSettings(command="x")
CONTEXT = ToolContext(user_id="alice", session_id="", turn_id="", channel="cli")


class Listing(McpServer):
    """The server `s` with tools that it has listed, whose calls are noted instead of made."""

    def __init__(
        self, directory: Path, listed: list[types.Tool], settings: McpServerSettings = PROGRAM
    ) -> None:
        super().__init__("s", settings, ApprovedTools(directory / "mcp.json"))
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.meta: Any = None
        for _ in self._offer(listed).__await__():
            pass

    async def _call(
        self, asked: types.CallToolRequestParams, material: str
    ) -> types.CallToolResult:
        self.calls.append((asked.name, asked.arguments or {}))
        self.meta = asked.meta
        return types.CallToolResult(content=[])


def tools_of(directory: Path, *listed: dict[str, Any]) -> Listing:
    """A server with these tools."""
    found = [
        types.Tool(
            name=each["name"],
            description="What it does, at length. " * (4 if len(listed) > 9 else 80),
            input_schema=each["inputSchema"],
        )
        for each in listed
    ]
    return Listing(directory, found)


def test_no_provider_would_refuse_any_of_a_hundred_public_tools(tmp_path: Path) -> None:
    assert len(PUBLIC) >= 100
    server = tools_of(tmp_path, *PUBLIC[:100])
    assert not [*server.notices()][1:]
    assert len(server.tools) == 100
    definitions = [definition(tool) for tool in server.tools.values()]
    wrong = []
    for rules, model in models():
        parameters = ModelRequestParameters(function_tools=definitions)
        _, sent = model.prepare_request(None, parameters)
        assert len(sent.function_tools) == 100
        for tool in sent.function_tools:
            wrong += [(type(model).__name__, tool.name, each) for each in common(tool)]
            wrong += [(type(model).__name__, tool.name, each) for each in rules(tool)]
    assert not wrong


@pytest.mark.parametrize("listed", PUBLIC, ids=lambda listed: listed["name"])
async def test_what_the_full_schema_allows_reaches_the_server_as_it_was_meant(
    listed: dict[str, Any], tmp_path: Path
) -> None:
    full = listed["inputSchema"]
    server = tools_of(tmp_path, listed)
    (tool,) = server.tools.values()
    shown = tool.arguments.model_json_schema()
    validator = validators.validator_for(full, default=Draft202012Validator)
    for arguments in listed["allowed"]:
        validator(full).validate(arguments)
        for written in (arguments, as_shown(arguments, shown, full)):
            await tool.run(CONTEXT, check(tool, json.dumps(written), str))
            assert server.calls.pop() == (listed["name"], arguments)
        if "" not in arguments.values():
            Draft202012Validator(shown).validate(as_shown(arguments, shown, full))


def as_shown(value: Any, shown: dict[str, Any], full: dict[str, Any]) -> Any:
    """`value` with the names that a model sees."""
    _, changed = offered(reduced(full))
    names = {server: safe for safe, server in changed.items()}
    if isinstance(value, dict):
        return {names.get(k, k): as_shown(v, shown, full) for k, v in value.items()}
    return [as_shown(v, shown, full) for v in value] if isinstance(value, list) else value


def test_arguments_of_branches_are_all_there_and_those_required_that_all_require() -> None:
    attachment = next(each for each in PUBLIC if each["name"] == "notion-create-attachment")
    shown, _ = offered(reduced(attachment["inputSchema"]))
    assert shown["properties"].keys() == {"content", "name", "source_url", "source_file_id"}
    assert "required" not in shown
    receipt = next(each for each in PUBLIC if each["name"] == "vestige_receipt")
    shown, _ = offered(reduced(receipt["inputSchema"]))
    assert shown["required"] == ["action", "receipt_id"]
    assert shown["properties"]["action"] == {"type": "string", "enum": ["get", "replay"]}


@pytest.mark.parametrize(
    ("full", "allowed"),
    [
        ({"oneOf": [{"pattern": "^id"}, {"pattern": "^n"}]}, "id-1"),
        ({"patternProperties": {"^x-": {}}, "additionalProperties": False}, {"x-a": 1}),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1]),
        ({"allOf": [{"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}]}, 4),
        ({"$ref": "#/$defs/closed", "properties": {"b": {}}}, {"a": "x"}),
        ({"oneOf": [{"type": "integer"}, {"type": "number", "not": {"type": "integer"}}]}, 3),
        ({"$id": "x:y", "$ref": "#/$defs/closed", "$defs": {"closed": {}}}, {"a": 1}),
        ({"anyOf": [{"type": "string"}], "oneOf": [{"pattern": "a"}, {"pattern": "b"}]}, "a"),
    ],
)
def test_what_is_left_out_of_a_schema_refuses_nothing(full: dict[str, Any], allowed: Any) -> None:
    closed = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"v": full}, "$defs": {"closed": closed}}
    Draft202012Validator(schema).validate({"v": allowed})
    assert [*SchemaArguments.of(reduced(schema)).problems({"v": allowed})] == []


_VALUES = st.recursive(
    st.sampled_from(["id-1", "b", "", 1, 2.5, True, None]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "x-a", "c[d]"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_SCHEMAS = st.recursive(
    st.sampled_from(
        [
            *({"type": kind} for kind in ("string", "integer", "object", "array", "null")),
            {},
            {"pattern": "^id"},
            {"enum": ["b", 1, None]},
            {"const": True},
            {"type": ["string", "null"], "minLength": 1},
            {"multipleOf": 2},
        ]
    ),
    lambda inner: st.one_of(
        *(
            st.fixed_dictionaries({word: st.lists(inner, min_size=1, max_size=3)})
            for word in ("anyOf", "oneOf", "allOf", "prefixItems")
        ),
        st.fixed_dictionaries({"items": inner, "prefixItems": st.lists(inner, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries(
            {
                "properties": st.dictionaries(st.sampled_from(["a", "b", "c[d]"]), inner),
                "additionalProperties": st.booleans() | inner,
            },
            optional={
                "patternProperties": st.fixed_dictionaries({"^x-": inner}),
                "required": st.lists(st.sampled_from(["a", "x-a"]), unique=True),
                "type": st.just("object"),
                "anyOf": st.lists(inner, min_size=1, max_size=2),
                "allOf": st.lists(inner, min_size=1, max_size=2),
            },
        ),
    ),
    max_leaves=12,
)


@given(full=_SCHEMAS, value=st.dictionaries(st.sampled_from(["a", "b", "x-a", "c[d]"]), _VALUES))
def test_nothing_is_refused_that_the_full_schema_allows(full: Any, value: Any) -> None:
    try:
        schema = reduced(full)
    except SchemaError:
        return
    shown, names = offered(schema)
    assert [*common(ToolDefinition(name="t", parameters_json_schema=shown))] == []
    written = {
        next((safe for safe in shown["properties"] if names.get(safe) == key), key): item
        for key, item in value.items()
    }
    assert restored(written, [schema], names).keys() == value.keys()
    if Draft202012Validator(full).is_valid(value):
        assert [*SchemaArguments.of(schema).problems(value)] == []


def test_names_are_safe_and_each_is_another_one(tmp_path: Path) -> None:
    names = ["a.b", "a/b", "a_b", "名前", "x" * 128, "x" * 127, "find", "c.d", "c/d"]
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    server = tools_of(tmp_path, *listed)
    assert len(server.tools) == len(names)
    assert tools_of(tmp_path, *listed[::-1]).tools.keys() == server.tools.keys()
    assert {"s_a_b", "s_find"} <= server.tools.keys()
    assert all(_FUNCTION.fullmatch(name) for name in server.tools)
    assert safe_name("a.b", {"s_a_b"}, prefix="s_") == safe_name("a.b", {"s_a_b"}, prefix="s_")


def one(name: str) -> types.Tool:
    return types.Tool(name=name, input_schema={"type": "object"})


def test_a_tool_that_is_to_be_asked_for_is_asked_for_each_time(tmp_path: Path) -> None:
    settings = McpServerSettings(command="x", safety="read_only", approval="auto", ask=("al*",))
    tools = Listing(tmp_path, [one("allow"), one("look")], settings).tools
    assert [(each.safety, each.approval) for each in tools.values()] == [
        (Safety.PRIVILEGED, "ask"),
        (Safety.READ_ONLY, "auto"),
    ]


@pytest.mark.parametrize("settings", [PROGRAM, McpServerSettings(url="https://mcp.example")])
async def test_a_program_can_tell_conversations_apart_but_not_which_they_are(
    tmp_path: Path, settings: McpServerSettings
) -> None:
    server = Listing(tmp_path, [one("look")], settings)
    (tool,) = server.tools.values()
    told: list[str] = []
    for session in ("taxes", "taxes", "garden"):
        await tool.run(replace(CONTEXT, session_id=session), check(tool, "{}", str))
        told.append((server.meta or {}).get(SESSION_META, ""))
    if settings.url:
        assert told == ["", "", ""]
    else:
        assert told[0] == told[1] != told[2]
        assert not any("taxes" in each for each in told)


def test_a_mistake_is_told_with_names_that_the_model_can_find(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"$top": {"type": "integer"}}, "required": ["$top"]}
    (tool,) = tools_of(tmp_path, {"name": "t", "inputSchema": schema}).tools.values()
    shown = tool.arguments.model_json_schema()
    assert shown["properties"]["_top"]["description"] == "$top"
    assert [*openai(definition(tool)), *common(definition(tool))] == []
    with pytest.raises(ToolError, match=r"\$top"):
        check(tool, {"_top": "many"}, str)


@pytest.mark.parametrize(
    ("repeated", "more"),
    [
        ({"description": "a\u200b" * 10_000}, {}),
        ({"enum": [f"{number:400}" for number in range(200)]}, {}),
        ({"required": [*(f"{number:400}" for number in range(199)), "\u200b"]}, {}),
        ({}, {"anyOf": [{"required": ["p1"]} for _ in range(300)]}),
    ],
)
def test_what_is_looked_at_does_not_multiply(
    repeated: dict[str, Any], more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    for module, name, looking in ((json, "dumps", json.dumps), (foreign, "visible", visible)):

        def counted(value: Any, looking: Any = looking, **options: Any) -> Any:
            looked.append(len(value))
            return looking(value, **options)

        monkeypatch.setattr(module, name, counted)
    pointers = {f"p{number}": {"$ref": "#/$defs/r"} for number in range(300)}
    with suppress(SchemaError):
        offered(reduced({"properties": pointers, "$defs": {"r": repeated}, **more}))
    assert len(looked) < 5_000
    assert sum(looked) < 500_000


def test_schemas_made_to_grow_are_bounded(tmp_path: Path) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for number in range(20):
        deep = {"anyOf": [{"properties": {f"a{number}": deep}}, {"properties": {"b[]": deep}}]}
    many = [{"properties": {"a": {"minLength": n}}, "required": [f"r{n}"]} for n in range(300)]
    for schema in (deep, {"anyOf": many}, {"type": "object", "anyOf": [{"anyOf": many}]}):
        server = tools_of(tmp_path, {"name": "t", "inputSchema": schema})
        for tool in server.tools.values():
            assert len(json.dumps(tool.arguments.model_json_schema())) < 100_000


def test_a_tool_that_cannot_be_offered_is_left_out_alone(tmp_path: Path) -> None:
    bad = {"name": "bad", "inputSchema": {"type": "array"}}
    server = tools_of(tmp_path, bad, {"name": "good", "inputSchema": {"type": "object"}})
    assert [*server.tools] == ["s_good"]
    assert [*server.notices()][1:] == [
        "the MCP server s: bad is not offered: its arguments are no object"
    ]


def test_the_tools_of_all_servers_together_are_bounded() -> None:
    from guest.tools.mcp.server import McpServers

    class Offering(McpServer):
        def __init__(self, letter: str) -> None:
            self.tools = {f"{letter}{number}": None for number in range(266)}  # type: ignore[misc]

        def notices(self) -> Iterator[str]:
            return iter(())

    class Two(McpServers):
        def __init__(self) -> None:
            self._servers = [Offering("t"), Offering("u")]

    servers = Two()
    assert len(servers.tools()) == 512
    (notice,) = servers.notices()
    assert "u246, u247, u248, u249, u250 and 15 more are not offered" in notice

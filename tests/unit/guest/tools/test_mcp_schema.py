"""Schemas of foreign tools: what stays of them, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.errors import ToolError
from guest.tools.arguments import SchemaArguments, check
from guest.tools.base import Safety, Tool, ToolContext, ToolOutput
from guest.tools.mcp.schema import SCHEMA_MAX_CHARS, SchemaError, reduced


def of(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def test_what_is_cheap_to_check_stays_and_all_else_goes() -> None:
    kept = of(
        {
            "a": {"type": "string", "description": "of a", "enum": ["x", "y"], "maxLength": 9},
            "b": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None},
            "c": {"type": "array", "items": {"type": "object", "additionalProperties": False}},
        },
        required=["a"],
    )
    given = json.loads(json.dumps(kept))
    given["properties"]["a"] |= {"pattern": "^(a+)+$", "title": "A", "examples": ["x"]}
    given["properties"]["c"] |= {"uniqueItems": True, "contains": {"pattern": "x"}, "minItems": -1}
    given |= {"$schema": "http://example.org/", "patternProperties": {"(a+)+$": {}}, "not": {}}
    assert reduced(given) == kept


def test_references_within_the_schema_are_put_in_their_place() -> None:
    point = of({"x": {"type": "number"}})
    place = {"$ref": "#/$defs/a~1b", "description": "where", "type": "string"}
    given = of({"p": place}, **{"$defs": {"a/b": point}, "$schema": "http://x/draft-07/schema#"})
    assert reduced(given)["properties"] == {"p": {**point, "description": "where"}}
    tree = of({"below": {"$ref": "#"}, "far": {"$ref": "http://[::1]/x"}, "no": {"$ref": "#/a/b"}})
    once = reduced(tree)["properties"]
    assert (once["far"], once["no"], once["below"]["properties"]["below"]) == ({}, {}, {})


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([], "is not an object"),
        ({"type": "array"}, "no object"),
        (of({f"p{n}": {} for n in range(2000)}), "too large"),
        (of({"": {}}), "a name that cannot be shown"),
        (of({"a\x1b": {}}), "a name that cannot be shown"),
        (of({f"p{n}": {"enum": ["x" * 400]} for n in range(100)}), f"over {SCHEMA_MAX_CHARS}"),
    ],
)
def test_what_cannot_be_used_is_refused(given: Any, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        reduced(given)


def test_references_that_multiply_are_refused_at_once() -> None:
    doubled: dict[str, Any] = {"s0": {}}
    for number in range(200):
        doubled[f"s{number + 1}"] = {"allOf": [{"$ref": f"#/$defs/s{number}"}] * 2}
    with pytest.raises(SchemaError, match="too large"):
        reduced(of({"a": {"allOf": [doubled["s200"]] * 1100}}, **{"$defs": doubled}))


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("type", "properties", "items", "enum", "allOf", "$ref", "minimum", "default", "a")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(schema=_ANY, value=_ANY)
def test_whatever_comes_is_refused_or_can_be_checked(schema: Any, value: Any) -> None:
    try:
        found = reduced(schema)
    except SchemaError:
        return
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert reduced(found) == found
    list(SchemaArguments.of(found).problems({"a": value}))


class TestChecking:
    """Arguments are checked against the schema before the call."""

    tool = Tool(
        "server_tool",
        "",
        SchemaArguments.of(
            of({"text": {"type": "string"}, "n": {"type": "integer"}}, required=["text"])
        ),
        Safety.PRIVILEGED,
        1.0,
        run=lambda _, __: _nothing(_, __),
    )

    def test_what_the_schema_allows_passes_unchanged(self) -> None:
        given = {"text": "x", "n": 3, "model_dump": {"nested": [1.5, None]}}
        assert check(self.tool, given, str).model_dump() == given
        assert self.tool.arguments.telling == "text"

    def test_mistakes_are_told_redacted_and_bounded(self) -> None:
        wrong = {"n": "s3cret" + "x" * 5000}
        with pytest.raises(ToolError) as raised:
            check(self.tool, wrong, lambda text: text.replace("s3cret", "[redacted]"))
        said = str(raised.value)
        assert "arguments: 'text' is a required property" in said
        assert "n: '[redacted]xxx" in said
        assert "xxx…" in said
        assert len(said) < 700


async def _nothing(_: ToolContext, __: Any) -> ToolOutput:
    return ToolOutput({})

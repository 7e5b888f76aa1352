"""What an answer must be, and what of a schema can be checked."""

import json
from typing import Any

import pytest
from wire.v1 import gateway_pb2 as pb

from guest.agent import answer_form
from guest.agent.answer_form import AnswerForm, bare

BOAT = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "metres": {"type": "integer"}},
    "required": ["name", "metres"],
    "additionalProperties": False,
}


def form(schema: Any = None, *must_call: str) -> AnswerForm:
    text = "" if schema is None else json.dumps(schema)
    return AnswerForm.read(pb.AnswerForm(schema_json=text, must_call=must_call))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"name": "Nina", "metres": 9}', ""),
        ('```json\n{"name": "Nina", "metres": 9}\n```', ""),
        ('{"name": "Nina"}', "$: 'metres' is a required property"),
        ('{"name": "Nina", "metres": "9"}', "$.metres: '9' is not of type 'integer'"),
        ('{"name": "nina", "metres": 9}', "$.name: 'nina' does not match '^[A-Z]'"),
        ('{"name": "Nina", "metres": 9, "x": 1}', "$: Additional properties are not allowed"),
        ('Here: {"name": "Nina", "metres": 9}', "it is not JSON alone"),
        ("", "it is not JSON alone"),
        ("[" * 100_000, "it is not JSON alone"),
    ],
)
def test_a_text_is_json_that_the_schema_allows(text: str, fault: str) -> None:
    found = form(BOAT).fault(text, ())
    assert found.startswith(fault)
    assert bool(found) == bool(fault)


def test_a_call_comes_before_the_text_and_may_be_demanded() -> None:
    assert not form(BOAT).fault("Let me see.", ["memory_search"])
    demanded = form(None, "weather", "wind")
    assert not demanded.fault("", ["wind"])
    assert demanded.fault("sunny", ()) == "it is no call of weather or wind"
    assert demanded.fault("", ["memory_search"]) == "it is no call of weather or wind"
    assert not form()
    assert not form().fault("anything", ())


def test_references_within_a_schema_are_followed() -> None:
    tree = {
        "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
        "$ref": "#/$defs/tree",
    }
    assert not form(tree).fault("[[[]], []]", ())
    assert "is not of type 'array'" in form(tree).fault("[[[]], 5]", ())
    assert "names no definition" in form({"$ref": "#/$defs/none"}).fault("1", ())


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ([], "it is not a JSON object"),
        ({"type": "text"}, "'text' is not valid"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1/x"}}}, r"\$ref must name a definition"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "cannot be checked"),
        ({"patternProperties": {"a": {}}}, "patternProperties cannot be checked"),
    ],
)
def test_what_cannot_be_checked_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        form(schema)
    assert form({"properties": {"pattern": {"type": "string"}, "patternProperties": {}}})


def test_a_pattern_takes_no_longer_for_a_text_that_nearly_matches() -> None:
    """Python's own matcher would take years for this."""
    assert form({"pattern": "^(a+)+$"}).fault(json.dumps("a" * 60 + "!"), ())


_SLOW = "^(a+)+$"
_SLOW_NAMES = {"patternProperties": {_SLOW: True}}


@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": {"$schema": f"{draft}/schema", "pattern": _SLOW}}
        for draft in ("https://json-schema.org/draft/2020-12", "http://json-schema.org/draft-04")
    ]
    + [
        {"default": {"x": _SLOW_NAMES}, "$ref": "#/default/x"},
        {"const": {"x": _SLOW_NAMES}, "$ref": "#/%63onst/x"},
        {"properties": _SLOW_NAMES, "$ref": "#/properties"},
        {"properties": {"additionalProperties": False, **_SLOW_NAMES}, "$ref": "#/properties"},
        {"default": {"x": {"pattern": "(?=a)"}}, "additionalProperties": {"$ref": "#/default/x"}},
        {"multipleOf": 0.1},
    ],
)
def test_no_part_of_a_schema_is_checked_by_slower_means(schema: Any) -> None:
    """Python's own matcher would hold the whole agent for years."""
    slow = "a" * 60 + "!"
    value = 10**400 if "multipleOf" in schema else {slow: slow}
    assert form(schema).fault(json.dumps(value), ())


def test_references_that_multiply_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_form, "CHECK_S", 0.01)
    both = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$defs": {**both, "d60": {}}, "$ref": "#/$defs/d0"}
    assert form(schema).fault("1", ()) == "it takes too long to check"


def test_a_fence_is_taken_off() -> None:
    assert bare(' ```json\n{"a": "```"}\n``` ') == '{"a": "```"}'
    assert bare(' {"a": 1}\n') == '{"a": 1}'

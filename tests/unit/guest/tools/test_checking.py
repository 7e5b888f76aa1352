"""Bad arguments come back as sentences that name field, value and what is accepted."""

from typing import Any

import pytest
import tool_snapshot

from guest.errors import ToolError
from guest.tools.arguments import check

TOOLS = {tool.name: tool for tool in tool_snapshot.all_tools()}


def refusal(name: str, arguments: Any) -> str:
    with pytest.raises(ToolError) as raised:
        check(TOOLS[name], arguments, lambda text: text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("memory_search", {}, "query is required: text of 1 to 2000 characters"),
        (
            "memory_search",
            {"query": "x", "top_k": 21},
            "top_k: got 21; accepted is a whole number from 1 to 20",
        ),
        (
            "memory_search",
            {"query": "x", "top_k": "5"},
            "top_k: got '5'; accepted is a whole number from 1 to 20",
        ),
        (
            "memory_search",
            {"query": "x", "include_conversation": "yes"},
            "include_conversation: got 'yes'; accepted is true or false",
        ),
        (
            "memory_save",
            {"content": " \n"},
            "content: got ' \\n'; accepted is not blank, text of 1 to 16000 characters",
        ),
        (
            "memory_save",
            {"content": "x", "tags": ["t" * 65]},
            f"tags.0: got {'t' * 60!r}… (65 characters); accepted is a list of at most 16, "
            "each text of 1 to 64 characters",
        ),
        (
            "memory_save",
            {"content": "x", "tags": "t"},
            "tags: got 't'; accepted is a list of at most 16, each text of 1 to 64 characters",
        ),
        (
            "memory_save",
            {"contents": "x", "content": "x"},
            "unknown field 'contents': did you mean content? accepted fields are content, tags",
        ),
        (
            "scratch_note",
            {},
            "mode is required: one of replace, append, clear, read",
        ),
        (
            "write_memory",
            {"key": "A", "content": "x"},
            "key: got 'A'; accepted is text of the form [a-z0-9][a-z0-9._-]{0,63}",
        ),
        (
            "search_memory",
            {"query": "x", "limit": 1.5},
            "limit: got 1.5; accepted is a whole number",
        ),
        (
            "remember",
            {"content": "x", "confidence": "high"},
            "confidence: got 'high'; accepted is a number",
        ),
        ("memory_save", "[1]", "arguments must be a JSON object with the fields content, tags"),
        ("memory_save", {"content": "a\0b"}, "content: must not hold NUL characters"),
        (
            "memory_save",
            '{"content": "\\ud800"}',
            "content: must be valid Unicode, without lone surrogates",
        ),
        (
            "memory_save",
            {"content": "x", "tags": ["\ud800"]},
            "tags.0: must be valid Unicode, without lone surrogates",
        ),
    ],
)
def test_one_sentence_says_it(name: str, arguments: Any, sentence: str) -> None:
    assert refusal(name, arguments) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            {f"k{number}": "x" for number in range(100_000)},
            "; you gave 'k0', 'k1', 'k2', 'k3', 'k4', and",
        ),
        ({"content": "x", "tags": ["\0"] * 100_000}, "tags.4: "),
    ],
)
def test_of_very_many_mistakes_a_few_are_told(arguments: Any, sentence: str) -> None:
    """A sentence for each would be longer than the arguments, and take seconds to write."""
    message = refusal("memory_save", arguments)
    assert sentence in message
    assert len(message) < 1000


@pytest.mark.parametrize("text", ["{", "nul", '{"query": }', "[" * 100_000, "{'query': 1}"])
def test_broken_json_is_one_short_sentence(text: str) -> None:
    message = refusal("memory_search", text)
    assert message.startswith("arguments are not valid JSON: ")
    assert len(message) < 200


@pytest.mark.parametrize("depth", [33, 200, 700, 900, 5000])
@pytest.mark.parametrize("brackets", ["[]", ('{"a":', "}")])
def test_deeply_nested_arguments_are_refused(depth: int, brackets: tuple[str, str]) -> None:
    begin, end = brackets
    deep = begin * depth + ("1" if end == "}" else "") + end * depth
    message = refusal("memory_search", f'{{"query": {deep}}}')
    assert "nested deeper than 32 levels" in message or "not valid JSON" in message
    assert len(message) < 200


def test_values_that_json_does_not_know_are_refused() -> None:
    assert "not valid JSON" in refusal("memory_search", {"query": object()})


def test_every_wrong_field_has_its_sentence() -> None:
    lines = refusal("memory_search", {"query": "", "top_k": 0, "limit": 3}).split(". ")
    assert len(lines) == 3


def test_the_value_seen_is_redacted() -> None:
    with pytest.raises(ToolError) as raised:
        check(
            TOOLS["memory_search"],
            {"query": "x", "top_k": "hunter2-secret"},
            lambda text: text.replace("hunter2-secret", "[redacted]"),
        )
    assert "hunter2" not in str(raised.value)


def test_empty_text_means_no_arguments() -> None:
    assert refusal("memory_search", "  ").startswith("query is required")


def test_bounds_are_inclusive() -> None:
    checked = check(TOOLS["memory_save"], {"content": "x" * 16_000, "tags": []}, str)
    assert len(checked.model_dump()["content"]) == 16_000
    assert "16001 characters" in refusal("memory_save", {"content": "x" * 16_001})


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory_update", {"note_id": "n", "content": "x", "version": 0}),
        ("memory_save", {"content": "x" * 16_001}),
        ("memory_save", {"content": ["x", "y"]}),
        ("memory_save", {"content": None}),
        ("file_write", {"path": "/shared/a", "content": "x", "mode": "append"}),
        ("file_edit", {"path": "/shared/a", "old": "x", "text": "y"}),
        ("memory_delete", {"note_id": "n", "force": True}),
        ("scratch_note", {"mode": "erase"}),
    ],
)
def test_what_is_stored_is_never_changed(name: str, arguments: Any) -> None:
    with pytest.raises(ToolError):
        check(TOOLS[name], arguments, str, [])


@pytest.mark.parametrize(
    ("name", "arguments", "meant"),
    [
        ("shell_exec", {"command": "ls", "timeout_s": "0.5", "cwd": "."}, {"timeout_s": 1.0}),
        ("shell_exec", {"command": "ls", "timeout_s": "none", "cwd": ""}, {"cwd": "/shared"}),
        ("file_list", '"{\\"path\\": \\"a\\"}"', {"path": "/shared/a"}),
        ("file_list", {"path": "tmp", "depth": "-3"}, {"path": "/tmp", "depth": 1}),
        ("scratch_note", {"mode": "Append", "content": 7}, {"mode": "append", "content": "7"}),
        ("memory_save", {"content": "x", "tags": '["a", "b"]'}, {"tags": ["a", "b"]}),
        ("memory_save", {"content": "x", "tags": "a, b"}, {"tags": ["a, b"]}),
        ("memory_save", {"content": "null"}, {"content": "null"}),
        ("recall", {"min_confidence": "1.5", "limit": 1e3}, {"min_confidence": 1, "limit": 50}),
    ],
)
def test_what_a_model_clearly_means_is_taken(
    name: str, arguments: Any, meant: dict[str, Any]
) -> None:
    taken = check(TOOLS[name], arguments, str, []).model_dump()
    assert {field: taken[field] for field in meant} == meant
    with pytest.raises(ToolError):
        check(TOOLS[name], {**meant, "unknown": 1}, str)

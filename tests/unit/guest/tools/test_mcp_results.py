"""What a server answers, and which of its tools are approved."""

from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from guest.errors import ToolError
from guest.tools.mcp.offer import ApprovedTools, digest
from guest.tools.mcp.server import output


def answer(*parts: dict[str, Any], **more: Any) -> types.CallToolResult:
    return types.CallToolResult.model_validate({"content": list(parts), **more})


def test_texts_are_joined_and_what_is_no_text_is_named() -> None:
    shown = output(
        answer(
            {"type": "text", "text": "one\x1b[2J\u202e"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "two"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b", "description": "a book"},
            {"type": "resource", "resource": {"uri": "u:c", "blob": "AAAA", "mimeType": "a/zip"}},
            {"type": "resource", "resource": {"uri": "u:d", "blob": "AAAB", "mimeType": "image/x"}},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
            {"type": "image", "mimeType": "image/png", "data": "A"},
        ),
        "mcp: s_t",
    )
    said = "one\\x1b[2J\\u202e\ntwo\n[link: b · a book · file:///b]\n[resource: u:c]"
    assert shown.data == {"content": said}
    assert shown.notes == (
        "a part of type a/zip with 3 bytes is not shown",
        "a part of type audio/wav with 3 bytes is not shown",
    )
    assert shown.pictures == (b"\0\0\0", b"\0\0\1", b"")
    assert shown.material == ("mcp: s_t",)


def test_structured_content_stands_for_a_missing_text() -> None:
    assert output(answer(structuredContent={"a": 1}), "m").data == {"content": '{"a": 1}'}
    both = answer({"type": "text", "text": "said"}, structuredContent={"a": 1})
    assert output(both, "m").data == {"content": "said"}


def test_a_failed_call_is_an_error_that_quotes_material() -> None:
    with pytest.raises(ToolError, match=r"an error: no\\u202e$") as raised:
        output(answer({"type": "text", "text": "no\u202e"}, isError=True), "m")
    assert raised.value.material == ("m",)


def test_too_much_is_cut() -> None:
    many = answer(*[{"type": "text", "text": "x" * 10_000}] * 300)
    shown = output(many, "m")
    assert len(shown.data["content"]) == 200_000
    assert shown.notes == (
        "only the first 200 of 300 parts are shown",
        "only its first 200000 characters",
    )


FIRST = {"a": digest("a"), "b": digest("b")}


class TestApprovedTools:
    def test_what_a_server_had_first_is_approved(self, tmp_path: Path) -> None:
        approved = ApprovedTools(tmp_path / "mcp.json")
        assert not approved.changed("s", FIRST, "")
        later = {"b": digest("other"), "a": digest("a"), "c": digest("c")}
        again = ApprovedTools(tmp_path / "mcp.json")
        assert again.changed("s", later, "") == {"b", "c"}
        assert again.changed("s", later, "") == {"b", "c"}
        assert not again.changed("other", later, "")
        assert not again.changed("s", {"a": digest("a")}, "")
        assert again.changed("s", later, "") == {"b", "c"}
        assert (tmp_path / "mcp.json").stat().st_mode & 0o777 == 0o600

    def test_a_list_that_the_operator_names_is_approved_and_no_other(self, tmp_path: Path) -> None:
        approved = ApprovedTools(tmp_path / "mcp.json")
        assert approved.changed("s", FIRST, "0" * 16) == {"a", "b"}
        assert not approved.changed("s", FIRST, digest(FIRST))
        assert approved.changed("s", {"a": "x"}, digest(FIRST)) == {"a"}

    @pytest.mark.parametrize("content", ["", "[]", "no JSON", '{"s": '])
    def test_a_damaged_file_approves_nothing_that_it_held(
        self, tmp_path: Path, content: str
    ) -> None:
        file = tmp_path / "mcp.json"
        file.write_text(content)
        assert ApprovedTools(file).changed("s", FIRST, "0" * 16) == {"a", "b"}

"""What the gateway accepts, at and beyond every bound."""

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
from wire.errors import Code
from wire.limits import NOTE_MAX_CHARS, QUERY_MAX_CHARS, SEQUENCE_MAX, TAGS_MAX, TURN_TEXT_MAX_CHARS

from guest.errors import GuestError
from guest.gateway import validation
from guest.memory.models import NOTE_TYPES, Origin


@pytest.mark.parametrize("value", ["a", "A-b_c.9", "x" * 64])
def test_identifiers(value: str) -> None:
    assert validation.identifier("session_id", value) == value


def test_an_optional_identifier_may_be_empty() -> None:
    assert validation.identifier("turn_id", "", optional=True) == ""


@pytest.mark.parametrize(
    ("check", "argument", "field"),
    [
        *(
            (lambda v: validation.identifier("session_id", v), value, "session_id")
            for value in ["", "a b", "ä", "../x", "a\n", "x" * 65, "a\0", "x" * 100_000]
        ),
        (validation.turn_text, " \n", "text"),
        (validation.turn_text, "x" * (TURN_TEXT_MAX_CHARS + 1), "text"),
        (validation.turn_text, "a\0b", "text"),
        (validation.note_text, "x" * (NOTE_MAX_CHARS + 1), "text"),
        (validation.query, "", "query"),
        (validation.query, "x" * (QUERY_MAX_CHARS + 1), "query"),
        (validation.tags, ["x"] * (TAGS_MAX + 1), "tags"),
        (validation.tags, ["x" * 65], "tags"),
        (validation.tags, [" "], "tags"),
        (validation.title, "x" * 201, "title"),
        (validation.tag, "x" * 65, "tag"),
        (validation.tag, " ", "tag"),
        (validation.actor, "robot", "actor"),
        (validation.note_type, "Fact", "type"),
        (validation.link, "x" * (validation.LINK_MAX_CHARS + 1), "link"),
        (validation.link, "a\nb", "link"),
        (validation.link, "a\0b", "link"),
        (validation.cursor, "x" * (validation.CURSOR_MAX_CHARS + 1), "cursor"),
        (lambda v: validation.version("expected_version", v), SEQUENCE_MAX + 1, "expected_version"),
        (lambda v: validation.limit(v, default=5), 1001, "limit"),
        (lambda v: validation.limit(v, default=5, maximum=20, field="top_k"), 21, "top_k"),
    ],
)
def test_what_is_beyond_a_bound_is_refused(
    check: Callable[[Any], Any], argument: Any, field: str
) -> None:
    with pytest.raises(GuestError) as raised:
        check(argument)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.brief.startswith(f"bad {field}: ")
    assert len(raised.value.brief) < 200


def test_what_is_at_a_bound_is_accepted() -> None:
    assert len(validation.turn_text("x" * TURN_TEXT_MAX_CHARS)) == TURN_TEXT_MAX_CHARS
    assert len(validation.tags(["x" * 64] * TAGS_MAX)) == TAGS_MAX
    assert validation.limit(1000, default=5) == 1000
    assert validation.limit(0, default=5) == 5
    assert validation.version("expected_version", SEQUENCE_MAX) == SEQUENCE_MAX
    assert len(validation.link("x" * validation.LINK_MAX_CHARS)) == validation.LINK_MAX_CHARS
    assert [validation.note_type(kind) for kind in NOTE_TYPES] == list(NOTE_TYPES)


def test_what_need_not_be_said_may_be_empty() -> None:
    for check in (
        validation.tag,
        validation.actor,
        validation.note_type,
        validation.link,
        validation.cursor,
    ):
        assert check("") == ""
    assert validation.version("expected_version", 0) is None


def test_who_may_have_written_a_note_is_what_an_origin_can_say() -> None:
    assert get_args(get_type_hints(Origin)["actor"]) == validation.ACTORS

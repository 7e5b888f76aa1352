"""What the gateway accepts, at and beyond every bound."""

from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import pytest
from wire.errors import Code
from wire.limits import (
    NOTE_MAX_CHARS,
    QUERY_MAX_CHARS,
    SEQUENCE_MAX,
    TAGS_MAX,
    TURN_TEXT_MAX_CHARS,
)

from guest.errors import GuestError
from guest.gateway import bounds
from guest.memory.types import NOTE_TYPES, Origin


@pytest.mark.parametrize("value", ["a", "A-b_c.9", "x" * 64])
def test_identifiers(value: str) -> None:
    assert bounds.identifier("session_id", value) == value


def test_an_optional_identifier_may_be_empty() -> None:
    assert bounds.identifier("turn_id", "", optional=True) == ""


@pytest.mark.parametrize(
    ("check", "argument", "field"),
    [
        *(
            (lambda v: bounds.identifier("session_id", v), value, "session_id")
            for value in ["", "a b", "ä", "../x", "a\n", "x" * 65, "a\0", "x" * 100_000]
        ),
        (bounds.turn_text, " \n", "text"),
        (bounds.turn_text, "x" * (TURN_TEXT_MAX_CHARS + 1), "text"),
        (bounds.turn_text, "a\0b", "text"),
        (bounds.note_text, "x" * (NOTE_MAX_CHARS + 1), "text"),
        (bounds.query, "", "query"),
        (bounds.query, "x" * (QUERY_MAX_CHARS + 1), "query"),
        (bounds.tags, ["x"] * (TAGS_MAX + 1), "tags"),
        (bounds.tags, ["x" * 65], "tags"),
        (bounds.tags, [" "], "tags"),
        (bounds.title, "x" * 201, "title"),
        (bounds.tag, "x" * 65, "tag"),
        (bounds.tag, " ", "tag"),
        (bounds.actor, "robot", "actor"),
        (bounds.note_type, "Fact", "type"),
        (bounds.link, "x" * (bounds.LINK_MAX_CHARS + 1), "link"),
        (bounds.link, "a\nb", "link"),
        (bounds.link, "a\0b", "link"),
        (bounds.cursor, "x" * (bounds.CURSOR_MAX_CHARS + 1), "cursor"),
        (lambda v: bounds.version("expected_version", v), SEQUENCE_MAX + 1, "expected_version"),
        (lambda v: bounds.limit(v, default=5), 1001, "limit"),
        (lambda v: bounds.limit(v, default=5, maximum=20, field="top_k"), 21, "top_k"),
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
    assert len(bounds.turn_text("x" * TURN_TEXT_MAX_CHARS)) == TURN_TEXT_MAX_CHARS
    assert len(bounds.tags(["x" * 64] * TAGS_MAX)) == TAGS_MAX
    assert bounds.limit(1000, default=5) == 1000
    assert bounds.limit(0, default=5) == 5
    assert bounds.version("expected_version", SEQUENCE_MAX) == SEQUENCE_MAX
    assert len(bounds.link("x" * bounds.LINK_MAX_CHARS)) == bounds.LINK_MAX_CHARS
    assert [bounds.note_type(kind) for kind in NOTE_TYPES] == list(NOTE_TYPES)


def test_what_need_not_be_said_may_be_empty() -> None:
    for check in (bounds.tag, bounds.actor, bounds.note_type, bounds.link, bounds.cursor):
        assert check("") == ""
    assert bounds.version("expected_version", 0) is None


def test_who_may_have_written_a_note_is_what_an_origin_can_say() -> None:
    assert get_args(get_type_hints(Origin)["actor"]) == bounds.ACTORS

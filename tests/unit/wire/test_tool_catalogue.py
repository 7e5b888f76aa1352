"""Which tools are offered: families, tools by name, and what counts more."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.tools import FAMILIES, NAMES, OFF_BY_DEFAULT, TOOLS, offered

TYPED = set(FAMILIES["typed_memory"])
DEFAULT = set(TOOLS) - OFF_BY_DEFAULT

lists = st.lists(st.sampled_from(sorted(NAMES)), max_size=6)


def test_a_tool_belongs_to_one_family_and_no_family_is_called_like_a_tool() -> None:
    pairs = itertools.combinations(FAMILIES.values(), 2)
    assert not [first for first, second in pairs if set(first) & set(second)]
    assert not set(FAMILIES) & set(TOOLS)
    assert len(set(TOOLS)) == len(TOOLS)
    assert set(TOOLS) >= OFF_BY_DEFAULT


def test_what_is_on_where_nobody_says_anything() -> None:
    assert offered((), ()) == DEFAULT
    assert offered((), ()) & set(FAMILIES["working_memory"]) == {
        "write_session_handoff",
        "scratch_note",
    }
    assert set(FAMILIES["memory"]) - offered((), ()) == {"memory_context"}


@pytest.mark.parametrize(
    ("enabled", "disabled", "on"),
    [
        (["typed_memory"], [], DEFAULT | TYPED),
        (["recall"], [], DEFAULT | {"recall"}),
        (["typed_memory"], ["forget"], DEFAULT | TYPED - {"forget"}),
        (["recall"], ["typed_memory"], DEFAULT | {"recall"}),
        (["typed_memory"], ["typed_memory"], DEFAULT),
        (["recall"], ["recall"], DEFAULT),
        ([], ["memory"], DEFAULT - set(FAMILIES["memory"])),
        (["memory_context"], ["memory"], DEFAULT - set(FAMILIES["memory"]) | {"memory_context"}),
        (["memory"], [], DEFAULT | {"memory_context"}),
        (["shell_exec"], ["shell"], DEFAULT),
        ([], list(FAMILIES), set()),
        (list(FAMILIES), [], set(TOOLS)),
    ],
)
def test_who_counts_more(enabled: list[str], disabled: list[str], on: set[str]) -> None:
    assert offered(enabled, disabled) == on


@given(lists, lists)
def test_a_tools_own_name_has_the_last_word(enabled: list[str], disabled: list[str]) -> None:
    on = offered(enabled, disabled)
    assert on <= set(TOOLS)
    assert not on & set(disabled)
    assert on >= (set(TOOLS) & set(enabled)) - set(disabled)

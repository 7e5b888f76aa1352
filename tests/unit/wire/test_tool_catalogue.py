"""Which tools are offered: families, tools by name, and what counts more."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.tools import FAMILIES, NAMES, TOOLS, offered

ALL = set(TOOLS)
TYPED = set(FAMILIES["typed_memory"])

lists = st.lists(st.sampled_from(sorted(NAMES)), max_size=6)


def test_a_tool_belongs_to_one_family_and_no_family_is_called_like_a_tool() -> None:
    pairs = itertools.combinations(FAMILIES.values(), 2)
    assert not [first for first, second in pairs if set(first) & set(second)]
    assert not set(FAMILIES) & set(TOOLS)
    assert len(set(TOOLS)) == len(TOOLS)


@pytest.mark.parametrize(
    ("enabled", "disabled", "on"),
    [
        ([], [], ALL),
        (["typed_memory"], ["forget"], ALL - {"forget"}),
        ([], ["typed_memory"], ALL - TYPED),
        (["recall"], ["typed_memory"], ALL - TYPED | {"recall"}),
        (["typed_memory"], ["typed_memory"], ALL - TYPED),
        (["recall"], ["recall"], ALL - {"recall"}),
        (["shell_exec"], ["shell"], ALL - {"shell_output", "shell_stop"}),
        ([], list(FAMILIES), set()),
        (list(FAMILIES), [], ALL),
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

"""Tests that share a running host are run by one worker."""

import pytest

SEEN: list[int] = []


@pytest.mark.xdist_group("seen")
@pytest.mark.parametrize("number", range(4))
def test_a_group_is_not_torn(number: int) -> None:
    SEEN.append(number)
    assert list(range(number + 1)) == SEEN

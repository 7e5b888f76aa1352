"""A household per test."""

from collections.abc import Iterator

import pytest

from tests.support.commands.household import Household


@pytest.fixture
def household() -> Iterator[Household]:
    made = Household()
    yield made
    made.remove()

"""One machine for all that is looked at in it."""

from collections.abc import Iterator

import pytest

from tests.support.accounts import home as homes
from tests.support.accounts.machine import Machine


@pytest.fixture(scope="session")
def home() -> Iterator[homes.Home]:
    with Machine() as machine:
        yield homes.begin(machine)

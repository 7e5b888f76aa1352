"""What the tests of other programs' clients share."""

from collections.abc import Iterator

import pytest

from tests.support.commands.household import Household


@pytest.fixture(scope="module")
def house() -> Iterator[Household]:
    """An agent whose commands a person has to allow."""
    made = Household()
    made.environment |= {"OXYDRA_EMBEDDER__BACKEND": "none", "OXYDRA_TOOLS__APPROVAL": "ask"}
    made.works("start", "--detach")
    yield made
    made.run("stop")
    made.remove()

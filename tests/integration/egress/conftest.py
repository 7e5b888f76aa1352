"""A running egress program and an outside for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.egress.origins import Certificates
from tests.support.egress.program import Egress, running


@pytest.fixture
async def egress(tmp_path: Path) -> AsyncIterator[Egress]:
    async with running(tmp_path) as made:
        yield made


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)

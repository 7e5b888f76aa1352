import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.boundary.probed_guest import ProbedGuest


@pytest.fixture
def guest() -> Iterator[ProbedGuest]:
    """Under a short path, because sockets live there."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pw-"))
    yield ProbedGuest(directory)
    shutil.rmtree(directory)

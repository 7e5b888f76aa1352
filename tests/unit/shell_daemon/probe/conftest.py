import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.probe_world import Guest


@pytest.fixture
def guest() -> Iterator[Guest]:
    """Under a short path, because sockets live there."""
    directory = Path(tempfile.mkdtemp(dir="/tmp", prefix="pw-"))
    yield Guest(directory)
    shutil.rmtree(directory)

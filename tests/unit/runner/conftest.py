"""Workspaces of these tests have sockets, the path of which has 107 bytes at most."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.scratch import SCRATCH


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short path, which pytest's own is not where it has made many."""
    with tempfile.TemporaryDirectory(prefix="ox", dir=SCRATCH) as place:
        yield Path(place)

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.guests.embedders import EmbedderProcess
from tests.support.scratch import SCRATCH


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(dir=SCRATCH, prefix="oxe-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def embedder(short_dir: Path) -> Iterator[EmbedderProcess]:
    process = EmbedderProcess(short_dir)
    yield process
    process.close()

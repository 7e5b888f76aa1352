"""A fake gateway under a path short enough for a socket."""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.runner.cli.fake_gateway import FakeGateway


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    directory = Path(tempfile.mkdtemp(dir="/tmp"))
    fake = FakeGateway(f"unix:{directory}/g.sock")  # type: ignore[abstract]
    await fake.start()
    yield fake
    await fake.stop()
    shutil.rmtree(directory)

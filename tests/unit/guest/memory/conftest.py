"""A memory for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from tests.support.memory.store import FakeEmbedder, opened


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db", FakeEmbedder()) as memory:
        yield memory

"""The tools of memory for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.tools.memory_tools import Tools, all_tools


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Tools]:
    async with all_tools(tmp_path / "memory.db") as opened:
        yield opened

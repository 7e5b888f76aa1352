"""The program that `test_import_crash.py` kills: it imports parts of a file, one by one."""

import asyncio
import os
from pathlib import Path

from tests.support.memory.store import opened

USER_ID = "alice"


def run(path: str, parts: list[bytes], descriptor: int) -> None:
    """Import until killed, and write a line after each part that was acknowledged."""
    asyncio.run(_run(Path(path), parts, descriptor))


async def _run(path: Path, parts: list[bytes], descriptor: int) -> None:
    async with opened(path) as memory:
        importer = memory.importer()
        os.write(descriptor, b'{"did": "open"}\n')
        for part in parts:
            report = await importer.feed(part)
            assert report.problems == [], report.problems
            os.write(descriptor, b'{"did": "import"}\n')

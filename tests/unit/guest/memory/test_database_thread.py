"""What the thread of a database does after its caller has gone."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from guest.memory.storage.local import on_thread


async def test_a_failure_after_the_caller_was_cancelled_is_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What the loop shows of it is a traceback, with the engine's words."""
    begun, go = threading.Event(), threading.Event()

    def fail() -> None:
        begun.set()
        go.wait(5)
        raise ValueError("UNIQUE constraint failed: notes.key")

    with ThreadPoolExecutor(1) as executor:
        calling = asyncio.create_task(on_thread(executor, fail, Path("memory.db")))
        await asyncio.to_thread(begun.wait, 5)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        go.set()
        await on_thread(executor, lambda: None, Path("memory.db"))
    del calling
    await asyncio.sleep(0)
    gc.collect()
    assert not [each for each in caplog.records if each.name == "asyncio"]

"""Thirty writers in two guests of one memory: every version that an update reports holds that
update's own text, and nobody overwrites what they have not seen."""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import RemoteConfig, StaleVersion
from tests.support.memory.store import ORIGIN, HashingEmbedder, opened
from tests.support.servers.sqld import running

WRITERS = 15


async def write(memory: Memory, note_id: str, name: str, chance: random.Random) -> dict[int, str]:
    """Update the note three times, each time what was read; the versions reported."""
    reported: dict[int, str] = {}
    while len(reported) < 3:
        before = await memory.notes.get(note_id)
        await asyncio.sleep(chance.random() / 50)
        text = f"{name} wrote {len(reported)} after version {before.version}"
        try:
            updated = await memory.update(
                note_id, text, None, ORIGIN, expected_version=before.version
            )
            note = updated.note
        except StaleVersion:
            continue
        assert note.text == text
        assert note.version == before.version + 1
        reported[note.version] = text
    return reported


@pytest.mark.sqld
@pytest.mark.parametrize("seed", [0, 1])
async def test_no_update_is_lost_unseen(tmp_path: Path, seed: int) -> None:
    async with AsyncExitStack() as stack:
        for place in ("one", "other"):
            (tmp_path / place).mkdir()
        remote = RemoteConfig(stack.enter_context(running()).url(), one_user=True)
        one, other = [
            await stack.enter_async_context(
                opened(tmp_path / place / "memory.db", HashingEmbedder(), remote=remote)
            )
            for place in ("one", "other")
        ]
        note_id = (await one.save(f"the first text {seed}", (), ORIGIN)).note.note_id
        async with asyncio.timeout(240):
            told = await asyncio.gather(
                *(
                    write(memory, note_id, f"{number} in {place}", random.Random(seed + number))
                    for place, memory in enumerate((one, other))
                    for number in range(WRITERS)
                )
            )
        reported = {version: text for each in told for version, text in each.items()}
        assert sorted(reported) == list(range(2, 2 + 3 * 2 * WRITERS))
        changes, _ = await one.history.changes(note_id=note_id, limit=1000)
        assert {each.version: each.text for each in changes if each.version > 1} == reported

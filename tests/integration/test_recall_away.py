"""While the memory server is away, notes are recalled from the copy, by the same rules."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Details, Origin, RemoteConfig
from tests.support.memory.store import ORIGIN, FakeEmbedder, until
from tests.support.servers.sqld import SOON_S, Sqld, running
from tests.support.settings import memory_config

pytestmark = pytest.mark.sqld

ALICE = "alice"
PAGE = Origin("agent", session_id="s1", link="/shared/page.md", material=True)


@pytest.fixture
def server() -> Iterator[Sqld]:
    with running() as started:
        yield started


@pytest.fixture
async def memory(server: Sqld, tmp_path: Path) -> AsyncIterator[Memory]:
    config = memory_config(
        tmp_path / "memory.db",
        remote=RemoteConfig(server.url(), first_wait_s=SOON_S, one_user=True),
    )
    memory = await Memory.open(config, FakeEmbedder(), ALICE)
    try:
        yield memory
    finally:
        await memory.close()


async def recalled(memory: Memory, **how: Any) -> list[str]:
    outcome = await memory.typed.recall(**how)
    assert outcome.warnings[0].startswith("the memory server cannot be reached (")
    assert outcome.warnings[0].endswith(" ago")
    assert len(outcome.warnings) == 1
    return [note.text for note in outcome.notes]


async def test_notes_are_recalled_from_the_copy(memory: Memory, server: Sqld) -> None:
    risk = Details("risk", 0.4, "because")
    await memory.save("tea is a risk", (), PAGE, risk)
    old = (await memory.save("tea at four", (), ORIGIN)).note
    await memory.save("tea for one", (), ORIGIN, Details(scope_session="s1"))
    await memory.keyed.write("scratchpad", "tea, too", "replace", ORIGIN)
    await memory.typed.supersede(old.note_id, reason="late")
    found = await memory.typed.recall(query="tea")
    assert found.warnings == ()
    await memory.typed.count(found.notes)
    before = await memory.notes.get(old.note_id)
    server.kill()
    with pytest.raises(StorageError):
        await memory.list(1)
    for query in ("", "tea"):
        assert await recalled(memory, query=query) == ["tea is a risk"]
        assert await recalled(memory, query=query, types=("fact",)) == []
        assert await recalled(memory, query=query, min_confidence=0.5) == []
        in_session = await recalled(memory, query=query, session_id="s1")
        assert set(in_session) == {"tea is a risk", "tea for one"}
        everything = await recalled(memory, query=query, include_superseded=True)
        assert set(everything) == {"tea is a risk", "tea at four"}
    (note,) = (await memory.typed.recall()).notes
    await memory.typed.count([note])
    assert (note.details, note.origin) == (risk, PAGE)
    for change in (
        lambda: memory.typed.supersede(note.note_id),
        lambda: memory.history.undo(note.note_id, may_forget=True),
        lambda: memory.history.changes(),
        lambda: memory.review(),
    ):
        with pytest.raises(StorageError, match="cannot be reached"):
            await change()
    server.start()
    await until(lambda: memory.store.state == "ready")
    assert await memory.notes.get(old.note_id) == before
    assert (await memory.notes.get(note.note_id)).access_count == 1

"""Two guests of one user on one server, in any order: no lost update and no ghost."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, NoteNotFound, RemoteConfig
from tests.support.sqld import running
from tests.unit.memory_support import ORIGIN, FakeEmbedder

pytestmark = pytest.mark.sqld

ALICE = "alice"
STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(("save", "update", "delete", "search")),
        st.integers(0, 3),
    ),
    min_size=3,
    max_size=15,
)


async def run(steps: list[tuple[int, str, int]], url: str, scratch: Path) -> None:
    guests = []
    for name in ("a", "b"):
        (scratch / name).mkdir()
        config = MemoryConfig(db_path=str(scratch / name / "memory.db"), remote=RemoteConfig(url))
        guests.append(await Memory.open(config, FakeEmbedder(), ALICE))
    try:
        for memory in guests:
            for note in (await memory.list(ALICE, 100))[0]:
                await memory.delete(ALICE, note.note_id)
        model: dict[str, str] = {}
        for number, (who, action, which) in enumerate(steps):
            memory, ids = guests[who], sorted(model)
            note_id = ids[which % len(ids)] if ids else "note-of-nobody"
            text = f"word fact{number} by {who}"
            match action:
                case "save":
                    saved = await memory.save(ALICE, text, [], ORIGIN)
                    assert not {hit.note_id for hit in saved.similar} - set(model)
                    model[saved.note.note_id] = text
                case "update" if ids:
                    await memory.update(ALICE, note_id, text, None, ORIGIN)
                    model[note_id] = text
                case "delete" if ids:
                    await memory.delete(ALICE, note_id)
                    del model[note_id]
                case "update" | "delete":
                    with pytest.raises(NoteNotFound):
                        await memory.get(ALICE, note_id)
            for searching in guests if action == "search" else [guests[1 - who]]:
                outcome = await searching.search(ALICE, "word", top_k=20)
                assert {hit.note_id: hit.text for hit in outcome.hits} == model
                assert not [warning for warning in outcome.warnings if "server" in warning]
    finally:
        for memory in guests:
            await memory.close()


def test_both_see_the_same_after_every_step() -> None:
    with running() as server:

        @settings(
            max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), database=None
        )
        @given(STEPS)
        def check(steps: list[tuple[int, str, int]]) -> None:
            with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
                asyncio.run(run(steps, server.url(), Path(scratch)))

        check()

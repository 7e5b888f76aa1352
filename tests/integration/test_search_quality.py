"""Nobody makes search worse unseen: floors a little under what `make bench-quality` prints."""

from pathlib import Path

import pytest

from bench.quality.measure import measure, scopes
from bench.quality.model import InProcess
from bench.quality.prompt import prompted

FLOORS = {
    "notes": (0.86, 0.91, 0.79),
    "conversation": (0.65, 0.75, 0.57),
    "both": (0.66, 0.76, 0.55),
}
"""Of the hybrid search, over all kinds of questions: recall@5, recall@10, reciprocal rank."""

PROMPTED_FLOOR = 0.84
"""The share of answers that memory brings into a prompt by itself."""
IDLE_NOTES_MAX = 2.0
"""How many notes it brings in for small talk, on average."""


@pytest.mark.long
@pytest.mark.model
@pytest.mark.timeout(600)
async def test_search_finds_what_it_found(tmp_path: Path) -> None:
    embedder = await InProcess.load()
    small = {name: part for name, part in scopes("development").items() if name in FLOORS}
    table = await measure(tmp_path / "memory.db", embedder, small)
    brought = await prompted(tmp_path / "memory.db", embedder)
    await embedder.close()
    for scope, floors in FLOORS.items():
        overall = table[scope]["hybrid"]["all"]
        reached = (overall.recall_5, overall.recall_10, overall.reciprocal_rank)
        assert all(map(float.__ge__, reached, floors)), (scope, reached)
        keyword = table[scope]["hybrid"]["keyword"]
        assert keyword.recall_5 >= 0.99, (scope, keyword)
    assert brought.recall >= PROMPTED_FLOOR, brought
    assert brought.idle_notes <= IDLE_NOTES_MAX, brought

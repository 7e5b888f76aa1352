"""A search waits once for an embedder that is still loading, and says so once."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wire.errors import Code

from guest.embedding.backends import Embedded
from guest.errors import EmbedderError
from guest.memory.models import MemoryTimeouts
from tests.support.memory.store import ORIGIN, FakeEmbedder, away, opened, until

BRIEFLY = MemoryTimeouts(loading_s=0.3)


class LoadingEmbedder(FakeEmbedder):
    """Loads until told otherwise; `states` counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.loading = True
        self.states = 0

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:
        if self.loading:
            raise EmbedderError(Code.UNAVAILABLE, EmbedderError.LOADING)
        return await super().embed(texts, timeout=timeout)

    async def state(self) -> str:
        self.states += 1
        return "loading" if self.loading else await super().state()


class Told(list[str]):
    async def __call__(self, sentence: str) -> None:
        self.append(sentence)


async def test_the_first_search_waits_until_the_model_is_there(path: Path) -> None:
    embedder, told = LoadingEmbedder(), Told()
    async with opened(path, embedder, patience=MemoryTimeouts(loading_s=60)) as memory:
        waiting = asyncio.create_task(memory.wait_while_loading(told))
        await until(lambda: bool(told))
        searching = asyncio.create_task(memory.search("tea"))
        await asyncio.sleep(0.05)
        assert not searching.done()
        embedder.loading = False
        assert (await searching).all_warnings == ()
        await waiting


async def test_nobody_waits_twice_and_the_wait_is_told_once(path: Path) -> None:
    embedder, told = LoadingEmbedder(), Told()
    async with opened(path, embedder, patience=BRIEFLY) as memory:
        began = time.monotonic()
        await memory.wait_while_loading(told)
        assert time.monotonic() - began >= BRIEFLY.loading_s
        asked = embedder.states
        found = await memory.search("tea")
        await memory.wait_while_loading(told)
        assert embedder.states == asked
    assert told == [
        "the embedding model is still loading: the first search waits up to 0.3 s for it, and "
        "goes by words until it is there"
    ]
    assert found.warnings == ()
    assert EmbedderError.LOADING in found.passing


async def test_only_what_is_expected_soon_is_waited_for(path: Path, tmp_path: Path) -> None:
    gone = FakeEmbedder()
    for number, embedder in enumerate((None, FakeEmbedder(), gone)):
        told = Told()
        settings: dict[str, Any] = {"patience": MemoryTimeouts(loading_s=60, starting_s=0)}
        gone.error = away()
        async with opened(tmp_path / f"{number}.db", embedder, **settings) as memory:
            await memory.wait_while_loading(told)
            found = await memory.search("tea")
        assert told == []
        assert found.passing == ""
        assert bool(found.warnings) == (embedder is gone)


async def test_a_process_that_cannot_be_reached_yet_counts_as_loading_until_it_answers(
    path: Path,
) -> None:
    embedder = FakeEmbedder()
    embedder.error = away()
    async with opened(path, embedder, patience=MemoryTimeouts(loading_s=0)) as memory:
        saved = await memory.save("green tea", [], ORIGIN)
        assert (saved.searchable, saved.uncompared) == ("keyword", False)
        assert EmbedderError.LOADING in (await memory.search("tea")).passing
        embedder.error = None
        assert EmbedderError.LOADING not in (await memory.search("tea")).passing
        embedder.error = away()
        assert EmbedderError.UNREACHABLE in (await memory.search("tea")).warnings[0]

"""Filling a real memory with the corpus and asking it everything."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final, Literal
from unittest import mock

import numpy as np
import numpy.typing as npt
from wire.settings import MemorySettings

from bench.quality.corpus import KINDS, TODAY, Entry, Part, Question, conversations, notes
from guest.embedding.backends import Embedded, Embedder
from guest.memory import models
from guest.memory.factory import open_store
from guest.memory.memory import Memory
from guest.memory.models import Hit, MemoryConfig, Origin

Vector = npt.NDArray[np.float32]
Way = Literal["keyword only", "vectors only", "hybrid"]
Scope = Literal["notes", "conversation", "both"]
SCOPES: Final[tuple[Scope, ...]] = ("notes", "conversation", "both")

_WAYS: Final[dict[Way, tuple[float, float]]] = {
    "keyword only": (0.0, 1.0),
    "vectors only": (1.0, 0.0),
    "hybrid": (MemorySettings().vector_weight, MemorySettings().keyword_weight),
}
"""With the weights of meaning and of words; keyword only is asked without an embedder."""

_TOP_K: Final = 20
_BATCH: Final = 32
_EMBED_TIMEOUT_S: Final = 300.0


@dataclass(frozen=True)
class Figures:
    """Means over `questions`: the share of the answers among the first 5 and 10
    results, and one divided by the place of the first answer."""

    questions: int
    recall_5: float
    recall_10: float
    reciprocal_rank: float


Table = dict[Scope, dict[Way, dict[str, Figures]]]
"""Figures by kind of question, and "all"."""


class _Clock:
    """Replaces `datetime` in the modules of memory that ask for the time."""

    def __init__(self) -> None:
        self.moment = TODAY

    def now(self, _: tzinfo) -> datetime:
        return self.moment


class _Remembering:
    """An embedder that is asked only once for every text, and for many at once."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._model_id = ""
        self._known: dict[str, Vector] = {}

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:  # noqa: ARG002
        unknown = sorted(set(texts) - self._known.keys(), key=len)
        for start in range(0, len(unknown), _BATCH):
            batch = unknown[start : start + _BATCH]
            answer = await self._embedder.embed(batch, timeout=_EMBED_TIMEOUT_S)
            self._model_id = answer.model_id
            self._known.update(zip(batch, answer.vectors, strict=True))
        return Embedded(self._model_id, np.stack([self._known[text] for text in texts]))

    async def state(self) -> str:
        return await self._embedder.state()

    async def close(self) -> None:
        pass


async def measure(path: Path, embedder: Embedder) -> Table:
    """All figures, with a database made at `path`."""
    about_notes, about_talks = notes(), conversations()
    everything = Part(
        [*about_notes.entries, *about_talks.entries],
        [*about_notes.questions, *about_talks.questions],
    )
    parts: dict[Scope, Part] = {
        "notes": about_notes,
        "conversation": about_talks,
        "both": everything,
    }
    table: Table = {scope: {} for scope in SCOPES}
    with _stopped_clock() as clock:
        await _fill(path, parts, clock)
        remembering = _Remembering(embedder)
        await remembering.embed([q.text for q in everything.questions], timeout=_EMBED_TIMEOUT_S)
        for way, (semantic, keyword) in _WAYS.items():
            config = MemoryConfig(
                str(path), MemorySettings(vector_weight=semantic, keyword_weight=keyword)
            )
            with_vectors = None if way == "keyword only" else remembering
            store = await open_store(config, with_vectors)
            for scope, part in parts.items():
                memory = Memory(store, scope)
                if with_vectors:
                    await _until_embedded(memory)
                table[scope][way] = await _ask(memory, scope, part)
            await store.close()
    return table


async def _fill(path: Path, parts: dict[Scope, Part], clock: _Clock) -> None:
    """Each scope is a user of its own; nothing is embedded yet."""
    store = await open_store(MemoryConfig(db_path=str(path)), None)
    for scope, part in parts.items():
        memory = Memory(store, scope)
        for entry in part.entries:
            clock.moment = entry.written
            if entry.role:
                await _say(memory, entry)
            else:
                await memory.save(entry.text, (), Origin("user"))
    clock.moment = TODAY
    await store.close()


async def _say(memory: Memory, entry: Entry) -> None:
    name, number = entry.name.split("/")
    session_id = f"{memory.user_id}-{name}"
    await memory.conversations.create(session_id)
    await memory.conversations.append(
        session_id, turn_id=number, role=entry.role, text=entry.text, payload="[]"
    )


async def _until_embedded(memory: Memory) -> None:
    async with asyncio.timeout(_EMBED_TIMEOUT_S):
        while True:
            counts = await memory.statistics()
            if counts.embedding_model and counts.passages_embedded == counts.passages:
                return
            await asyncio.sleep(0.02)


async def _ask(memory: Memory, scope: Scope, part: Part) -> dict[str, Figures]:
    names = await names_of(memory, part)
    results = []
    for question in part.questions:
        found = await memory.search(
            question.text, top_k=_TOP_K, include_conversation=scope != "notes"
        )
        ranks = [names[_key(hit)] for hit in found.results]
        results.append((question, ranks))
    figures = {"all": _figures(results)}
    for kind in KINDS:
        figures[kind] = _figures([result for result in results if result[0].kind == kind])
    return figures


async def names_of(memory: Memory, part: Part) -> dict[str, str]:
    """The name of each entry, by what identifies its hits."""
    noted, _ = await memory.list(1000)
    ids = {note.text: note.note_id for note in noted}
    return {_moment(e.written) if e.role else ids[e.text]: e.name for e in part.entries}


def _key(hit: Hit) -> str:
    return hit.note_id or hit.created_at


def _figures(results: Sequence[tuple[Question, Sequence[str]]]) -> Figures:
    def recall(k: int) -> float:
        shares = (len(q.answers.intersection(found[:k])) / len(q.answers) for q, found in results)
        return sum(shares) / len(results)

    def reciprocal(question: Question, found: Sequence[str]) -> float:
        places = (i for i, name in enumerate(found, 1) if name in question.answers)
        return 1 / next(places, float("inf"))

    mean_reciprocal = sum(reciprocal(*result) for result in results) / len(results)
    return Figures(len(results), recall(5), recall(10), mean_reciprocal)


@contextmanager
def _stopped_clock() -> Iterator[_Clock]:
    clock = _Clock()
    with mock.patch.object(models, "datetime", clock):
        yield clock


def _moment(written: datetime) -> str:
    clock = _Clock()
    clock.moment = written
    with mock.patch.object(models, "datetime", clock):
        return models.now()

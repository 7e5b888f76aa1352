"""Filling a real memory with the corpus and asking it everything."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final, Literal
from unittest import mock

import numpy as np
import numpy.typing as npt
from wire.settings import MemorySettings

from bench.quality.corpus import (
    TODAY,
    Entry,
    Half,
    Part,
    Question,
    chats,
    conversations,
    kinds_of,
    notes,
    with_languages,
)
from guest.embedding.backends import Embedded, Embedder
from guest.memory import models
from guest.memory.factory import open_store
from guest.memory.memory import LIST_MAX, Memory
from guest.memory.models import Hit, MemoryConfig, Origin

Vector = npt.NDArray[np.float32]
Way = Literal["keyword only", "vectors only", "hybrid"]

_WAYS: Final[dict[Way, tuple[float, float]]] = {
    "keyword only": (0.0, 1.0),
    "vectors only": (1.0, 0.0),
    "hybrid": (MemorySettings().vector_weight, MemorySettings().keyword_weight),
}
"""With the weights of meaning and of words; keyword only is asked without an embedder."""

_TOP_K: Final = 20
_BATCH: Final = 32
_EMBED_TIMEOUT_S: Final = 3600.0
"""A larger model takes many minutes for all that is asked of one memory."""


@dataclass(frozen=True)
class Figures:
    """Means over `questions`: the share of the answers among the first 5 and 10
    results, and one divided by the place of the first answer."""

    questions: int
    recall_5: float
    recall_10: float
    reciprocal_rank: float


Table = dict[str, dict[Way, dict[str, Figures]]]
"""Figures by scope, and by kind of question and "all"."""

Result = tuple[Question, Sequence[str]]
"""A question, and the names of what was found."""
Results = Sequence[Result]
Answers = dict[str, dict[Way, Results]]
"""Results by scope."""


def scopes(half: Half) -> dict[str, Part]:
    """What is asked of one memory each: notes in other languages, the chats of a half, and the same
    where each turn was saved as a note; with the first half also the small sets."""
    long = chats(half)
    parts = {
        "languages": with_languages(half),
        "chats": long,
        "chat-notes": long.as_notes(),
    }
    if half == "test":
        return parts
    about_notes, about_talks = notes(), conversations()
    everything = Part(
        [*about_notes.entries, *about_talks.entries],
        [*about_notes.questions, *about_talks.questions],
    )
    return {"notes": about_notes, "conversation": about_talks, "both": everything, **parts}


class _Clock:
    """Replaces `datetime` in the modules of memory that ask for the time."""

    def __init__(self) -> None:
        self.moment = TODAY

    def now(self, _: tzinfo) -> datetime:
        return self.moment


class _Remembering:
    """An embedder that is asked only once for every text, and for many at once; with a `cache`,
    also of earlier runs."""

    def __init__(self, embedder: Embedder, cache: Path | None) -> None:
        self._embedder = embedder
        self._cache = cache
        self._model_id = ""
        self._known: dict[str, Vector] = {}
        if cache is not None and cache.exists():
            with np.load(cache) as kept:
                self._model_id = str(kept["model"])
                self._known = dict(zip(kept["texts"].tolist(), kept["vectors"], strict=True))

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
        if self._cache is not None:
            np.savez(
                self._cache,
                model=self._model_id,
                texts=np.array(list(self._known)),
                vectors=np.stack(list(self._known.values())),
            )


async def measure(path: Path, embedder: Embedder, parts: Mapping[str, Part]) -> Table:
    """All figures of `parts`, by scope, with a database made at `path`."""
    found = await answers(path, embedder, parts)
    return {
        scope: {way: figures_by_kind(results) for way, results in ways.items()}
        for scope, ways in found.items()
    }


async def answers(
    path: Path,
    embedder: Embedder,
    parts: Mapping[str, Part],
    *,
    ways: Sequence[Way] = tuple(_WAYS),
    cache: Path | None = None,
) -> Answers:
    """What is found for all questions of `parts`, with a database made at `path`. Vectors are kept
    in `cache`."""
    table: Answers = {scope: {} for scope in parts}
    with _stopped_clock() as clock:
        await _fill(path, parts, clock)
        remembering = _Remembering(embedder, cache)
        asked = [question.text for part in parts.values() for question in part.questions]
        await remembering.embed(asked, timeout=_EMBED_TIMEOUT_S)
        for way in ways:
            semantic, keyword = _WAYS[way]
            config = MemoryConfig(
                str(path), MemorySettings(vector_weight=semantic, keyword_weight=keyword)
            )
            with_vectors = None if way == "keyword only" else remembering
            store = await open_store(config, with_vectors)
            for scope, part in parts.items():
                memory = Memory(store, scope)
                if with_vectors:
                    await _until_embedded(memory)
                table[scope][way] = await _ask(memory, part)
            await store.close()
        await remembering.close()
    return table


async def _fill(path: Path, parts: Mapping[str, Part], clock: _Clock) -> None:
    """Each scope is a user of its own; nothing is embedded yet."""
    store = await open_store(MemoryConfig(db_path=str(path)), None)
    for scope, part in parts.items():
        memory = Memory(store, scope)
        for entry in part.entries:
            clock.moment = entry.written
            if entry.role:
                await _say(memory, entry)
            else:
                await memory.save(
                    entry.text, (), Origin("user", session_id=_session(memory, entry))
                )
    clock.moment = TODAY
    await store.close()


async def _say(memory: Memory, entry: Entry) -> None:
    session_id = _session(memory, entry)
    await memory.conversations.create(session_id)
    await memory.conversations.append(
        session_id, turn_id=entry.name, role=entry.role, text=entry.text, payload="[]"
    )


def _session(memory: Memory, entry: Entry) -> str:
    return entry.session and f"{memory.user_id}-{entry.session}"


async def _until_embedded(memory: Memory) -> None:
    async with asyncio.timeout(_EMBED_TIMEOUT_S):
        while True:
            counts = await memory.statistics()
            if counts.embedding_model and counts.passages_embedded == counts.passages:
                return
            await asyncio.sleep(0.02)


async def _ask(memory: Memory, part: Part) -> Results:
    names = await names_of(memory, part)
    spoken = any(entry.role for entry in part.entries)
    results = []
    for question in part.questions:
        found = await memory.search(question.text, top_k=_TOP_K, include_conversation=spoken)
        ranks = [names[_key(hit)] for hit in found.results]
        results.append((question, ranks))
    return results


def figures_by_kind(results: Results) -> dict[str, Figures]:
    """The figures of each kind of question, in the order of `kinds_of`, and of all."""
    by_kind = {
        kind: _figures([result for result in results if result[0].kind == kind])
        for kind in kinds_of(question for question, _ in results)
    }
    return {**by_kind, "all": _figures(results)}


async def names_of(memory: Memory, part: Part) -> dict[str, str]:
    """The name of each entry, by what identifies its hits."""
    ids: dict[str, str] = {}
    cursor = ""
    while True:
        noted, cursor = await memory.list(LIST_MAX, cursor)
        ids |= {note.text: note.note_id for note in noted}
        if not cursor:
            break
    return {_moment(e.written) if e.role else ids[e.text]: e.name for e in part.entries}


def _key(hit: Hit) -> str:
    return hit.note_id or hit.created_at


def recall(question: Question, found: Sequence[str], k: int) -> float:
    """The share of the answers among the first `k` that were found."""
    named = {name for names in found[:k] for name in names.split()}
    return len(question.answers & named) / len(question.answers)


def _reciprocal(question: Question, found: Sequence[str]) -> float:
    places = (i for i, names in enumerate(found, 1) if question.answers.intersection(names.split()))
    return 1 / next(places, float("inf"))


def _figures(results: Results) -> Figures:
    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(results)

    return Figures(
        len(results),
        mean(recall(*result, 5) for result in results),
        mean(recall(*result, 10) for result in results),
        mean(_reciprocal(*result) for result in results),
    )


def of_sessions(results: Results) -> Results:
    """The same for sessions: that of each answer, and those of what was found, each once. A name
    begins with that of its session."""

    def sessions(names: Iterable[str]) -> dict[str, None]:
        return dict.fromkeys(name.rpartition("/")[0] for each in names for name in each.split())

    return [
        (replace(question, answers=frozenset(sessions(question.answers))), list(sessions(found)))
        for question, found in results
    ]


def interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """The mean of paired differences, and the ends of its 95 % interval."""
    mean = float(np.mean(differences))
    half = 1.96 * float(np.std(differences, ddof=1)) / len(differences) ** 0.5
    return mean, mean - half, mean + half


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

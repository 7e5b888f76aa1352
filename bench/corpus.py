"""Synthetic notes that behave like real ones: Zipf's words, clustered vectors."""

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from guest.embedding.backends import Embedded, Vectors
from guest.memory.storage.base import Database, Statement

DIMENSIONS = 384
MODEL_ID = "bench"
NAMESPACE = "memory:bench"
USER_ID = "bench"
_WORDS = 30_000
_PER_TOPIC = 20
_PER_SESSION = 30
_BATCH = 1000
_COMMON = (  # noqa: SIM905 - readable as prose
    "the of and to a in is it you that he was for on are with as i his they be at one have this "
    "from or had by but some what there we can out other were all your when up use how said an "
    "each she which do their time if will way about many then them would like so these her long "
    "make thing see him two has look more day could go come did my sound no most who over know"
).split()


@dataclass(frozen=True)
class Corpus:
    """`texts` with unit `vectors`, and queries with the vectors they would get."""

    texts: list[str]
    vectors: Vectors
    queries: dict[str, npt.NDArray[np.float32]]


class QueryEmbedder:
    """Answers at once with a prepared vector, so that embedding a query costs nothing."""

    def __init__(self, queries: dict[str, npt.NDArray[np.float32]]) -> None:
        self._queries = queries

    async def embed(self, texts: Sequence[str], *, timeout: float) -> Embedded:  # noqa: ARG002
        nothing = np.zeros(DIMENSIONS, np.float32)
        return Embedded(MODEL_ID, np.stack([self._queries.get(text, nothing) for text in texts]))

    async def state(self) -> str:
        return "ready"

    async def close(self) -> None:
        pass


def make(size: int, queries: int = 60, seed: int | None = None) -> Corpus:
    """A corpus of `size` passages of 8 to 40 words; the same for the same seed, which is
    the size unless given."""
    numbers = np.random.default_rng(size if seed is None else seed)
    words = [*_COMMON, *_vocabulary()]
    frequency = 1 / (np.arange(len(words)) + 2.7)
    lengths = numbers.integers(8, 40, size)
    drawn = numbers.choice(len(words), int(lengths.sum()), p=frequency / frequency.sum())
    texts, start = [], 0
    for length in lengths.tolist():
        texts.append(" ".join(words[i] for i in drawn[start : start + length]))
        start += length
    vectors = _clustered(numbers, size)
    frequency[: len(_COMMON)] = 0
    asked = {}
    for _ in range(queries):
        terms = numbers.choice(
            len(words), numbers.integers(2, 7), p=frequency / frequency.sum(), replace=False
        )
        near = vectors[numbers.integers(size)] + numbers.normal(0, 0.04, DIMENSIONS)
        question = "what about " + " ".join(words[i] for i in terms) + "?"
        asked[question] = (near / np.linalg.norm(near)).astype(np.float32)
    return Corpus(texts, vectors, asked)


async def fill(database: Database, corpus: Corpus, namespace: str = NAMESPACE) -> None:
    """Store the corpus as notes of one passage each in sessions, with their vectors."""
    for start in range(0, len(corpus.texts), _BATCH):
        texts = corpus.texts[start : start + _BATCH]
        listed = json.dumps(
            [
                [f"note-{uuid.uuid4()}", text, f"session-{place // _PER_SESSION}"]
                for place, text in enumerate(texts, start)
            ]
        )
        results = await database.batch(
            (
                Statement(_NOTES, (namespace, listed)),
                Statement(_PASSAGES, (namespace, listed)),
            )
        )
        vectors = corpus.vectors[start : start + _BATCH]
        await database.batch(
            [
                Statement(_VECTOR, (row[0], namespace, MODEL_ID, vector.tobytes()))
                for row, vector in zip(results[1].rows, vectors, strict=True)
            ]
        )


@cache
def _vocabulary() -> tuple[str, ...]:
    chance = random.Random(1)
    syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in ("a", "e", "i", "on", "er", "al")]
    words: dict[str, None] = {}
    while len(words) < _WORDS:
        words["".join(chance.choices(syllables, k=chance.randint(2, 4)))] = None
    return tuple(words)


def _clustered(numbers: np.random.Generator, size: int) -> Vectors:
    """Unit vectors in topics: about 0.7 alike within one, about 0 across."""
    topics = numbers.normal(size=(max(1, size // _PER_TOPIC), DIMENSIONS)).astype(np.float32)
    own = numbers.normal(0, 0.65, (size, DIMENSIONS)).astype(np.float32)
    vectors = topics[numbers.integers(len(topics), size=size)] + own
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


_NOTES = """
INSERT INTO notes (namespace, note_id, content, content_hash, source, origin_actor,
                   origin_channel, origin_session, origin_turn, created_at, updated_at, ordered_at)
    SELECT ?1, value ->> 0, value ->> 1, value ->> 0, 'user', 'user', '', value ->> 2, '',
           '2026-01-01T00:00:00.000000Z', '2026-01-01T00:00:00.000000Z',
           '2026-01-01T00:00:00.000000Z'
    FROM json_each(?2)
"""
_PASSAGES = """
INSERT INTO chunks (namespace, note_id, position, body)
    SELECT ?1, value ->> 0, 0, value ->> 1 FROM json_each(?2)
    RETURNING chunk_id
"""
_VECTOR = """
INSERT INTO chunks_vec (chunk_id, namespace, model_id, vector, digest) VALUES (?, ?, ?, ?, 0)
"""

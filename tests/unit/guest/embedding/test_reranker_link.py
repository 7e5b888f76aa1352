"""The reranker beside the embedder, over a real socket: every state, every refusal."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from wire.errors import Code
from wire.limits import EMBED_BATCH_MAX_TEXTS, EMBED_TEXT_MAX_CHARS

from guest.embedding.backends import Reranker, Scores
from guest.embedding.client import RemoteEmbedder
from guest.embedding.hashing import HashingBackend
from guest.embedding.service import EmbedderService
from guest.errors import EmbedderError
from tests.support import parties
from tests.support.guests.embedder_link import serving, until


class Shared:
    """Scores a text by the share of its words that the query has."""

    def score(self, query: str, texts: Sequence[str]) -> Scores:
        if "fail" in query:
            raise RuntimeError(f"failed on {texts}")
        wanted = set(query.split())
        shares = [len(wanted & {*text.split()}) / max(1, len(text.split())) for text in texts]
        return np.array(shares, np.float32)


@pytest.fixture
def endpoint() -> Iterator[str]:
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxr-"))
    yield f"unix:{path}/e.sock"
    shutil.rmtree(path)


@pytest.fixture
def embedder(endpoint: str) -> RemoteEmbedder:
    return RemoteEmbedder(parties.embedder(endpoint, "token"))


def service(load: Callable[[], Reranker] | None, retry_s: float = 60.0) -> EmbedderService:
    return EmbedderService(HashingBackend, load, retry_s=retry_s)


async def state(embedder: RemoteEmbedder) -> str:
    return (await embedder.embed(["x"], timeout=60)).reranker


async def refused(embedder: RemoteEmbedder, query: str, texts: Sequence[str]) -> EmbedderError:
    with pytest.raises(EmbedderError) as raised:
        await embedder.rerank(query, texts, timeout=60)
    return raised.value


async def test_texts_are_scored_in_their_order(endpoint: str, embedder: RemoteEmbedder) -> None:
    async with serving(endpoint, service(Shared)):
        await until(embedder, "ready")
        while await state(embedder) != "ready":
            await asyncio.sleep(0.005)
        scores = await embedder.rerank("red car", ["a red car", "green", "red"], timeout=60)
        np.testing.assert_allclose(scores, [2 / 3, 0, 1])
        assert len(await embedder.rerank("red", [], timeout=60)) == 0
    await embedder.close()


async def test_without_one_the_embedder_says_so(endpoint: str, embedder: RemoteEmbedder) -> None:
    async with serving(endpoint, service(None)):
        await until(embedder, "ready")
        assert await state(embedder) == ""
        error = await refused(embedder, "x", ["y"])
        assert (error.code, error.brief) == (
            Code.FAILED_PRECONDITION,
            "no reranker is configured",
        )
    await embedder.close()


async def test_one_that_cannot_be_loaded_is_named_and_tried_again(
    endpoint: str, embedder: RemoteEmbedder
) -> None:
    attempts: list[int] = []

    def load() -> Reranker:
        attempts.append(1)
        if len(attempts) < 3:
            raise EmbedderError(
                Code.FAILED_PRECONDITION, "reranker not found: x", resolution="hf download x"
            )
        return Shared()

    async with serving(endpoint, service(load, retry_s=0.2)):
        await until(embedder, "ready")
        seen = set()
        while (now := await state(embedder)) != "ready":
            seen.add(now)
            await asyncio.sleep(0.005)
        assert seen <= {"loading", "reranker not found: x; fix: hf download x"}
        assert len(attempts) == 3
    await embedder.close()


async def test_its_failure_names_no_text(
    endpoint: str, embedder: RemoteEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(endpoint, service(Shared)):
        await until(embedder, "ready")
        while await state(embedder) != "ready":
            await asyncio.sleep(0.005)
        error = await refused(embedder, "fail", ["a secret"])
        assert (error.code, error.brief) == (
            Code.INTERNAL,
            "the reranker failed on these texts",
        )
        assert "RuntimeError" in error.details
        assert "secret" not in f"{error}{caplog.text}"
    await embedder.close()


@pytest.mark.parametrize(
    ("query", "texts", "brief"),
    [
        ("x" * (EMBED_TEXT_MAX_CHARS + 1), ["y"], "query: 8001 characters"),
        ("x", ["y" * (EMBED_TEXT_MAX_CHARS + 1)], "texts[0]: 8001 characters"),
        ("x", ["y"] * (EMBED_BATCH_MAX_TEXTS + 1), "texts: 257 given"),
    ],
)
async def test_what_is_too_much_is_refused(
    endpoint: str, embedder: RemoteEmbedder, query: str, texts: Sequence[str], brief: str
) -> None:
    async with serving(endpoint, service(Shared)):
        error = await refused(embedder, query, texts)
        assert error.code is Code.INVALID_ARGUMENT
        assert error.brief.startswith(brief)
    await embedder.close()

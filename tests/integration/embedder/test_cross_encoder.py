"""A real cross-encoder, small and untrained, in the real library and the real process."""

import asyncio
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from guest.embedding import loading, weights
from guest.errors import EmbedderError
from tests.support.guests.embedders import EmbedderProcess, until_state

pytestmark = pytest.mark.model

HASHING = ("--backend", "hashing")


def made(directory: Path, labels: int) -> Path:
    """A BERT of one layer with the default model's tokenizer."""
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(
        weights.resolve(weights.DEFAULT_MODEL).location
    )
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_labels=labels,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("cross") / "tiny", labels=1)


@pytest.fixture
def process(embedder: EmbedderProcess, model: Path) -> EmbedderProcess:
    embedder.start(*HASHING, "--reranker", str(model))
    return embedder


def test_each_text_has_a_score_of_its_own(model: Path) -> None:
    texts = ["a text", "another one, somewhat longer", "", "苹果", "word " * 2000]
    scores = loading.load_reranker(str(model)).score("what?", texts)
    assert scores.shape == (5,)
    assert scores.dtype == np.float32
    assert ((scores > 0) & (scores < 1)).all()
    assert len(set(scores.tolist())) > 1


def test_a_model_that_is_no_reranker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError) as raised:
        loading.load_reranker(str(made(tmp_path / "three", labels=3)))
    assert raised.value.brief.startswith("reranker cannot be loaded")
    assert "it has 3 labels" in raised.value.details
    assert 'set embedder.reranker = ""' in raised.value.resolution


def test_an_embedding_model_is_refused_because_its_scores_would_be_random() -> None:
    with pytest.raises(EmbedderError) as raised:
        loading.load_reranker(weights.DEFAULT_MODEL)
    assert raised.value.brief.startswith("reranker cannot be loaded")
    assert "it is a BertModel" in raised.value.details


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError) as raised:
        loading.load_reranker(str(tmp_path / "none"))
    assert raised.value.brief == f"reranker not found: {tmp_path / 'none'}"
    assert "embedder.reranker" in raised.value.resolution


async def test_the_process_reranks(process: EmbedderProcess, model: Path) -> None:
    client = process.client()
    await until_state(client, "ready")
    async with asyncio.timeout(120):
        while (await client.embed(["x"], timeout=60)).reranker != "ready":
            await asyncio.sleep(0.05)
    scores = await client.rerank("what?", ["a text", "another"], timeout=60)
    expected = loading.load_reranker(str(model)).score("what?", ["a text", "another"])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
    await client.close()

"""Which runtime a model gets, what is said where it is missing, and batches bounded in tokens."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.errors import Code
from wire.installation import adding_model

from guest.embedding import loading, minilm, sentences, weights
from guest.errors import EmbedderError


@pytest.mark.parametrize(
    ("source", "runtime"),
    [
        (weights.Source(weights.DEFAULT_MODEL, "/packaged", local=True), "minilm"),
        (weights.Source(weights.DEFAULT_MODEL, weights.DEFAULT_MODEL, local=False), "sentences"),
        (weights.Source("local/all-MiniLM-L6-v2-1a2b", "/mine", local=True), "sentences"),
        (weights.Source("acme/tiny", "acme/tiny", local=False), "sentences"),
    ],
)
def test_only_the_packaged_model_runs_on_onnx_runtime(
    monkeypatch: pytest.MonkeyPatch, source: weights.Source, runtime: str
) -> None:
    taken: list[tuple[str, object]] = []
    monkeypatch.setattr(weights, "resolve", lambda model: source)
    monkeypatch.setattr(minilm, "load", lambda place: taken.append(("minilm", place)))
    monkeypatch.setattr(sentences, "load", lambda place: taken.append(("sentences", place)))
    loading.load("sentence-transformers", "any")
    place = Path(source.location) if runtime == "minilm" else source
    assert taken == [(runtime, place)]


def test_a_missing_runtime_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(EmbedderError, match="library is not installed") as raised:
        minilm.load(tmp_path)
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert raised.value.resolution.startswith(adding_model())


@given(
    lengths=st.lists(st.integers(2, 256), max_size=64),
    most=st.integers(2, 600),
    padded=st.integers(2, 1200),
)
def test_batches_hold_each_text_once_and_are_bounded_without_and_with_their_padding(
    lengths: Sequence[int], most: int, padded: int
) -> None:
    batches = list(minilm.batches(lengths, most, padded))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        taken = [lengths[row] for row in batch]
        assert len(batch) == 1 or (sum(taken) <= most and len(batch) * max(taken) <= padded)


def test_texts_of_similar_length_are_in_one_batch() -> None:
    lengths = [100, 10] * 8
    batches = list(minilm.batches(lengths, 200, 200))
    assert [{lengths[row] for row in batch} for batch in batches] == [{100}] * 4 + [{10}]

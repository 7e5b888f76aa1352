"""Which directories of the host a model needs in a container without a network."""

from pathlib import Path

import pytest

from runner.errors import TierError
from runner.host.weights import weights_of

SENTENCE = "sentence-transformers"


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    (tmp_path / "hub/models--acme--tiny/snapshots/abc").mkdir(parents=True)
    (tmp_path / "hub/models--acme--tiny/snapshots/abc/config.json").write_text("{}")
    (tmp_path / "hub/models--acme--empty/snapshots").mkdir(parents=True)
    return tmp_path / "hub"


@pytest.mark.parametrize(
    ("backend", "model"),
    [
        ("hashing", "/no/such/model"),
        (SENTENCE, "all-MiniLM-L6-v2"),
        (SENTENCE, "sentence-transformers/all-MiniLM-L6-v2"),
        (SENTENCE, "multilingual"),
    ],
)
def test_the_image_brings_the_packaged_model_and_hashing(backend: str, model: str) -> None:
    found = weights_of(backend, model, {"HF_HUB_CACHE": "/nowhere"})
    assert (found.mounts, found.environment) == ({}, {})


def test_a_directory_is_seen_at_its_own_path(tmp_path: Path) -> None:
    assert weights_of(SENTENCE, str(tmp_path), {}).mounts == {tmp_path: str(tmp_path)}


def test_a_snapshot_comes_with_the_blobs_it_links_to(hub: Path) -> None:
    model = hub / "models--acme--tiny"
    found = weights_of(SENTENCE, str(model / "snapshots/abc"), {})
    assert found.mounts == {model: str(model)}


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_an_id_is_found_in_the_hosts_cache(hub: Path, variable: str) -> None:
    place = {"HF_HUB_CACHE": hub, "HF_HOME": hub.parent, "XDG_CACHE_HOME": hub.parent}[variable]
    if variable == "XDG_CACHE_HOME":
        (hub.parent / "huggingface").mkdir()
        hub.rename(hub.parent / "huggingface/hub")
        hub = hub.parent / "huggingface/hub"
    found = weights_of(SENTENCE, "acme/tiny", {variable: str(place)})
    assert found.mounts == {hub / "models--acme--tiny": "/hub/models--acme--tiny"}
    assert found.environment == {"HF_HUB_CACHE": "/hub"}


@pytest.mark.parametrize(
    ("model", "fix"),
    [
        ("acme/other", "hf download acme/other, or"),
        ("acme/empty", "hf download acme/empty, or"),
        ("short", "hf download sentence-transformers/short, or"),
        ("/no/such/model", "correct embedder.model, or"),
    ],
)
def test_a_model_that_is_not_there_is_refused_with_the_fix(hub: Path, model: str, fix: str) -> None:
    with pytest.raises(TierError, match=f"embedding model not found: {model}") as caught:
        weights_of(SENTENCE, model, {"HF_HUB_CACHE": str(hub)})
    assert caught.value.resolution.startswith(fix)

"""The embedder's container: what it may, what guests see of it, and how it says what is wrong."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire.identity import Party

from guest.embedding.client import RemoteEmbedder
from runner.host.embedder import POLICY, Embedder
from runner.tiers.container.names import ObjectNames as ContainerPlace
from tests.support import parties
from tests.support.guests.embedders import (
    HASHING,
    LIMIT_S,
    Place,
    Settings,
    containers_of,
    docker,
    eventually,
    until,
)

pytestmark = pytest.mark.docker

_CONNECT = """
import os, socket
connection = socket.socket(socket.AF_UNIX)
connection.connect("/embedder/embedder.sock")
print(sorted(os.listdir("/embedder")))
try:
    open("/embedder/more", "w")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def place(short_dir: Path) -> Place:
    return Place("container", short_dir).require_image()


@pytest.fixture
async def embedder(place: Place) -> AsyncIterator[Embedder]:
    embedder = place.embedder()
    yield embedder
    await embedder.stop()
    await eventually(place.is_clean, "nothing is left")


async def failure(place: Place, settings: Settings = HASHING) -> str:
    """What `status` says of an embedder that cannot be started there."""
    embedder = place.embedder(settings)
    try:
        await embedder.start()
        seen = await until(embedder, "failed")
        assert seen.pid == 0
        return seen.reason
    finally:
        await asyncio.wait_for(embedder.stop(), LIMIT_S)


def inspected(place: Place) -> dict[str, Any]:
    [container] = place.containers()
    found: dict[str, Any] = json.loads(docker("inspect", container))[0]
    return found


async def test_it_computes_with_no_right_no_network_and_no_file_but_its_own(
    place: Place, embedder: Embedder
) -> None:
    home = place.home()
    await embedder.start()
    await until(embedder, "ready")
    guest = RemoteEmbedder(parties.linked(embedder.link(), Party.EMBEDDER))
    assert (await guest.embed(["one", "two"], timeout=60)).vectors.shape == (2, 384)
    await guest.close()

    found = inspected(place)
    host, config = found["HostConfig"], found["Config"]
    assert found["Name"] == f"/{place.container}"
    assert config["User"] == f"{home.owner.uid}:{home.owner.gid}"
    assert home.owner.uid != 0
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["Init"]) == ("none", True, True)
    assert (host["CapDrop"], host["CapAdd"]) == (["ALL"], None)
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert not host["Privileged"]
    assert 0 < host["Memory"] == host["MemorySwap"]
    assert 0 < host["PidsLimit"] < 1000
    assert {limit["Name"] for limit in host["Ulimits"]} == {"nofile", "core"}
    mounts = {(mount["Destination"], mount["Source"], mount["RW"]) for mount in found["Mounts"]}
    assert mounts == {
        ("/embedder/socket", str(home.socket.parent), True),
        ("/embedder/state", str(home.leases.parent), True),
    }
    assert embedder.link().token not in json.dumps(found)


async def test_a_guest_with_its_socket_directory_reaches_it_and_can_change_nothing(
    place: Place, embedder: Embedder
) -> None:
    home = place.home()
    await embedder.start()
    await until(embedder, "ready")
    run = ["run", "--rm", "--network", "none", "--cap-drop", "ALL", "--entrypoint", "python3"]
    another = home.owner.uid + 7 if os.geteuid() == 0 else home.owner.uid
    run += ["--user", f"{another}:{another}"]
    run += ["--volume", f"{home.socket.parent}:/embedder:ro", place.image, "-c", _CONNECT]
    seen = await asyncio.to_thread(docker, *run)
    assert seen.splitlines() == ["['embedder.sock']", "Read-only file system"]


async def test_what_an_earlier_runner_left_half_made_is_replaced(
    place: Place, embedder: Embedder
) -> None:
    home = place.home()
    home.prepare()
    labels = [
        f"--label={name}={value}" for name, value in ContainerPlace.of("", home.path).labels.items()
    ]
    left = docker("create", "--name", place.container, *labels, place.image, "true")
    await embedder.start()
    await until(embedder, "ready")
    assert left not in docker("ps", "--all", "--quiet", "--no-trunc")


async def test_a_strangers_container_is_left_alone(place: Place) -> None:
    stranger = docker("create", "--name", place.container, place.image, "true")
    try:
        assert (await failure(place)).startswith(
            f"the container name {place.container} is taken (a container that the runner did not "
            f"make bears it); fix: docker rm --force {place.container}; next start in"
        )
        assert stranger in docker("ps", "--all", "--quiet", "--no-trunc")
    finally:
        docker("rm", "--force", stranger)


async def test_a_missing_image_is_told(place: Place) -> None:
    told = await failure(replace(place, images="oxydra-no-such"))
    assert "oxydra-no-such-embedder:" in told
    assert "fix: runner images build" in told


async def test_an_engine_that_is_down_is_told(place: Place) -> None:
    told = await failure(replace(place, engine=f"unix://{place.directory}/no.sock"))
    assert "no.sock" in told or "No such file" in told
    assert "fix: " in told


async def test_a_model_that_is_not_on_the_host_is_told(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(place.directory / "hub"))
    told = await failure(place, Settings("sentence-transformers", "acme/tiny"))
    assert told.startswith("embedding model not found: acme/tiny (it is not in ")
    assert "fix: hf download acme/tiny, or set embedder.backend" in told


async def test_a_models_directory_is_mounted_read_only_at_its_own_path(place: Place) -> None:
    model = place.directory / "model"
    model.mkdir()
    (model / "config.json").write_text("not a model")
    place.directory.chmod(0o755)
    settings = Settings("sentence-transformers", str(model))
    home, embedder = place.home(settings), place.embedder(settings)
    await embedder.start()
    try:
        await eventually(lambda: home.log.exists() and home.log.stat().st_size > 0, "a log")
        [container] = containers_of(home)
        mounts = json.loads(docker("inspect", container))[0]["Mounts"]
        assert {mount["Destination"]: mount["RW"] for mount in mounts} == {
            "/embedder/socket": True,
            "/embedder/state": True,
            str(model): False,
        }
        reason = (await until(embedder, "failed")).reason
        assert not reason.startswith("embedding model not found")
    finally:
        await embedder.stop()


async def test_one_that_dies_at_start_says_so_in_its_log(place: Place) -> None:
    home = place.home()
    home.prepare()
    home.leases.with_name("embedder.lock").mkdir()
    embedder = place.embedder()
    await embedder.start()
    seen = await until(embedder, "failed")
    assert seen.reason.startswith("the embedder's directory cannot be used: /embedder/state")
    await embedder.stop()
    assert place.containers() == []


@pytest.mark.model
async def test_the_packaged_model_needs_no_network(place: Place) -> None:
    settings = Settings("sentence-transformers", "all-MiniLM-L6-v2")
    embedder = place.embedder(settings, POLICY)
    await embedder.start()
    try:
        seen = await until(embedder, "ready")
        assert seen.details == "sentence-transformers/all-MiniLM-L6-v2, 384 dimensions"
        guest = RemoteEmbedder(parties.linked(embedder.link(), Party.EMBEDDER))
        texts = ["a cat", "a kitten", "income tax"]
        cat, kitten, tax = (await guest.embed(texts, timeout=60)).vectors
        await guest.close()
        assert cat @ kitten > cat @ tax + 0.2
    finally:
        await embedder.stop()

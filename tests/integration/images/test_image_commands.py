"""`runner images` against a real engine: build, list, save and load."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

IMAGES = os.environ.get("TESTS_IMAGES", "oxydra")
PREFIX = f"oxydra-images-test-{os.getpid()}"
TAG = version("oxydra")


def runner(*words: str, images: str = PREFIX, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OXYDRA_CONTAINER__IMAGES": images, "COLUMNS": "200", **more}
    return subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli.app", "images", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=280,
        check=False,
    )


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=False).stdout


@pytest.fixture
def throwaway() -> Iterator[str]:
    """The name of an image that does not outlive the test."""
    name = f"{PREFIX}-shell:{TAG}"
    yield name
    docker("rmi", "--force", name)


def test_an_image_is_built_on_an_operators_base(throwaway: str) -> None:
    base = f"{IMAGES}-shell:{TAG}"  # a base that has all packages, so that none is fetched
    root_again = f"{PREFIX}-base"
    made = subprocess.run(
        ["docker", "build", "-q", "-t", root_again, "-"],
        input=f"FROM {base}\nUSER root\nRUN userdel oxydra && rm -rf /opt/oxydra "
        "/usr/local/bin/oxydra-* /etc/apt/sources.list*\n",
        capture_output=True,
        text=True,
        env={**os.environ, "DOCKER_BUILDKIT": "0"},
        check=False,
    )
    assert made.returncode == 0, made.stderr
    try:
        done = runner("build", "--role", "shell", "--base-image", root_again)
        assert done.returncode == 0, done.stderr
        assert throwaway.rpartition(":")[0] in done.stdout
        assert "MB" in done.stdout
        inspected = json.loads(docker("inspect", throwaway))[0]
        assert inspected["Config"]["User"] == "10001:10001"
        assert docker("run", "--rm", throwaway).startswith("usage: oxydra-shell-daemon")
        assert docker("images", "-q", "--filter", "label=oxydra.stage=build") == ""
    finally:
        docker("rmi", "--force", throwaway, root_again)


def test_saved_images_come_back_with_name_and_content(throwaway: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "content.tar", "w") as tar:
        tar.add(__file__, "content")
    docker("import", str(tmp_path / "content.tar"), throwaway)
    (tmp_path / "content.tar").unlink()
    known = docker("inspect", "--format", "{{.Id}}", throwaway)
    file = tmp_path / "images.tar"
    saved = runner("save", str(file), "--role", "shell")
    assert saved.returncode == 0, saved.stderr
    assert saved.stdout.startswith(f"{file}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["images.tar"]
    with tarfile.open(file) as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        assert [entry["RepoTags"] for entry in json.load(manifest)] == [[throwaway]]
    docker("rmi", throwaway)
    loaded = runner("load", str(file))
    assert (loaded.returncode, loaded.stdout) == (0, f"{throwaway}\n"), loaded.stderr
    assert docker("inspect", "--format", "{{.Id}}", throwaway) == known


def test_images_of_other_versions_are_removed_and_no_others(throwaway: str, tmp_path: Path) -> None:
    old, used = (throwaway.replace(f":{TAG}", f":{tag}") for tag in ("0.0.1", "0.0.2"))
    with tarfile.open(tmp_path / "content.tar", "w") as tar:
        tar.add(__file__, "content")
    for name in (throwaway, old, used):
        docker("import", "--message", name, str(tmp_path / "content.tar"), name)
    container = docker("create", used, "/content").strip()
    try:
        asked = runner("prune")
        assert asked.returncode == 1
        assert old in asked.stdout
        done = runner("prune", "--yes")
        assert done.returncode == 0, done.stderr
        assert f"{used} stays" in done.stdout
        assert docker("images", "-q", old) == ""
        assert docker("images", "-q", throwaway)
        assert docker("images", "-q", used)
    finally:
        docker("rm", container)
        docker("rmi", "--force", old, used)


def test_what_is_not_there_is_listed_as_missing_and_not_saved(tmp_path: Path) -> None:
    listed = runner("list", images="oxydra-never-built")
    assert listed.returncode == 0
    assert listed.stdout.count("(none; runner images build)") == 4
    saved = runner("save", str(tmp_path / "x.tar"), images="oxydra-never-built")
    assert saved.returncode == 1
    assert f"there is no image oxydra-never-built-agent:{TAG}" in saved.stderr
    assert "fix: runner images build" in saved.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "not.tar").write_text("hello")
    done = runner("load", str(tmp_path / "not.tar"))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "  why: " in done.stderr


def test_an_engine_that_is_down_is_said(tmp_path: Path) -> None:
    done = runner("list", OXYDRA_CONTAINER__ENGINE=f"unix://{tmp_path}/none.sock")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "  fix: " in done.stderr

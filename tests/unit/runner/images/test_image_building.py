"""Building with an engine that only pretends: what it is asked, what its errors become."""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker.errors
import pytest
from wire.errors import Code

from runner.errors import TierError
from runner.images import bootstrap
from runner.images.build import Progress, Recipe, build_images
from runner.images.naming import USUAL_ROLES, ImageRole


class FakeEngine:
    """Notes what it is asked; builds end as `answer` says."""

    def __init__(self, *answer: dict[str, str], images: tuple[str, ...] = ("base:1",)) -> None:
        self.answer = answer or ({"stream": "Step 1/1 : FROM base:1\n"},)
        self.images = images
        self.built: list[dict[str, Any]] = []
        self.contents: list[list[str]] = []
        self.pruned: list[str] = []
        self.pull_error = "no such host"

    def inspect_image(self, name: str) -> dict[str, Any]:
        if name not in self.images and name not in [options["tag"] for options in self.built]:
            raise docker.errors.ImageNotFound(name)
        labels = [options["labels"] for options in self.built if options["tag"] == name]
        return {"Id": "sha256:1", "Config": {"Labels": labels[-1] if labels else None}}

    def pull(self, name: str, **_: object) -> Iterator[dict[str, str]]:
        yield {"status": "Pulling"}
        yield {"error": self.pull_error}

    def build(self, *, fileobj: Any, **options: Any) -> Iterator[dict[str, str]]:
        with tarfile.open(fileobj=fileobj) as tar:
            self.contents.append(tar.getnames())
        self.built.append(options)
        return iter(self.answer)

    def prune_images(self, filters: dict[str, Any]) -> None:
        assert filters["dangling"] is True
        self.pruned += filters["label"]


class Noted(Progress):
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def step(self, role: str, line: str) -> None:
        self.lines.append((role, line))

    def done(self, role: str) -> None:
        self.lines.append((role, "done"))


@pytest.fixture
def wheelhouse(tmp_path: Path) -> Path:
    (tmp_path / f"oxydra-{version('oxydra')}-py3-none-any.whl").touch()
    return tmp_path


def run(engine: FakeEngine, recipe: Recipe) -> Noted:
    noted = Noted()
    build_images(engine, recipe, noted)  # type: ignore[arg-type]
    return noted


def test_a_given_wheelhouse_is_all_that_is_sent(wheelhouse: Path) -> None:
    engine = FakeEngine()
    noted = run(engine, Recipe("team/ox", "base:1", [ImageRole.AGENT], wheelhouse))
    assert engine.contents == [
        ["Dockerfile", f"wheels/oxydra-{version('oxydra')}-py3-none-any.whl"]
    ]
    assert engine.built[0]["tag"] == f"team/ox-agent:{version('oxydra')}"
    assert engine.built[0]["buildargs"] == {
        "BASE_IMAGE": "base:1",
        "OXYDRA_VERSION": version("oxydra"),
    }
    assert noted.lines == [("agent", "Step 1/1 : FROM base:1"), ("agent", "done")]
    assert engine.pruned == ["oxydra.stage=build", "oxydra.role=agent"]


def test_an_image_is_built_once_per_content(wheelhouse: Path) -> None:
    engine = FakeEngine()
    recipe = Recipe("ox", "base:1", [ImageRole.AGENT], wheelhouse)
    run(engine, recipe)
    assert run(engine, recipe).lines == [("agent", "unchanged"), ("agent", "done")]
    assert len(engine.built) == 1
    (wheelhouse / "numpy-2.0-py3-none-any.whl").write_text("new")
    run(engine, recipe)
    assert len(engine.built) == 2


def test_build_tools_go_into_the_shell_image_alone(wheelhouse: Path) -> None:
    engine = FakeEngine()
    run(engine, Recipe("ox", "base:1", wheelhouse=wheelhouse, build_tools=True))
    assert len(engine.built) == len(USUAL_ROLES)
    for options in engine.built:
        asked = "build-essential" in options["buildargs"].get("BUILD_TOOLS", "")
        assert asked == ("-shell:" in options["tag"])


def test_more_packages_are_part_of_the_shells_content(wheelhouse: Path) -> None:
    engine = FakeEngine()
    recipe = Recipe("ox", "base:1", wheelhouse=wheelhouse)
    run(engine, recipe)
    more = replace(recipe, packages=["r-base", "gdal-bin", "r-base"])
    said = run(engine, more).lines
    assert [role for role, line in said if line.startswith("Step")] == ["shell"]
    assert engine.built[-1]["buildargs"]["PACKAGES"] == "gdal-bin r-base"
    assert ("shell", "unchanged") in run(engine, more).lines
    for bad in ("r-base; curl x", "-y", "A", "x", "$(x)"):
        with pytest.raises(TierError, match="not a package of Debian's"):
            run(engine, replace(recipe, packages=[bad]))


def test_a_failing_step_is_shown_without_what_went_before(wheelhouse: Path) -> None:
    engine = FakeEngine(
        {"stream": "Step 1/2 : FROM base:1\n"},
        {"stream": "an old line\n"},
        {"stream": "Step 2/2 : RUN false\n"},
        {"stream": "\x1b[91mno space left\x1b[0m\n"},
        {"error": "returned a non-zero code: 1"},
    )
    with pytest.raises(TierError, match="shell image cannot be built from base:1") as raised:
        run(engine, Recipe("ox", "base:1", [ImageRole.SHELL], wheelhouse))
    details = [line.strip() for line in raised.value.details.splitlines()]
    assert details == ["Step 2/2 : RUN false", "no space left", "returned a non-zero code: 1"]
    assert "oxydra.stage=build" in engine.pruned


def test_a_base_that_is_nowhere_is_refused_before_anything_is_built(wheelhouse: Path) -> None:
    engine = FakeEngine(images=())
    with pytest.raises(TierError, match="no base image python:3") as raised:
        run(engine, Recipe("ox", "python:3", wheelhouse=wheelhouse))
    assert raised.value.code is Code.UNAVAILABLE
    assert "no such host" in raised.value.details
    assert "--bootstrap-base" in raised.value.resolution
    assert engine.built == []


def test_a_bootstrapped_base_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pytest.fail("looked for root"))
    said: list[str] = []
    engine: Any = FakeEngine(images=(bootstrap.BASE_NAME,))
    assert bootstrap.bootstrap_base(engine, said.append) == "oxydra-base:bookworm"
    assert said == ["oxydra-base:bookworm exists already"]


@pytest.mark.parametrize(
    ("uid", "found", "brief", "fix"),
    [
        (1000, "/usr/sbin/debootstrap", "only root", "sudo runner images build --bootstrap-base"),
        (0, None, "debootstrap is not installed", "apt-get install debootstrap"),
    ],
)
def test_bootstrapping_says_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, uid: int, found: str | None, brief: str, fix: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(shutil, "which", lambda _: found)
    engine: Any = FakeEngine(images=())
    with pytest.raises(TierError, match=brief) as raised:
        bootstrap.bootstrap_base(engine, lambda _: None)
    assert fix in raised.value.resolution


def test_a_host_with_another_python_must_give_the_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "PYTHON", (3, 99))
    engine: Any = FakeEngine(images=(bootstrap.BASE_NAME,))
    with pytest.raises(TierError, match=r"do not fit Debian bookworm, which has 3\.99") as raised:
        bootstrap.bootstrap_base(engine, lambda _: None)
    assert "--wheelhouse DIR" in raised.value.resolution
    assert bootstrap.bootstrap_base(engine, lambda _: None, own_wheels=False)


def test_debootstraps_last_words_are_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "debootstrap"
    program.write_text("#!/bin/sh\necho E: no mirror >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    engine: Any = FakeEngine(images=())
    archive = bootstrap.Archive(tmp_path.as_uri(), "http://mirror", program)
    with pytest.raises(TierError, match="debootstrap failed") as raised:
        bootstrap.bootstrap_base(engine, lambda _: None, archive=archive)
    assert raised.value.details == "E: no mirror"


def test_without_keys_to_check_signatures_nothing_is_bootstrapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    engine: Any = FakeEngine(images=())
    archive = bootstrap.Archive(tmp_path.as_uri(), "http://mirror", tmp_path / "absent.gpg")
    with pytest.raises(TierError, match="signatures of Debian's packages cannot") as raised:
        bootstrap.bootstrap_base(engine, lambda _: None, archive=archive)
    assert "apt-get install debian-archive-keyring gpgv" in raised.value.resolution


@pytest.mark.parametrize("tls", [True, False])
def test_tls_is_used_where_it_is_and_signatures_are_always_checked(
    tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "debootstrap"
    program.write_text('#!/bin/sh\necho "$@"\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if tls:
        (tmp_path / "dists" / bootstrap.RELEASE).mkdir(parents=True)
        (tmp_path / "dists" / bootstrap.RELEASE / "InRelease").touch()
    archive = bootstrap.Archive(tmp_path.as_uri(), "http://mirror", program)
    engine: Any = FakeEngine(images=())
    said: list[str] = []
    with pytest.raises(TierError) as raised:
        bootstrap.bootstrap_base(engine, said.append, archive=archive)
    words = raised.value.details.split()
    assert {"--force-check-gpg", f"--keyring={program}"} <= set(words)
    assert words[-1] == (tmp_path.as_uri() if tls else "http://mirror")
    assert any("cannot be reached" in line for line in said) is not tls
    assert bootstrap.DEBIAN.mirror.startswith("https://")


@pytest.mark.root
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed")
def test_a_mirror_whose_release_debian_has_not_signed_is_refused(tmp_path: Path) -> None:
    release = tmp_path / "mirror/dists" / bootstrap.RELEASE
    packages = release / "main/binary-amd64/Packages"
    packages.parent.mkdir(parents=True)
    packages.write_text("Package: base-files\nFilename: evil.deb\n")
    told = hashlib.sha256(packages.read_bytes()).hexdigest()
    size = packages.stat().st_size
    (release / "Release").write_text(
        f"Origin: Debian\nCodename: {bootstrap.RELEASE}\nComponents: main\nArchitectures: amd64\n"
        f"SHA256:\n {told} {size} main/binary-amd64/Packages\n"
    )
    (release / "Release.gpg").write_text("signed, honestly\n")
    mirror = (tmp_path / "mirror").as_uri()
    archive = bootstrap.Archive(mirror, mirror, bootstrap.DEBIAN.keyring)
    engine: Any = FakeEngine(images=())
    with pytest.raises(TierError, match="debootstrap failed") as raised:
        bootstrap.bootstrap_base(engine, lambda _: None, archive=archive)
    assert "Release signature" in raised.value.details

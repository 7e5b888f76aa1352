"""What goes into a build: names, Dockerfiles, wheels, and the tar file that carries them."""

import re
import tarfile
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from image_requirements import normal, pinned
from wire.errors import Code

from runner.errors import TierError
from runner.images import naming, wheels
from runner.images.build import build_context
from runner.images.naming import ImageRole, dockerfile, image_name

ROOT = Path(__file__).resolve().parents[4]
OWN = f"oxydra-{version('oxydra')}-py3-none-any.whl"
AGAIN = "if this change was decided: .venv/bin/python -m tools.image_requirements"


INSTALLED = [role for role in ImageRole if role is not ImageRole.SHELL_POD]


@pytest.mark.parametrize("role", ImageRole)
def test_an_image_bears_the_prefix_the_role_and_the_installed_version(role: ImageRole) -> None:
    assert image_name("host:5000/team/oxydra", role) == (
        f"host:5000/team/oxydra-{role.value}:{version('oxydra')}"
    )


@pytest.mark.parametrize("role", INSTALLED)
def test_every_dockerfile_takes_a_base_and_ends_as_an_ordinary_user(role: ImageRole) -> None:
    lines = dockerfile(role).splitlines()
    assert "ARG BASE_IMAGE=python:3.11-slim-bookworm" in lines
    assert {line.split(" AS ")[0] for line in lines if line.startswith("FROM")} == {
        "FROM ${BASE_IMAGE}"
    }
    users = [line for line in lines if line.startswith("USER")]
    assert users == ["USER root", "USER root", "USER 10001:10001"]
    assert lines[lines.index(users[-1]) + 1 :] == lines[-2:]
    assert not any(line.startswith(("RUN", "COPY")) for line in lines[-2:])
    assert not re.search(r"(?i)(token|secret|password|api_key)", "\n".join(lines))


def test_the_last_stage_takes_nothing_but_the_installation() -> None:
    for role in INSTALLED:
        last = dockerfile(role).rpartition("FROM ")[2]
        assert "wheels" not in last
        assert re.findall(r"COPY .*", last) == ["COPY --from=build /opt/oxydra /opt/oxydra"]


def test_the_image_for_pods_adds_links_to_the_shells_and_nothing_else() -> None:
    lines = dockerfile(ImageRole.SHELL_POD).splitlines()
    assert "FROM ${BASE_IMAGE}" in lines
    assert not any(line.startswith("COPY") for line in lines)
    assert sum(line.startswith("RUN") for line in lines) == 1
    assert [line for line in lines if line.startswith("USER")][-1] == "USER 10001:10001"


def test_the_context_is_a_dockerfile_and_anonymous_wheels(tmp_path: Path) -> None:
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    wheel.chmod(0o600)
    linked = tmp_path / "other-1.0-py3-none-any.whl"
    linked.symlink_to(wheel)
    with build_context("FROM x\n", [wheel, linked]) as file, tarfile.open(fileobj=file) as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == [
            "Dockerfile",
            "wheels/other-1.0-py3-none-any.whl",
            "wheels/some-1.0-py3-none-any.whl",
        ]
        assert all(member.isfile() for member in members)
        assert {(m.uid, m.gid, m.uname, m.gname, m.mode) for m in members} == {
            (0, 0, "", "", 0o644)
        }
        extracted = tar.extractfile("Dockerfile")
        assert extracted is not None
        assert extracted.read() == b"FROM x\n"


def test_a_given_wheelhouse_must_hold_this_version(tmp_path: Path) -> None:
    (tmp_path / "oxydra-0.0.1-py3-none-any.whl").touch()
    with pytest.raises(TierError, match="no wheel of oxydra") as raised:
        wheels.given(tmp_path)
    assert f"runner images wheels {tmp_path}" in raised.value.resolution


def test_a_given_wheelhouse_gives_this_version_and_no_other_of_it(tmp_path: Path) -> None:
    for name in (OWN, "oxydra-0.0.1-py3-none-any.whl", "oxydra_more-1-py3-none-any.whl", "note"):
        (tmp_path / name).touch()
    assert [path.name for path in wheels.given(tmp_path)] == [OWN, "oxydra_more-1-py3-none-any.whl"]


def test_the_wheel_brings_all_that_is_looked_for_beside_the_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = wheels.own_wheel(wheels.Pip(tmp_path), tmp_path)
    with zipfile.ZipFile(own) as wheel:
        wheel.extractall(tmp_path / "site")
    monkeypatch.setattr(naming, "__file__", str(tmp_path / "site/runner/images/naming.py"))
    assert naming.checkout() is None
    for role in ImageRole:
        assert dockerfile(role) == (ROOT / "deploy/images" / role / "Dockerfile").read_text()
        assert naming.requirements(role).is_relative_to(tmp_path)
        assert naming.requirements(role, any_model=True).is_file()
    shared = tmp_path / "site" / f"oxydra-{version('oxydra')}.data/data/share/oxydra"
    for place in ("compose/sqld-users.sh", "runner.toml", "systemd/oxydra-serve.service"):
        assert (shared / place).read_bytes() == (ROOT / "deploy" / place).read_bytes()
    assert (shared / "guide/configuration.md").is_file()


def test_a_missing_dockerfile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "__file__", str(tmp_path / "runner/images/naming.py"))
    with pytest.raises(TierError, match="agent image's Dockerfile is missing"):
        dockerfile(ImageRole.AGENT)


class Asked(wheels.Pip):
    """Remembers what it is asked for, and makes nothing. PyTorch's build for processors is in
    PyTorch's index alone."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def wheel(self, directory: Path, *wanted: str) -> None:
        self.asked.append(wanted)
        if wanted[-1].startswith("torch"):
            raise TierError(Code.INTERNAL, "no such version")


def test_wheels_are_known_by_hash_and_pytorch_comes_alone_and_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    torch, index = f"torch=={wheels.TORCH}+cpu", "https://download.pytorch.org/whl/cpu"
    alone = [("--no-deps", torch), ("--no-deps", torch, "--index-url", index)]
    own, directory = tmp_path / OWN, tmp_path / "made"
    own.touch()
    directory.mkdir()
    for role, any_model, before, file in (
        (ImageRole.EMBEDDER, False, [], "embedder/requirements.txt"),
        (ImageRole.EMBEDDER, True, alone, "embedder/any-model.txt"),
        (ImageRole.AGENT, True, [], "agent/requirements.txt"),
        (ImageRole.SHELL_POD, False, [], "shell/requirements.txt"),
    ):
        pip, path = Asked(), str(ROOT / "deploy/images" / file)
        assert wheels.collect(pip, [role], own, directory, any_model=any_model)[0].name == OWN
        known = ("--no-deps", "--require-hashes", "--requirement", path)
        assert pip.asked == [*before, known]


def test_every_package_of_an_image_has_the_tested_version_and_a_hash() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for file in (ROOT / "deploy/images").glob("*/*.txt"):
        blocks = re.split(r"^(?=[a-z])", file.read_text(), flags=re.MULTILINE)[1:]
        found = {}
        for block in blocks:
            name, _, rest = block.partition("==")
            found[name] = re.split(r"[\s;]", rest)[0]
            assert "--hash=sha256:" in block, block
        assert found.items() <= pinned().items()
        for extra in wheels.EXTRAS[ImageRole(file.parent.name)].split(","):
            named = {normal(re.split(r"[\[<>=;]", each)[0]) for each in extras[extra]}
            assert named - {"oxydra"} <= set(found), AGAIN


def test_the_images_get_the_pytorch_of_the_set_up() -> None:
    setup = (ROOT / "tools/setup.sh").read_text()
    assert f"TORCH={wheels.TORCH}\n" in setup


def test_pips_last_words_are_passed_on(tmp_path: Path) -> None:
    pip = wheels.Pip(tmp_path)
    with pytest.raises(TierError, match="cannot be made") as raised:
        pip.wheel(tmp_path, "--no-index", str(tmp_path / "none.whl"))
    assert "none.whl" in raised.value.details
    assert "--wheelhouse" in raised.value.resolution

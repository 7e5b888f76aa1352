"""The wheel that is made again from what was installed from one."""

import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from runner.errors import TierError
from runner.images.wheels import packed_again

KEPT = {
    "runner/__init__.py": "",
    "wire/v1/gateway_pb2.py": "generated",
    "oxydra-7.0.dist-info/METADATA": "Name: oxydra\nVersion: 7.0\n",
    "oxydra-7.0.dist-info/WHEEL": "Tag: py3-none-any",
    "oxydra-7.0.dist-info/entry_points.txt": "[console_scripts]",
    "oxydra-7.0.dist-info/licenses/LICENSE": "MIT",
}
BESIDE = {
    "runner/__pycache__/__init__.cpython-311.pyc": "",
    "oxydra-7.0.dist-info/INSTALLER": "pip",
    "oxydra-7.0.dist-info/direct_url.json": "{}",
    "../../../bin/runner": "#!/made/by/pip",
}
SHARED = "share/oxydra/compose/sqld-users.sh"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a distribution is installed."""
    site = tmp_path / "venv/lib/python3.11/site-packages"
    files = {**KEPT, **BESIDE, f"../../../{SHARED}": "#!/bin/sh"}
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "venv" / SHARED).chmod(0o755)
    information = site / "oxydra-7.0.dist-info"
    record = "".join(f"{name},,\n" for name in [*files, "oxydra-7.0.dist-info/RECORD"])
    (information / "RECORD").write_text(record)
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.Distribution.at(information))
    return site


def test_it_has_what_came_with_the_wheel_and_nothing_of_the_installer(
    site: Path, tmp_path: Path
) -> None:
    wheel = packed_again(tmp_path)
    assert wheel.name == "oxydra-7.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name).decode() for name in archive.namelist()}
        modes = {each.filename: each.external_attr >> 16 & 0o777 for each in archive.infolist()}
    record = content.pop("oxydra-7.0.dist-info/RECORD")
    data = f"oxydra-7.0.data/data/{SHARED}"
    assert content == {**KEPT, data: "#!/bin/sh"}
    assert [modes.pop(data), *set(modes.values())] == [0o755, 0o644]
    empty = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
    assert f"runner/__init__.py,sha256={empty},0" in record.splitlines()
    assert [line.split(",")[0] for line in record.splitlines()][:-1] == sorted(content)


def test_the_same_files_give_the_same_wheel(site: Path, tmp_path: Path) -> None:
    first = packed_again(tmp_path).read_bytes()
    (site / "runner/__init__.py").touch()
    assert packed_again(tmp_path).read_bytes() == first


def test_a_missing_file_is_named(site: Path, tmp_path: Path) -> None:
    (site / "wire/v1/gateway_pb2.py").unlink()
    with pytest.raises(TierError, match="a file of this installation is missing") as raised:
        packed_again(tmp_path)
    assert "gateway_pb2.py" in raised.value.details

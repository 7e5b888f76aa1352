"""The console's libraries are fetched once, and again where one is no longer what was fetched."""

import base64
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import web_libraries


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of a registry whose packages are in the lock file of `tmp_path`."""
    archives, packages, asked = {}, {}, []
    for name, files in web_libraries.FILES.items():
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for member in files:
                content = f"{name} {member}".encode()
                entry = tarfile.TarInfo(f"package/{member}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        archives[name] = packed.getvalue()
        digest = base64.b64encode(hashlib.sha512(archives[name]).digest()).decode()
        packages[f"node_modules/{name}"] = {"version": "1", "integrity": f"sha512-{digest}"}
    (tmp_path / "package-lock.json").write_text(json.dumps({"packages": packages}))

    def give(url: str) -> Any:
        asked.append(url)
        return archives[url.removeprefix(f"{web_libraries.REGISTRY}/").split("/-/")[0]]

    monkeypatch.setattr(web_libraries, "fetched", give)
    return asked


def test_they_are_fetched_once_and_again_where_one_has_changed(
    fetched: list[str], tmp_path: Path
) -> None:
    assert web_libraries.bring(tmp_path)
    assert len(fetched) == len(web_libraries.FILES)
    assert not web_libraries.bring(tmp_path)
    names = [path.name for path in (tmp_path / "vendor").iterdir()]
    for name in names:
        path = tmp_path / "vendor" / name
        before = path.read_bytes()
        for change in (lambda: path.write_bytes(before + b"\n"), path.unlink):  # noqa: B023
            change()
            assert web_libraries.bring(tmp_path), name
            assert path.read_bytes() == before
    assert not web_libraries.bring(tmp_path)


def test_another_archive_than_the_pinned_one_is_refused(
    fetched: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_libraries, "fetched", lambda _: b"something else")
    with pytest.raises(web_libraries.UnavailableError, match="is not the archive"):
        web_libraries.bring(tmp_path)
    assert not (tmp_path / "vendor").exists()

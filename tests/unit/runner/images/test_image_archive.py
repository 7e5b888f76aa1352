"""Images written to a file, with an engine that only pretends."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.images.archive import save_images
from runner.images.naming import ImageRole


class FakeEngine:
    """Has every image; exports `content`, or fails in the middle of it."""

    def __init__(self, content: bytes = b"layers", *, fails: bool = False) -> None:
        self.content = content
        self.fails = fails

    def inspect_image(self, name: str) -> dict[str, Any]:
        return {"Id": f"sha256:{name}", "Size": 1}

    def _url(self, path: str) -> str:
        return path

    def _get(self, url: str, **_: object) -> "FakeEngine":
        assert url == "/images/get"
        return self

    def _raise_for_status(self, response: "FakeEngine") -> None:
        assert response is self

    def iter_content(self, size: int) -> Iterator[bytes]:
        yield self.content[:size]
        if self.fails:
            raise OSError("cut off")


def save(file: Path, engine: FakeEngine) -> None:
    save_images(engine, "oxydra", [ImageRole.AGENT], file)  # type: ignore[arg-type]


def test_no_link_that_another_account_has_made_is_written_through(tmp_path: Path) -> None:
    """The attack, where all may make files: a name that the runner will write to leads to a file
    of the operator's."""
    kept = tmp_path / "kept"
    kept.write_text("the operator's")
    (tmp_path / ".images.tar.partial").symlink_to(kept)
    (tmp_path / "images.tar").symlink_to(kept)
    save(tmp_path / "images.tar", FakeEngine())
    assert kept.read_text() == "the operator's"
    assert (tmp_path / "images.tar").read_bytes() == b"layers"
    assert not (tmp_path / "images.tar").is_symlink()
    assert stat.S_IMODE((tmp_path / "images.tar").stat().st_mode) == 0o600


def test_an_export_that_breaks_off_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "images.tar").write_bytes(b"old")
    with pytest.raises(OSError, match="cut off"):
        save(tmp_path / "images.tar", FakeEngine(fails=True))
    assert [path.name for path in tmp_path.iterdir()] == ["images.tar"]
    assert (tmp_path / "images.tar").read_bytes() == b"old"

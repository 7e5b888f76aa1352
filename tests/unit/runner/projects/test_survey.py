"""What is told of a project's content, and that looking at it changes and opens nothing else."""

import os
from pathlib import Path

import pytest

from runner.projects.survey import Survey, look


@pytest.fixture
def code(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    return place


def seen(code: Path, entries_max: int = 1000) -> Survey:
    opened = os.open(code, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return look(opened, entries_max=entries_max)
    finally:
        os.close(opened)


def write(code: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(content)


SECRETS = {
    ".env": "X=1",
    "deploy/.env.production": "",
    ".netrc": "",
    "id_ed25519": "",
    "tls/server.key": "-----BEGIN EC PRIVATE KEY-----\n",
    ".git/config": "[remote]\n\turl = https://me:ghp_secret@example.org/x\n",
    ".npmrc": "//registry/:_authToken=x",
}
OTHERS = {
    ".env.example": "X=",
    "id_ed25519.pub": "",
    "tls/server.pem": "-----BEGIN CERTIFICATE-----\n",
    ".git/modules/a/config": "[remote]\n\turl = https://example.org/x\n",
    "src/config": "https://me:secret@example.org",
    "node_modules/x/.env": "",
    "environment": "",
}


def test_secrets_by_name_and_by_how_they_begin(code: Path) -> None:
    write(code, {**SECRETS, **OTHERS})
    assert sorted(seen(code).secrets) == sorted(SECRETS)


def test_files_with_names_elsewhere(tmp_path: Path, code: Path) -> None:
    write(code, {"a": "", "own": "", "web/node_modules/p/x.js": "", "web/node_modules/p/y": ""})
    os.link(code / "a", tmp_path / "elsewhere")
    os.link(code / "own", code / "own too")
    os.link(code / "web/node_modules/p/x.js", tmp_path / "cache")
    os.link(code / "a", code / "web/node_modules/p/a.js")
    found = seen(code)
    assert (found.shared, found.linked, found.names) == (["web/node_modules"], 1, ["a"])


@pytest.fixture
def strange(code: Path) -> Path:
    os.mkfifo(code / ".env")
    os.mkfifo(code / "server.key")
    (code / "id_rsa").symlink_to("/dev/zero")
    (code / "a\nb\udcff.pem").write_text("-----BEGIN PRIVATE KEY-----")
    return code


def test_pipes_links_and_odd_names(strange: Path) -> None:
    assert seen(strange).secrets == ["a\nb\udcff.pem"]


def test_a_large_one_is_looked_at_in_part_and_that_is_said(code: Path) -> None:
    write(code, {f"{number}.txt": "" for number in range(20)})
    assert seen(code, entries_max=10).unfinished == "only 10 entries of it were looked at"
    assert seen(code).unfinished == ""


def test_nothing_is_changed(code: Path) -> None:
    write(code, {**SECRETS, **OTHERS})

    def all_of_it() -> dict[Path, tuple[int, ...]]:
        found = {path: path.lstat() for path in (code, *code.rglob("*"))}
        return {path: (each.st_mode, each.st_uid, each.st_mtime_ns) for path, each in found.items()}

    before = all_of_it()
    seen(code)
    assert all_of_it() == before

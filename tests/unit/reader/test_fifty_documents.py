"""Fifty documents, each read by the program as it runs in the shell guest: text, or a reason."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import made_documents as made

GUARD_S = 60
CONFINED = "import os, socket, sys; from reader.read import confine; confine(); "
TESSERACT = "#!/bin/sh\nprintf 'recognised '; head -c 4\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("documents")
    (place / "bin").mkdir()
    program = place / "bin/tesseract"
    program.write_text(TESSERACT)
    program.chmod(0o755)
    return place


def python(*words: str, at: Path) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": f"{at}/bin:{os.environ['PATH']}"}
    command = [sys.executable, "-I", "-B", *words]
    return subprocess.run(
        command, cwd=at, env=environment, capture_output=True, timeout=GUARD_S, check=False
    )


def read(at: Path, name: str, first: int = 1, last: int = 0) -> tuple[dict[str, Any], str]:
    """What is told of a document, and its text."""
    done = python("-m", "reader.read", name, str(first), str(last), at=at)
    assert done.returncode == 0, done.stderr
    head, _, text = done.stdout.decode().partition("\n")
    return json.loads(head), text


def test_fifty_documents_are_read_or_it_is_said_why_not(place: Path) -> None:
    sound, refused = made.sound(), made.refused()
    assert len(sound) + len(refused) >= 50
    for name, (content, _) in {**sound, **refused}.items():
        (place / name).write_bytes(content)
    names = [*sound, *refused]
    with ThreadPoolExecutor(4) as threads:
        results = threads.map(lambda name: read(place, name), names)
        found = dict(zip(names, results, strict=True))
    wrong = {name: found[name] for name, (_, words) in sound.items() if words not in found[name][1]}
    assert wrong == {}
    wrong = {
        name: found[name]
        for name, (_, why) in refused.items()
        if why not in found[name][0].get("error", "") or found[name][1]
    }
    assert wrong == {}
    assert not any("root:" in text or "haha" in text for _, text in found.values())


def test_pages_are_chosen(place: Path) -> None:
    (place / "five").write_bytes(made.pdf([f"text {n}" for n in range(1, 6)]))
    told, text = read(place, "five", 2, 3)
    assert told == {"unit": "page", "count": 5}
    assert text.split("\n\n") == ["[page 2 of 5]\ntext 2", "[page 3 of 5]\ntext 3", ""]
    assert read(place, "five", 5, 9)[1] == "[page 5 of 5]\ntext 5\n\n"
    assert read(place, "five", 6)[0] == {"error": "it has 5 pages, no 6"}


def test_an_archive_is_no_document(place: Path) -> None:
    (place / "plain.zip").write_bytes(made.packed({"a.txt": "words"}))
    assert read(place, "plain.zip") == ({}, "")


def test_a_long_text_is_cut_and_says_how_to_read_on(place: Path) -> None:
    (place / "long").write_bytes(made.pptx(["x" * 300_000] * 3))
    text = read(place, "long")[1]
    assert len(text) < 600_000
    assert text.endswith('[the text ends here: it is long; read on with pages="2-"]\n')


@pytest.mark.parametrize(
    "tried",
    [
        "socket.socket()",
        "socket.socket(socket.AF_UNIX)",
        "open('new', 'w')",
        "open('there', 'w')",
        "os.truncate('there', 0)",
        "os.unlink('there')",
        "os.rename('there', 'away')",
        "os.mkdir('made')",
        "bytearray(2**31)",
    ],
)
def test_a_reader_can_neither_send_nor_change_anything(place: Path, tried: str) -> None:
    there = place / "there"
    there.write_text("kept")
    done = python("-c", CONFINED + f"print('confined', flush=True); {tried}", at=place)
    assert (done.returncode, done.stdout) == (1, b"confined\n")
    assert b"PermissionError" in done.stderr or b"MemoryError" in done.stderr
    assert there.read_text() == "kept"
    assert stat.S_ISREG(there.stat().st_mode)
    assert python("-c", f"import os, socket; {tried}", at=place).returncode == 0

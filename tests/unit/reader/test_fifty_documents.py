"""Fifty documents, each read by the program as it runs in the shell guest: text, or a reason."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support import made_documents as made

GUARD_S = 60
TESSERACT = """#!/bin/sh
case $1 in
    --list-langs) printf 'List of available languages in "/usr/share/" (3):\n%s' 'deu\neng\nosd\n';;
    *) printf 'recognised %s ' "$4"; head -c 4;;
esac
"""
MISUSES = [
    "socket.socket()",
    "socket.socket(socket.AF_UNIX)",
    "open('new', 'w')",
    "open('there', 'w')",
    "open('there', 'a')",
    "os.open('there', os.O_RDONLY | os.O_TRUNC)",
    "os.truncate('there', 0)",
    "os.unlink('there')",
    "os.unlink('there', dir_fd=os.open('.', 0))",
    "os.rmdir('empty')",
    "os.rename('there', 'away')",
    "os.rename('there', 'away', src_dir_fd=os.open('.', 0))",
    "os.mkdir('made')",
    "os.mkfifo('made')",
    "os.link('there', 'made')",
    "os.symlink('there', 'made')",
    "os.chmod('there', 0)",
    "os.chown('there', -1, -1)",
    "os.utime('there', (0, 0))",
    "os.setxattr('there', 'user.a', b'b')",
    "os.removexattr('there', 'user.kept')",
    "socket.socketpair()[0].bind('made')",
]
MISUSE = """
import os, socket, sys
from reader.read import confine
if sys.argv[1] == "confined":
    confine()
for number, misuse in enumerate(sys.argv[2:]):
    os.chdir(f"{sys.argv[1]}{number}")
    try:
        exec(misuse)
    except PermissionError:
        print("refused")
    else:
        print("done")
    os.chdir("..")
"""


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


def test_a_reader_can_neither_send_nor_change_anything(place: Path) -> None:
    for how, ends in (("free", "done"), ("confined", "refused")):
        for number in range(len(MISUSES)):
            (place / f"{how}{number}/empty").mkdir(parents=True)
            (place / f"{how}{number}/there").write_text("kept")
            os.setxattr(place / f"{how}{number}/there", "user.kept", b"")
        done = python("-c", MISUSE, how, *MISUSES, at=place)
        assert done.stdout.decode().split() == [ends] * len(MISUSES), done.stderr
    assert {(*sorted(os.listdir(each)),) for each in place.glob("confined*")} == {
        ("empty", "there")
    }
    assert {each.read_text() for each in place.glob("confined*/there")} == {"kept"}


def test_a_reader_has_a_limit_of_memory(place: Path) -> None:
    hungry = "from reader.read import confine; confine(); bytearray(2**31)"
    assert b"MemoryError" in python("-c", hungry, at=place).stderr

"""What `runner memory` prints, wherever it goes: terminals of all kinds, pipes, nowhere."""

import io
import json
import os
import sys

import pytest
from wire.v1 import gateway_pb2

from runner.cli.memory import group
from runner.errors import HostError
from tests.support.gateway.fake_gateway import FakeGateway, Origin
from tests.unit.runner.cli.conftest import RunCommand

PAGE = Origin(actor="agent", session_id="s1", turn_id="t1", link="/shared/page.md", material=True)
HOSTILE = "red \x1b[31m [/b] :smile: \x9b2J \u202egnp"


def test_what_is_in_a_note_neither_drives_the_terminal_nor_the_layout(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    origin = Origin(actor="agent", link=HOSTILE, material=True, session_id=HOSTILE)
    memory.holds("note-1", HOSTILE, tags=[HOSTILE], origin=origin, key=HOSTILE, rationale=HOSTILE)
    pair = gateway_pb2.NearPair(older=memory.notes["note-1"], newer=memory.notes["note-1"])
    memory.reviewed = gateway_pb2.ReviewMemoryReply(near=[pair], warnings=[HOSTILE])
    for words in (
        ["list"],
        ["search", "red"],
        ["show", "note-1"],
        ["history"],
        ["history", "note-1"],
        ["review"],
        ["list", "--json"],
    ):
        done = run_memory(*words)
        assert done.code == 0
        for character in "\x1b\x9b\u202e":
            assert character not in done.out + done.err
        assert "[/b] :smile:" in " ".join(done.out.split())
    assert json.loads(done.out)["notes"][0]["text"] == HOSTILE


@pytest.mark.parametrize("width", [120, 132, 180])
def test_a_table_folds_and_loses_nothing(
    memory: FakeGateway, run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    words = [f"w{number}" for number in range(50)]
    origin = Origin(link="/shared/" + "x" * 30, material=True)
    memory.holds("note-12345678-9", " ".join(words), tags=["t" * 48], origin=origin)
    for command in ("list", "history"):
        lines = run_memory(command).out.splitlines()
        assert max(map(len, lines)) <= width
        assert [word for line in lines for word in line.split() if word in words] == words


def test_a_narrow_terminal_folds_and_loses_nothing(
    memory: FakeGateway, run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    words = " ".join(f"word{number}" for number in range(20))
    memory.holds("note-12345678-9", words, tags=["important"], origin=PAGE)
    lines = run_memory("list").out.splitlines()
    assert max(map(len, lines)) <= 40
    shown = " ".join(" ".join(lines).split())
    assert shown == f"note-12345678 important read in /shared/page.md {words}"


def test_through_a_pipe_each_note_is_one_line(
    memory: FakeGateway, run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    text = "the boat lies in the old harbour " * 6
    memory.holds("note-12345678-9", text, tags=["boat", "t" * 64], origin=PAGE)
    memory.holds("note-2", "short")
    heading, short, line = run_memory("list").out.splitlines()
    assert heading.split("\t") == ["id", "updated", "tags", "mark", "text"]
    tags, mark, said = line.split("\t")[2:]
    assert (tags[:8], mark, said) == ("boat, tt", "read in /shared/page.md", text.strip())
    assert short.split("\t") == ["note-2", "", "", "", "short"]
    assert run_memory("show", "note-2").out.splitlines()[0] == "note\tnote-2"


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["show", "note-1"]])
def test_a_reader_that_goes_away_is_no_failure(
    memory: FakeGateway, run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    memory.holds("note-1")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        done = run_memory(*words)
    assert (done.code, done.err) == (0, "")


def test_an_export_whose_reader_goes_away_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with (
            pytest.raises(HostError, match="the export is incomplete"),
            group.new_file("-", force=False) as file,
        ):
            file.write(b"a line")


def test_a_terminal_of_another_encoding_shows_what_it_can(
    memory: FakeGateway, run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.holds("note-1", "caf\u00e9 \U0001f642")
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="latin-1"))
    assert run_memory("show", "note-1").code == 0
    sys.stdout.flush()
    assert b"caf\xe9 ?" in shown.getvalue()

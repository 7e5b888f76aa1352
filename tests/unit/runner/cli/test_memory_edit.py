"""`runner memory save|edit|forget`: what is written, what is refused, what is never lost."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.limits import NOTE_MAX_CHARS
from wire.v1 import gateway_pb2

from runner.cli import agent
from tests.support.gateway.fake_gateway import FakeGateway, Note
from tests.unit.runner.cli.conftest import RunCommand

FULL = WireError(Code.RESOURCE_EXHAUSTED, "the memory is full", resolution="forget something")
CHANGED = WireError(
    Code.CONFLICT, "the note note-1 has version 2 by now", resolution="read it again"
)


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the editor to a program of one line; `seen` is what it was given."""
    seen = tmp_path / "seen"

    def program(line: str) -> Path:
        script = tmp_path / "my editor.py"
        script.write_text(
            "import pathlib, sys\n"
            "path = pathlib.Path(sys.argv[1])\n"
            f"pathlib.Path({os.fspath(seen)!r}).write_bytes(path.read_bytes())\n{line}\n"
        )
        monkeypatch.setenv("EDITOR", f"'{sys.executable}' '{script}'")
        return seen

    return program


def kept(directory: Path) -> list[str]:
    return [path.read_text() for path in directory.glob("note-*.txt")]


def accepts(memory: FakeGateway) -> None:
    memory.saved = gateway_pb2.SaveNoteReply(
        note_id="note-1", message="Stored: [id: note-1]", searchable="semantic"
    )


def saves(memory: FakeGateway) -> list[gateway_pb2.SaveNoteRequest]:
    return [each for each in memory.seen if isinstance(each, gateway_pb2.SaveNoteRequest)]


def edits(memory: FakeGateway) -> list[gateway_pb2.EditNoteRequest]:
    return [each for each in memory.seen if isinstance(each, gateway_pb2.EditNoteRequest)]


def test_a_save_from_the_command_line(memory: FakeGateway, run_memory: RunCommand) -> None:
    accepts(memory)
    done = run_memory("save", "my boat", "--tag", "a", "--tag", "b", "--link", "https://x")
    assert (done.code, done.out, done.err) == (0, "Stored: [id: note-1]\n", "")
    (request,) = saves(memory)
    assert (request.text, list(request.tags), request.link) == ("my boat", ["a", "b"], "https://x")


def test_a_save_from_a_pipe(memory: FakeGateway, run_memory: RunCommand) -> None:
    accepts(memory)
    assert run_memory("save", "-", stdin="zwei\nZeilen ä\n\n".encode()).code == 0
    assert saves(memory)[0].text == "zwei\nZeilen ä"


def test_a_save_from_an_editor(
    memory: FakeGateway, run_memory: RunCommand, editor: Any, tmp_path: Path
) -> None:
    accepts(memory)
    seen = editor("path.write_text('written\\n')")
    assert run_memory("save", typed="").code == 0
    assert saves(memory)[0].text == "written"
    assert seen.read_bytes() == b""
    assert kept(tmp_path) == []


def test_similar_notes_are_shown(memory: FakeGateway, run_memory: RunCommand) -> None:
    accepts(memory)
    memory.saved.warnings.append("note-2 may say\x1b otherwise")
    assert run_memory("save", "x").err == "warning: note-2 may say␛ otherwise\n"
    accepts(memory)
    memory.saved.similar.append(Note(note_id="note-2", text="my boot", score=0.91))
    out = run_memory("save", "my boat").out
    assert "one may be out of date now" in out
    assert out.splitlines()[-1].split() == ["note-2", "0.91", "my", "boot"]
    told = json.loads(run_memory("save", "my boat", "--json").out)
    assert told == {
        "note_id": "note-1",
        "message": "Stored: [id: note-1]",
        "searchable": "semantic",
        "similar": [{"note_id": "note-2", "text": "my boot", "score": 0.91}],
    }


@pytest.mark.parametrize(("message", "note_id"), [("Stored: perhaps", ""), ("", "note-1")])
def test_it_is_not_called_saved_unless_the_agent_says_so(
    memory: FakeGateway, run_memory: RunCommand, message: str, note_id: str
) -> None:
    memory.saved = gateway_pb2.SaveNoteReply(message=message, note_id=note_id)
    for words in (["save", "x"], ["save", "x", "--json"]):
        done = run_memory(*words)
        assert (done.code, done.out) == (1, "")
        assert "the agent did not say that it is saved" in done.err


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        (["save"], b"ignored", "no text was given"),
        (["save", " \n"], b"", "there is no text"),
        (["save", "-"], b"\n", "there is no text"),
        (["save", "-"], b"\xff\xfe", "standard input is not UTF-8 text"),
        (["save", "-"], b"x" * (4 * NOTE_MAX_CHARS + 1), "more than a note can"),
        (["edit", "note-1"], b"ignored", "no text was given"),
        (["edit", "note-1", ""], b"", "there is no text"),
    ],
)
def test_what_is_no_text_is_refused_before_anything_is_sent(
    memory: FakeGateway, run_memory: RunCommand, words: list[str], stdin: bytes, why: str
) -> None:
    memory.holds("note-1")
    done = run_memory(*words, stdin=stdin)
    assert (done.code, done.out) == (1, "")
    assert why in done.err
    assert "  fix: " in done.err
    assert memory.seen == []


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (None, "neither VISUAL nor EDITOR is set"),
        ("/nowhere/vi", "/nowhere/vi: No such file or directory"),
        ("'", "No closing quotation"),
        ("false", "false ended with exit code 1"),
    ],
)
def test_an_editor_that_fails_changes_nothing(
    memory: FakeGateway,
    run_memory: RunCommand,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str | None,
    why: str,
) -> None:
    memory.holds("note-1")
    if command is not None:
        monkeypatch.setenv("VISUAL", command)
    done = run_memory("edit", "note-1", typed="")
    assert done.code == 1
    assert why in done.err
    assert "  fix: " in done.err
    assert (edits(memory), kept(tmp_path)) == ([], [])


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("path.write_text('mine'); sys.exit(1)", b"mine"),
        ("path.write_bytes(b'caf\\xe9')", b"caf\xe9"),
        ("path.unlink()", None),
        ("path.write_text(''); sys.exit(1)", None),
    ],
)
def test_what_was_written_in_an_editor_is_kept_where_it_cannot_be_used(
    memory: FakeGateway,
    run_memory: RunCommand,
    editor: Any,
    tmp_path: Path,
    line: str,
    left: bytes | None,
) -> None:
    memory.holds("note-1", "before")
    editor(line)
    done = run_memory("edit", "note-1", typed="")
    assert done.code == 1
    assert "nothing was changed" in done.err
    files = list(tmp_path.glob("note-*.txt"))
    assert [file.read_bytes() for file in files] == ([] if left is None else [left])
    assert all(f"what you wrote is in {file}\n" in done.err for file in files)
    assert edits(memory) == []


def test_an_edit_in_an_editor_begins_with_the_text_and_names_the_version(
    memory: FakeGateway, run_memory: RunCommand, editor: Any
) -> None:
    memory.holds("note-1", "one\ntwo", version=4, tags=["a"])
    seen = editor("path.write_text('one\\nthree\\n')")
    done = run_memory("edit", "1", typed="")
    assert (done.code, done.out) == (0, "note-1 has version 5 now\n")
    assert seen.read_bytes() == b"one\ntwo"
    (request,) = edits(memory)
    assert (request.note_id, request.text) == ("note-1", "one\nthree")
    assert (request.expected_version, request.replace_tags) == (4, False)


@pytest.mark.parametrize("text", ["same", "same\n", "sa\r\nme"])
@pytest.mark.parametrize("line", ["pass", "path.write_bytes(path.read_bytes().rstrip() + b'\\n')"])
def test_an_edit_that_changes_nothing_says_so(
    memory: FakeGateway, run_memory: RunCommand, editor: Any, text: str, line: str
) -> None:
    memory.holds("note-1", text)
    editor(line)
    done = run_memory("edit", "note-1", typed="")
    assert (done.code, done.out) == (0, "nothing changed\n")
    assert edits(memory) == []


def test_an_edit_for_programs(memory: FakeGateway, run_memory: RunCommand) -> None:
    memory.holds("note-1", "old")
    told = json.loads(run_memory("edit", "note-1", "new", "--json").out)
    assert (told["changed"], told["note"]["text"], told["note"]["version"]) == (True, "new", 2)
    told = json.loads(run_memory("edit", "note-1", "new", "--json").out)
    assert (told["changed"], told["note"]["version"]) == (False, 2)


def test_tags_are_replaced_or_taken_off_and_the_text_stays(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", "text", tags=["a"])
    assert run_memory("edit", "note-1", "--tag", "b").code == 0
    assert (memory.notes["note-1"].text, list(memory.notes["note-1"].tags)) == ("text", ["b"])
    assert run_memory("edit", "note-1", "--tag", "b").out == "nothing changed\n"
    assert run_memory("edit", "note-1", "-", "--no-tags", stdin=b"new").code == 0
    assert (memory.notes["note-1"].text, list(memory.notes["note-1"].tags)) == ("new", [])
    assert run_memory("edit", "note-1", "--tag", "b", "--no-tags").code == 2


@pytest.mark.parametrize("refusal", [CHANGED, FULL])
@pytest.mark.parametrize("words", [["new"], ["-"]])
def test_an_edit_that_is_refused_keeps_what_was_written(
    memory: FakeGateway,
    run_memory: RunCommand,
    tmp_path: Path,
    refusal: WireError,
    words: list[str],
) -> None:
    memory.holds("note-1", "old")
    memory.refusal = refusal
    done = run_memory("edit", "note-1", *words, stdin=b"new\n")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(refusal.brief)
    (file,) = tmp_path.glob("note-*.txt")
    assert f"  fix: {refusal.resolution}; your text is in {file}\n" in done.err
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_save_that_is_refused_keeps_what_was_piped_and_not_what_the_shell_knows(
    memory: FakeGateway, run_memory: RunCommand, tmp_path: Path
) -> None:
    memory.refusal = FULL
    assert run_memory("save", "typed").err == "the memory is full\n  fix: forget something\n"
    assert kept(tmp_path) == []
    assert "your text is in" in run_memory("save", "-", stdin=b"piped").err
    assert kept(tmp_path) == ["piped"]


def test_a_failure_of_another_kind_keeps_the_text_too(
    run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(agent, "connect_control", broken)
    done = run_memory("save", "-", stdin=b"piped")
    assert done.code == 1
    assert f"your text is in {tmp_path}" in done.err
    assert kept(tmp_path) == ["piped"]


def test_forgetting_asks_once_for_all(memory: FakeGateway, run_memory: RunCommand) -> None:
    memory.holds("note-1", "the boat")
    memory.holds("note-2", "the car")
    no = run_memory("forget", "1", "2", "note-1", typed="n\n")
    assert (no.code, no.out.strip(), len(memory.notes)) == (1, "", 2)
    assert "note-1  the boat\nnote-2  the car\nForget these 2 notes?" in no.err
    assert no.err.endswith("nothing was changed\n")
    yes = run_memory("forget", "1", "2", "note-1", typed="y\n")
    assert (yes.code, yes.out.lstrip()) == (0, "note-1 is forgotten\nnote-2 is forgotten\n")
    assert memory.notes == {}


def test_an_end_of_input_is_a_no(memory: FakeGateway, run_memory: RunCommand) -> None:
    memory.holds("note-1")
    done = run_memory("forget", "note-1", typed="")
    assert (done.code, done.out.strip()) == (1, "")
    assert done.err.endswith("nothing was changed\n")
    assert "note-1" in memory.notes


@pytest.mark.parametrize("typed", ["", "n\n"])
def test_who_does_not_say_yes_restores_nothing(
    run_memory: RunCommand, tmp_path: Path, typed: str
) -> None:
    (tmp_path / "backup.db").touch()
    done = run_memory("restore", "backup.db", typed=typed)
    assert done.code == 1
    assert "Replace the memory of default with backup.db?" in done.err
    assert done.err.endswith("nothing was changed\n")


def test_without_a_terminal_forgetting_needs_a_yes(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1")
    refused = run_memory("forget", "1", stdin=b"y\n")
    assert (refused.code, refused.out) == (1, "")
    assert "nobody can be asked whether to forget this note\n" in refused.err
    assert "  fix: runner memory forget note-1 --yes\n" in refused.err
    done = run_memory("forget", "1", "--yes", "--json")
    assert json.loads(done.out) == {"forgotten": ["note-1"]}


def test_an_unknown_id_among_others_forgets_nothing(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1")
    done = run_memory("forget", "note-1", "note-x", "--yes")
    assert (done.code, done.out) == (1, "")
    assert "note not found: note-x" in done.err
    assert "note-1" in memory.notes


def test_what_was_forgotten_before_a_failure_is_told(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1")
    memory.holds("note-2")
    memory.refusal, memory.accepted = WireError(Code.UNAVAILABLE, "the server is away"), 1
    done = run_memory("forget", "1", "2", "--yes")
    assert (done.code, done.out) == (1, "note-1 is forgotten\n")
    assert done.err == "the server is away\n"

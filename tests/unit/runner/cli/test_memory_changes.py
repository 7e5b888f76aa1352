"""`runner memory history|undo`: what was written, by whom, and how it is taken back."""

import json
from collections.abc import Sequence

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.memory.notes import restored_by_undo
from tests.support.gateway.fake_gateway import Change, FakeGateway, Origin
from tests.unit.runner.cli.conftest import RunCommand

PAGE = Origin(
    actor="automatic", channel="cli", session_id="s1", turn_id="t1", link="/p.md", material=True
)
USER = Origin(actor="user", session_id="s2")


def two_notes(memory: FakeGateway) -> None:
    memory.holds("note-1", "one\ntwo", origin=USER)
    memory.changed("note-1", 2, "one\nthree", origin=PAGE, current=True)
    memory.holds("note-2", "other", origin=USER)
    memory.changed("note-2", 1, "no longer so", "supersede", superseded_by="note-1")


def undos(memory: FakeGateway) -> list[gateway_pb2.UndoChangeRequest]:
    return [each for each in memory.seen if isinstance(each, gateway_pb2.UndoChangeRequest)]


def test_all_changes_are_a_table(memory: FakeGateway, run_memory: RunCommand) -> None:
    two_notes(memory)
    done = run_memory("history")
    assert (done.code, done.err) == (0, "")
    assert [" ".join(line.split()) for line in done.out.splitlines()] == [
        "when what note who text",
        "2026-11-21 11:00:03 CET superseded note-2 no longer so",
        "2026-11-21 11:00:02 CET saved, version 1 note-2 user other",
        "2026-11-21 11:00:01 CET updated, version 2 note-1 read in /p.md one …",
        "2026-11-21 11:00:00 CET saved, version 1 note-1 user one …",
    ]


def test_changes_are_narrowed_and_counted(memory: FakeGateway, run_memory: RunCommand) -> None:
    two_notes(memory)
    memory.page = 1

    def found(*words: str) -> tuple[list[tuple[str, int]], bool]:
        told = json.loads(run_memory("history", *words, "--json").out)
        return [(each["note_id"], each["version"]) for each in told["changes"]], told["more"]

    assert found("--limit", "2") == ([("note-2", 1), ("note-2", 1)], True)
    assert found("--limit", "4")[1] is False
    assert found("--from", "user") == ([("note-2", 1), ("note-1", 1)], False)
    assert found("--from-material") == ([("note-1", 2)], False)
    assert found("--session", "s1") == ([("note-1", 2)], False)
    assert found("1") == ([("note-1", 2), ("note-1", 1)], False)
    assert run_memory("history", "--session", "s3").out == "nothing was changed\n"
    limited = run_memory("history", "--limit", "2")
    assert limited.err == "these are the first 2; --limit shows more\n"


def test_the_history_of_a_note_shows_what_was_changed(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    two_notes(memory)
    done = run_memory("history", "note-1")
    assert done.out == (
        "updated, version 2  2026-11-21 11:00:01 CET  the runtime kept it by itself "
        "(through cli, in s1, turn t1); from what was read, unconfirmed\n"
        "from /p.md\n"
        "@@ -1,2 +1,2 @@\n one\n-two\n+three\n\n"
        "saved, version 1  2026-11-21 11:00:00 CET  the user said so (in s2)\none\ntwo\n\n"
    )
    assert "-two" in run_memory("history", "note-1", "--limit", "1").out
    assert run_memory("history", "note-1", "--brief").out.startswith("when")
    memory.changed("note-1", 2, "a reason", "supersede", superseded_by="note-2")
    superseded = run_memory("history", "note-1").out
    assert superseded.startswith("superseded  2026-11-21 11:00:04 CET  by note-2\na reason\n")


def test_differences_are_coloured_on_a_terminal(
    memory: FakeGateway, run_memory: RunCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_notes(memory)
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    out = run_memory("history", "note-1").out
    assert "\x1b[31m-two\x1b[0m" in out
    assert "\x1b[32m+three\x1b[0m" in out


def test_a_version_with_the_same_text_says_what_else_it_changed(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", "text")
    memory.changed("note-1", 2, "text", tags=["a", "b"])
    memory.changed("note-1", 3, "text", tags=["a", "b"])
    same, tagged, _, _ = run_memory("history", "note-1").out.split("\n\n")
    assert same.endswith("\n(the same text)")
    assert tagged.endswith("\ntags: none → a, b")


@pytest.mark.parametrize(
    ("kinds", "restored"),
    [
        (["save"], 0),
        (["save", "update"], 1),
        (["save", "update", "append"], 2),
        (["save", "update", "append", "undo"], 1),
        (["save", "update", "append", "undo", "undo"], 0),
        (["save", "update", "append", "undo", "update"], 2),
        (["save", "update", "append", "undo", "update", "undo"], 1),
        (["save", "update", "append", "undo", "supersede", "undo"], 0),
        ([], None),
        (["undo"], None),
    ],
)
def test_undoing_again_goes_further_back(kinds: Sequence[str], restored: int | None) -> None:
    changes: list[Change] = []
    for kind in kinds:
        version = sum(each.change != "supersede" for each in changes) + (kind != "supersede")
        changes.insert(0, Change(change=kind, version=version))
    assert restored_by_undo(changes) == restored


def test_an_undo_shows_what_it_brings_back_and_asks(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    two_notes(memory)
    memory.notes["note-1"].version = 2
    no = run_memory("undo", "1", typed="n\n")
    assert (no.code, no.out.strip(), undos(memory)) == (1, "", [])
    assert "Bring back what version 1 said?\none two\n" in no.err
    yes = run_memory("undo", "1", typed="y\n")
    assert (yes.code, yes.out.strip()) == (0, "note-1 has version 3 now: as it was")
    (request,) = undos(memory)
    assert (request.note_id, request.expected_version) == ("note-1", 2)
    assert not request.may_forget


def test_without_a_terminal_an_undo_needs_a_yes(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    two_notes(memory)
    memory.notes["note-1"].version = 2
    refused = run_memory("undo", "1", stdin=b"y\n")
    assert refused.code == 1
    assert "nobody can be asked whether to take this change back\n" in refused.err
    assert "  fix: runner memory undo note-1 --yes\n" in refused.err
    told = json.loads(run_memory("undo", "1", "--yes", "--json").out)
    assert (told["note_id"], told["done"], told["note"]["version"]) == ("note-1", "restored", 3)


def test_undoing_a_first_version_asks_to_forget(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", "the boat")
    done = run_memory("undo", "1", typed="y\n")
    assert "There is no version before this one. Forget the note?" in done.err
    assert (done.code, done.out.strip()) == (0, "note-1 is forgotten")
    assert undos(memory)[0].may_forget
    memory.holds("note-2", "the car")
    told = json.loads(run_memory("undo", "2", "--yes", "--json").out)
    assert told == {"note_id": "note-2", "done": "forgotten", "note": None}


def test_undoing_a_superseded_note_lets_it_count_again(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", superseded=True, superseded_by="note-2")
    done = run_memory("undo", "1", typed="y\n")
    assert "This note was superseded. Make it active again?" in done.err
    assert (done.code, done.out.strip()) == (0, "note-1 counts again")
    assert not undos(memory)[0].may_forget


def test_a_history_that_does_not_tell_is_asked_about_plainly(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", version=3)
    done = run_memory("undo", "1", typed="y\n")
    assert "Take version 3 back?" in done.err
    assert not undos(memory)[0].may_forget


def test_a_note_that_was_changed_meanwhile_is_left_as_it_is(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    two_notes(memory)
    memory.notes["note-1"].version = 2
    memory.refusal = WireError(Code.CONFLICT, "the note note-1 has version 3 by now")
    done = run_memory("undo", "1", "--yes")
    assert (done.code, done.out) == (1, "")
    assert done.err == "the note note-1 has version 3 by now\n"

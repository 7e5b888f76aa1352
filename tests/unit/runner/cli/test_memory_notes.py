"""`runner memory search|list|show|review`, and the ids that all of them take."""

import json
import shlex
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from tests.support.gateway.fake_gateway import FakeGateway, Note, Origin
from tests.unit.runner.cli.conftest import RunCommand

PAGE = Origin(actor="agent", session_id="s1", turn_id="t1", link="/shared/page.md", material=True)


def written(run_memory: RunCommand, *words: str) -> Any:
    done = run_memory(*words, "--json")
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def test_a_search_shows_what_fits_and_warns_apart(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", "my boat is Albatross", score=0.873, tags=["boat", "name"])
    memory.holds("", "a boat", score=0.5, source="conversation", type="")
    memory.warnings = ["the embedder is\x1b away"]
    done = run_memory("search", "boat", "--limit", "3", "--tag", "boat", "--conversations")
    assert done.code == 0
    heading, said, note = done.out.splitlines()
    assert heading.split() == ["id", "score", "updated", "tags", "mark", "text"]
    assert said.split() == ["(said)", "0.50", "conversation", "a", "boat"]
    assert note.split() == ["note-1", *["0.87", "boat,", "name", "my", "boat", "is", "Albatross"]]
    assert done.err == "warning: the embedder is␛ away\n"
    (request,) = memory.seen
    assert (request.query, request.top_k, list(request.tags)) == ("boat", 3, ["boat"])
    assert request.include_conversation


def test_a_search_for_programs(memory: FakeGateway, run_memory: RunCommand) -> None:
    memory.holds("note-1", "one two", score=0.5, matched_by="both", source="user_memory")
    memory.warnings = ["slow"]
    done = run_memory("search", "one", "two", "--json")
    assert done.err == "warning: slow\n"
    told = json.loads(done.out)
    assert ([each["text"] for each in told["notes"]], told["warnings"]) == (["one two"], ["slow"])
    assert run_memory("search", "nowhere").out == "nothing found\n"


def test_a_search_says_which_time_it_has_read_and_takes_days(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-1", "yesterday", score=0.5)
    memory.reads_time = True
    done = run_memory("search", "yesterday", "--json")
    assert done.err == "on 26 November 2026; --since all searches any time\n"
    assert json.loads(done.out)["period"] == "on 26 November 2026"
    for options, since, until in (
        (("--since", "2026-11-01", "--until", "2026-11-30"), "2026-11-01", "2026-11-30"),
        (("--since", "all"), "", ""),
        (("--since", "yesterday"), "yesterday", ""),
        (("--until", "2026-11-30"), "", "2026-11-30"),
    ):
        assert run_memory("search", "yesterday", *options).err == ""
        asked = memory.seen[-1]
        assert (asked.since, asked.until, asked.read_time) == (since, until, False)


def test_a_search_says_how_to_see_more(memory: FakeGateway, run_memory: RunCommand) -> None:
    for number in range(5):
        memory.holds(f"note-{number}", f"my cat {number}", score=0.5)
    words = ("search", "my", "cat", "--tag", "a b", "--since", "7d", "--conversations")
    done = run_memory(*words, "--limit", "2")
    command = done.err.removeprefix("there is more: ").split(" memory ")[1]
    assert len(done.out.splitlines()) == 3
    following = run_memory(*shlex.split(command))
    assert [line.split()[0] for line in following.out.splitlines()[1:]] == ["note-2", "note-1"]
    first, second = memory.seen
    first.cursor = second.cursor
    assert first == second
    assert written(run_memory, *words, "--limit", "3")["next_cursor"] == "3"
    last = run_memory(*words, "--limit", "3", "--cursor", "3")
    assert (last.err, written(run_memory, *words)["next_cursor"]) == ("", "")


def test_without_words_a_search_names_the_list(memory: FakeGateway, run_memory: RunCommand) -> None:
    memory.holds("note-1")
    done = run_memory("search", "--since", "7d", "--tag", "boat")
    assert done.code == 2
    told = " ".join(done.err.replace("│", " ").split())
    assert "a search needs words; a list needs none: " in told
    assert "memory list --tag boat --since 7d" in told
    assert run_memory("list", "--since", "2026-11-22", "--until", "last week").code == 0
    (asked,) = memory.seen
    assert (asked.since, asked.until) == ("2026-11-22", "last week")


def test_a_list_goes_from_page_to_page_and_says_that_it_goes_on(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.page = 2
    for number in range(5, 0, -1):
        memory.holds(f"note-{number}")
    done = run_memory("list", "--limit", "3")
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["note-1", "note-2", "note-3"]
    assert done.err == "these are the first 3; --limit shows more\n"
    assert run_memory("list", "--limit", "5").err == ""
    everything = written(run_memory, "list", "--limit", "1", "--all")
    assert [len(everything["notes"]), everything["more"]] == [5, False]
    first = written(run_memory, "list", "--limit", "1")
    assert [len(first["notes"]), first["more"]] == [1, True]


def test_a_list_is_narrowed_by_where_notes_come_from(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds("note-user", origin=Origin(actor="user"), tags=["x"])
    memory.holds("note-page", origin=PAGE, type="decision")
    memory.holds("note-old", superseded=True, key="scratchpad", scope_session="s1")

    def ids(*words: str) -> list[str]:
        return [note["note_id"] for note in written(run_memory, "list", *words)["notes"]]

    assert ids() == ["note-page", "note-user"]
    assert ids("--from-material") == ["note-page"]
    assert ids("--from", "agent") == ["note-page"]
    assert ids("--type", "decision") == ["note-page"]
    assert ids("--tag", "x") == ["note-user"]
    assert ids("--superseded") == ["note-old", "note-page", "note-user"]
    shown = run_memory("list", "--superseded").out
    assert "decision, read in /shared/page.md" in shown
    assert "superseded, key scratchpad, of one session" in shown
    assert run_memory("list", "--tag", "none").out == "no notes\n"
    assert run_memory("list", "--from", "nobody").code == 2


def test_everything_of_a_note_is_shown_in_words(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    memory.holds(
        "note-1",
        "first line\nsecond line",
        version=3,
        tags=["a", "b"],
        created_at="2026-11-20T08:00:00.000000Z",
        updated_at="2026-11-21T09:00:00.000000Z",
        type="lesson_learned",
        confidence=0.8,
        rationale="it went wrong twice",
        key="plan",
        access_count=2,
        accessed_at="2026-11-21T10:00:00.000000Z",
        superseded=True,
        superseded_by="note-2",
        superseded_reason="no longer so",
        superseded_at="2026-11-21T11:00:00.000000Z",
        scope_session="s9",
        origin=Origin(
            actor="agent", channel="cli", session_id="s1", turn_id="t1", link="/p", material=True
        ),
    )
    done = run_memory("show", "note-1")
    assert done.code == 0
    for line in (
        "superseded  by note-2, 2026-11-21 12:00:00 CET: no longer so",
        "type        lesson learned",
        "confidence  0.8",
        "rationale   it went wrong twice",
        "key         plan",
        "tags        a, b",
        "version     3, of 2026-11-21 10:00:00 CET; earlier ones since 2026-11-20 09:00:00 CET: "
        "runner memory history note-1",
        "origin      the agent decided to keep it (through cli, in s1, turn t1); from what was "
        "read, unconfirmed",
        "link        /p",
        "seen by     session s9 only",
        "recalled    2 times, last 2026-11-21 11:00:00 CET",
        "found by    words only; it has no vectors yet",
    ):
        assert line in done.out
    assert done.out.endswith("\n\nfirst line\nsecond line\n")


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (Origin(actor="user"), "the user said so"),
        (Origin(actor="automatic"), "the runtime kept it by itself"),
        (Origin(actor="import"), "it was imported"),
        (Origin(), "not known"),
        (
            Origin(actor="user", material=True),
            "the user brought it back; from what was read, unconfirmed",
        ),
    ],
    ids=["user", "automatic", "import", "unknown", "brought back"],
)
def test_who_has_written_a_note(
    memory: FakeGateway, run_memory: RunCommand, origin: Origin, words: str
) -> None:
    memory.holds("note-1", origin=origin)
    assert f"origin      {words}\n" in "\n".join(
        line.rstrip() for line in run_memory("show", "note-1").out.splitlines()
    )


@pytest.mark.parametrize("given", ["", "a b", "\x1b[31m"])
def test_what_can_be_no_id_is_not_found(
    memory: FakeGateway, run_memory: RunCommand, given: str
) -> None:
    memory.holds("note-1")
    memory.unreadable = WireError(Code.INVALID_ARGUMENT, "bad note_id")
    done = run_memory("show", given)
    assert done.code == 1
    assert "  why: no id begins like this\n  fix: runner memory list" in done.err


def test_a_long_text_ends_with_an_ellipsis(memory: FakeGateway, run_memory: RunCommand) -> None:
    many = [f"{number}{'t' * 60}" for number in range(16)]
    memory.holds("note-1", "x" * 500, tags=many, origin=Origin(link="y" * 900, material=True))
    listed = run_memory("list").out
    assert all(f"{letter}…" in listed for letter in "xty")
    assert len(listed.splitlines()) < 10
    assert "y…" in run_memory("history").out
    shown = run_memory("show", "note-1").out
    assert "x" * 500 in shown.replace("\n", "")
    assert (shown.count("t") > 16 * 60, shown.count("y") > 900) == (True, True)


def test_an_ambiguous_beginning_names_the_notes(
    memory: FakeGateway, run_memory: RunCommand
) -> None:
    for number in range(7):
        memory.holds(f"note-1{number}", f"text {number}")
    done = run_memory("show", "1")
    assert done.code == 1
    assert "1 can mean 7 notes\n" in done.err
    assert "note-16 (text 6), note-15 (text 5)" in done.err
    assert "and 2 more" in done.err
    missing = run_memory("show", "x")
    assert missing.code == 1
    assert "note not found: x\n  why: no id begins like this" in missing.err
    theirs = run_memory("show", "x", "--user", "bob")
    assert "  fix: runner --user bob memory list --all --superseded\n" in theirs.err


def test_a_review_names_the_command_that_mends(memory: FakeGateway, run_memory: RunCommand) -> None:
    older = memory.holds("note-1", "the boat is red", updated_at="2026-01-01T00:00:00.000000Z")
    newer = memory.holds("note-2", "the boat is blue", origin=PAGE)
    memory.reviewed = gateway_pb2.ReviewMemoryReply(
        near=[
            gateway_pb2.NearPair(older=older, newer=newer, similarity=0.934, may_contradict=True),
            gateway_pb2.NearPair(older=older, newer=newer),
        ],
        stale=[older, Note(note_id="note-3", accessed_at="2026-02-02T00:00:00.000000Z")],
        warnings=["only 10,000 notes were compared"],
    )
    done = run_memory("review", "--stale-days", "30", "--limit", "7")
    assert (done.code, done.err) == (0, "warning: only 10,000 notes were compared\n")
    assert done.out.startswith("93% alike, may contradict\n  older  2026-01-01  the boat is red\n")
    assert "the boat is blue  [read in /shared/page.md]\n" in done.out
    assert "alike by their words\n" in done.out
    assert "  only the newer holds  runner memory forget note-1\n" in done.out
    assert "  only the older holds  runner memory forget note-2\n" in done.out
    assert "  both in one           runner memory edit note-2\n" in done.out
    assert "last written, and never recalled, 2026-01-01\n" in done.out
    assert "last recalled 2026-02-02\n" in done.out
    assert "  it does not     runner memory forget note-3\n" in done.out
    (request,) = memory.seen
    assert (request.stale_days, request.limit) == (30, 7)


def test_a_review_for_programs(memory: FakeGateway, run_memory: RunCommand) -> None:
    nothing: dict[str, Any] = {"similar": [], "stale": [], "warnings": []}
    assert written(run_memory, "review") == nothing
    assert run_memory("review").out.startswith("nothing to review")
    note = memory.holds("note-1")
    pair = gateway_pb2.NearPair(older=note, newer=note)
    memory.reviewed = gateway_pb2.ReviewMemoryReply(near=[pair], stale=[note])
    found = written(run_memory, "review")
    assert found["similar"][0]["older"]["note_id"] == "note-1"
    assert found["stale"] == [written(run_memory, "show", "note-1")]


def test_the_help_names_every_command_in_a_sensible_order(run_memory: RunCommand) -> None:
    out = run_memory("--help").out
    order = ["search", "list", "show", "save", "edit", "forget", "history", "undo", "review"]
    places = [out.index(f"│ {name} ") for name in [*order, "stats", "export", "token"]]
    assert places == sorted(places)

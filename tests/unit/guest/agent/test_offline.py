"""The built-in model: commands, truthfulness, and what "that" means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, TextPart, ToolCallPart, UserPromptPart
from wire.tools import TOOLS

from guest.agent.models import offline
from guest.agent.models.offline import Step, View
from tests.support.agent.offline_notes import Notes, Talk
from tests.support.examples import examples

ALL = frozenset(TOOLS)


def first_step(text: str, offered: frozenset[str] = ALL, reason: str = "") -> Step:
    view = offline.view_of([ModelRequest(parts=[UserPromptPart(text)])], offered)
    return offline.step(view, reason)


def test_the_main_job() -> None:
    talk = Talk(Notes())
    saved = talk.say("remember that my name is Shantanu")
    assert "note-1" in saved
    assert talk.notes.texts == {"note-1": "my name is Shantanu"}
    found = talk.say("what do you know about my name?")
    assert "my name is Shantanu" in found
    assert "note-1" in found
    changed = talk.say("correct that: I prefer to be called SG")
    assert "Updated" in changed
    assert "note-1" in changed
    assert talk.notes.texts == {"note-1": "my name: I prefer to be called SG"}
    again = talk.say("what do you know about my name?")
    assert "I prefer to be called SG" in again
    assert "Shantanu" not in again
    denied = talk.say("read /../.oxydra/memory.db")
    assert "path is outside /shared, /tmp and /vault: /../.oxydra/memory.db" in denied
    gone = talk.say("forget my name")
    assert "Deleted" in gone
    assert "note-1" in gone
    nothing = talk.say("what do you know about my name?")
    assert nothing.startswith("I know nothing about your name.")
    assert talk.notes.texts == {}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('{"path": "/shared/a", "content": "x\\ny"}\nNote: one', "x\ny\nNote: one"),
        ('{"path": "/shared/a", "content": ""}', "/shared/a: it is empty"),
        (
            '{"path": "/shared/a", "binary": true, "kind": "PNG image"}\nNote: one\n'
            "Note: pictures that follow, in this turn alone: 1",
            "/shared/a: PNG image\nNote: one",
        ),
        ('{"path": "/shared/a", "con\nNote: cut', '{"path": "/shared/a", "con\nNote: cut'),
    ],
)
def test_of_a_file_the_text_or_the_kind_is_said_and_each_note_once(told: str, said: str) -> None:
    class Files(Notes):
        def file_read(self, path: str) -> tuple[bool, str]:
            assert path == "/shared/a"
            return True, told

    assert Talk(Files()).say("read /shared/a") == said


def test_a_new_session_still_knows_and_can_correct_what_it_found() -> None:
    notes = Notes()
    Talk(notes).say("remember my name is Shantanu")
    second = Talk(notes)
    assert "Shantanu" in second.say("what is my name?")
    assert "Updated" in second.say("no, I prefer to be called SG")
    assert notes.texts == {"note-1": "my name: I prefer to be called SG"}


def test_a_correction_that_names_its_subject_is_stored_as_said() -> None:
    talk = Talk(Notes())
    talk.say("remember that my favourite colours are red and blue")
    talk.say("correct that: my favourite colour is green")
    assert talk.notes.texts == {"note-1": "my favourite colour is green"}


def test_the_subject_survives_several_corrections() -> None:
    talk = Talk(Notes())
    talk.say("remember: my name is Shantanu")
    talk.say("correct that: call me SG")
    talk.say("correct that: call me Shan")
    assert talk.notes.texts == {"note-1": "my name: call me Shan"}


def test_weak_semantic_neighbours_are_never_facts() -> None:
    talk = Talk(Notes())
    talk.notes.extra_hits = [
        {"note_id": "note-x", "text": "the boiler is due", "score": 0.3, "matched_by": "semantic"}
    ]
    answer = talk.say("what do you know about my name?")
    assert answer.startswith("I know nothing about your name")
    assert "Possibly related" in answer
    talk.say("remember that my name is Shantanu")
    first, _, rest = talk.say("what do you know about my name?").partition("Possibly related")
    assert "Shantanu" in first
    assert "boiler" not in first
    assert "boiler" in rest


def test_what_was_only_saved_beside_a_fact_is_not_one() -> None:
    talk = Talk(Notes())
    talk.say("remember that the lantern is in the shed")
    talk.notes.extra_hits = [
        {"note_id": "note-x", "text": "tea is at five", "score": 0.4, "matched_by": "keyword"}
    ]
    answer = talk.say("what do you know about the lantern's colour?")
    first, _, rest = answer.partition("Possibly related")
    assert "shed" in first
    assert "tea" not in first
    assert "tea" in rest


def test_a_search_without_result_leaves_nothing_to_correct() -> None:
    talk = Talk(Notes())
    talk.say("remember that my name is Shantanu")
    talk.say("what do you know about my job?")
    assert "do not know which note" in talk.say("correct that: I am a baker")
    assert talk.notes.texts == {"note-1": "my name is Shantanu"}


def test_forgetting_asks_where_several_notes_match() -> None:
    talk = Talk(Notes())
    talk.say("remember my dog likes long walks")
    talk.say("remember my dog likes carrots")
    answer = talk.say("forget my dog")
    assert "I deleted nothing" in answer
    assert "note-1" in answer
    assert "note-2" in answer
    assert "Deleted" in talk.say("forget note-2")
    assert talk.notes.texts == {"note-1": "my dog likes long walks"}
    assert "note not found: note-2" in talk.say("forget note-2")


def test_forgetting_takes_the_one_note_whose_subject_is_the_topic() -> None:
    talk = Talk(Notes())
    talk.say("remember that my name is Shantanu")
    talk.say("remember that the name of my dog is Rex")
    assert "note-1" in talk.say("forget my name")
    assert list(talk.notes.texts) == ["note-2"]


def test_forgetting_never_deletes_what_only_seems_related() -> None:
    talk = Talk(Notes())
    talk.notes.texts["note-x"] = "the boiler is due"
    talk.notes.extra_hits = [
        {"note_id": "note-x", "text": "the boiler is due", "score": 0.9, "matched_by": "semantic"}
    ]
    assert "I deleted nothing" in talk.say("forget my heating")
    assert "note-x" in talk.notes.texts


def test_a_note_that_shares_only_some_words_is_neither_deleted_nor_changed() -> None:
    talk = Talk(Notes())
    Talk(talk.notes).say("remember that my favourite food is pizza")
    assert "I deleted nothing" in talk.say("forget my favourite colour")
    assert "pizza" in talk.say("what do you know about my favourite colour?")
    assert "do not know which note" in talk.say("correct that: my favourite colour is blue")
    assert talk.notes.texts == {"note-1": "my favourite food is pizza"}


@pytest.mark.parametrize(
    ("one", "other"), [("colours", "colour"), ("hobbies", "hobby"), ("SG's", "SG")]
)
def test_plurals_and_genitives_meet(one: str, other: str) -> None:
    assert offline.content_words(one) == offline.content_words(other)


def test_forget_that_means_the_note_in_focus() -> None:
    talk = Talk(Notes())
    assert "do not know which note" in talk.say("forget that")
    talk.say("remember that my name is Shantanu")
    assert "Deleted" in talk.say("forget that")
    assert talk.notes.texts == {}
    assert "do not know which note" in talk.say("forget it")


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("remember that my name is Shantanu", "could not save"),
        ("what do you know about my name?", "could not search"),
        ("forget my name", "deleted nothing"),
        ("forget note-1", "deleted nothing"),
        ("update note-1: something else", "changed nothing"),
    ],
)
def test_a_failed_tool_is_reported_as_it_is(text: str, claim: str) -> None:
    talk = Talk(Notes())
    talk.notes.broken = "the tool is unavailable: disk full"
    answer = talk.say(text)
    assert claim in answer
    assert "disk full" in answer


def test_a_degraded_search_is_not_silent() -> None:
    assert "Note: semantic search is unavailable" in Talk(Notes()).say("what's my name?")


def test_results_cut_short_are_asked_for_again_one_at_a_time() -> None:
    talk = Talk(Notes())
    talk.notes.memory_search = lambda query, top_k=5: (  # type: ignore[method-assign]
        True,
        '[{"note_id": "note-1", "te' if top_k == 5 else "[]",
    )
    assert talk.say("what do you know about my name?") == "I know nothing about your name."
    assert [arguments.get("top_k") for _, arguments in talk.calls] == [None, 1]


@pytest.mark.parametrize("text", ["no, thanks", "no, thank you very much", "no, never mind that"])
def test_a_polite_no_corrects_nothing(text: str) -> None:
    talk = Talk(Notes())
    talk.say("remember that my name is Shantanu")
    assert "did not understand" in talk.say(text)
    assert talk.notes.texts == {"note-1": "my name is Shantanu"}


def test_a_no_corrects_only_the_turn_right_before() -> None:
    talk = Talk(Notes())
    talk.say("remember that my name is Shantanu")
    talk.say("help")
    assert "did not understand" in talk.say("no, it is something else")


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Remember That I like tea.", "memory_save", {"content": "I like tea."}),
        ("please remember: two\nlines", "memory_save", {"content": "two\nlines"}),
        ("remember thatched roofs leak", "memory_save", {"content": "thatched roofs leak"}),
        ("Do you remember my birthday?", "memory_search", {"query": "my birthday"}),
        ("search for boats", "memory_search", {"query": "boats"}),
        ("What’s my name?!", "memory_search", {"query": "my name"}),
        ("read /shared/a b.txt", "file_read", {"path": "/shared/a b.txt"}),
        ("list /shared", "file_list", {"path": "/shared"}),
        ("write /shared/a.txt: x: y", "file_write", {"path": "/shared/a.txt", "content": "x: y"}),
        ("find needle in /shared", "file_search", {"query": "needle", "path": "/shared"}),
        ("run ls -l", "shell_exec", {"command": "ls -l"}),
        ("forget note-ab12", "memory_delete", {"note_id": "note-ab12"}),
        ("update note-1: new", "memory_update", {"note_id": "note-1", "content": "new"}),
    ],
)
def test_commands_become_calls(text: str, tool: str, arguments: dict[str, str]) -> None:
    taken = first_step(text)
    assert isinstance(taken, ToolCallPart)
    assert taken.tool_name == tool
    assert arguments.items() <= taken.args_as_dict().items()


@pytest.mark.parametrize(
    "text", ["hi", "Hello!", "help", "who are you?", "tell me a story", "", "∅"]
)
def test_it_says_what_it_is(text: str) -> None:
    taken = first_step(text)
    assert isinstance(taken, TextPart)
    assert "I am the built-in offline model" in taken.content


def test_without_a_shell_it_says_why() -> None:
    taken = first_step("run ls", ALL - {"shell_exec"}, "bubblewrap is not installed")
    assert taken == TextPart("There is no shell here: bubblewrap is not installed.")


def test_a_disabled_tool_is_named() -> None:
    taken = first_step("remember that I like tea", frozenset())
    assert isinstance(taken, TextPart)
    assert "memory_save is switched off" in taken.content


@examples(30)
@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    assert isinstance(first_step(text), TextPart | ToolCallPart)


@given(
    st.sampled_from(
        ["remember ", "forget ", "no, ", "correct that: ", "what is my ", "update note-1: "]
    ),
    st.text(),
    st.sampled_from(
        ["[]", "{}", "null", "1", '"x"', "[1]", '[{"matched_by": "both"}]', "nonsense"]
    ),
)
def test_any_result_has_an_answer(command: str, text: str, result: str) -> None:
    notes = Notes()
    notes.call = lambda tool, arguments: (True, result)  # type: ignore[method-assign]
    talk = Talk(notes)
    talk.say("remember that my name is Shantanu")
    assert talk.say(command + text)


def test_a_view_of_nothing() -> None:
    assert offline.view_of([], ()) == View("", (), None, frozenset())

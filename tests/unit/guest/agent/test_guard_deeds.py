"""What calls really did: saves that are taken back, half of a wish, looks and failed commands."""

from typing import Any

import pytest

from guest.agent.guard.forgotten import forgotten
from guest.agent.guard.statements import without
from guest.tools.base import Safety
from tests.unit.guest.agent.guard_fakes import House, calls, doing, save

NOTHING = "(In truth nothing was saved or changed in this turn: no tool did it.)"
SAVED = "(Saved by the runtime, as you asked: Stored: [id: note-{}] “{}”)"
DELETED = ("memory_delete", {"note_id": "note-1"})
FORGOTTEN = ("forget", {"memory_id": "note-1"})


# A save that did not last


@pytest.mark.parametrize("gone", [DELETED, FORGOTTEN])
async def test_what_a_model_saves_and_takes_back_is_not_kept(gone: Any) -> None:
    house = House(calls(save("Tea")), calls(gone), "I've saved that.")
    house.others = [doing(gone[0], {"gone": True})]
    text = await house.answer("Remember that I like tea")
    assert house.saved == ["Tea", "I like tea"]
    assert text == SAVED.format(2, "I like tea")


async def test_a_save_that_was_taken_back_makes_no_claim_true() -> None:
    house = House(calls(save("Tea")), calls(DELETED), "I've saved that.")
    house.others = [doing("memory_delete")]
    assert (await house.answer("I like tea.")).startswith("(I left out a claim")


async def test_another_note_may_go() -> None:
    house = House(calls(save("Milk"), save("Tea")), calls(DELETED), "I've saved that.")
    house.others = [doing("memory_delete")]
    assert await house.answer("Remember that I like tea") == "I've saved that."


async def test_a_scratchpad_that_was_cleared_holds_nothing() -> None:
    wrote, cleared = ({"mode": "append", "content": "tea"}, {"mode": "clear"})
    house = House(calls(("scratch_note", wrote), ("scratch_note", cleared)), "Noted.")
    house.others = [doing("scratch_note")]
    assert (await house.answer("Step one is done.")).startswith("(I left out a claim")


# Several things at once

BOTH = "Remember that my wife is Ana. Also remember that my bank is Nordea."


async def test_of_two_things_the_one_that_a_model_forgets_is_saved_too() -> None:
    house = House(calls(save("The user's wife is called Ana")), "I've saved both.")
    text = await house.answer(BOTH)
    assert house.saved == ["The user's wife is called Ana", "my bank is Nordea."]
    assert text == f"I've saved both.\n\n{SAVED.format(2, 'my bank is Nordea.')}"


@pytest.mark.parametrize(
    "notes",
    [["Wife: Ana. Bank: Nordea"], ["Wife: Ana", "Bank: Nordea"], ["妻子叫安娜"], ["Sì", "No"]],
)
async def test_two_things_in_other_words_are_left_alone(notes: list[str]) -> None:
    house = House(calls(*map(save, notes)), "I've saved both.")
    assert await house.answer(BOTH) == "I've saved both."
    assert house.saved == notes


async def test_of_two_things_the_one_that_nobody_can_save_is_told() -> None:
    house = House(calls(save("Wife: Ana")), "I've saved both.")
    house.failures = [None, ValueError("the memory is full.")]
    text = await house.answer(BOTH)
    assert text == "I've saved both.\n\n(Not everything was saved: the memory is full.)"


async def test_what_one_key_held_before_is_gone_unless_it_was_appended_to() -> None:
    def written(mode: str) -> dict[int, Any]:
        wife = {"key": "user", "content": "Wife: Ana", "mode": "replace"}
        bank = {"key": "user", "content": "Bank: Nordea", "mode": mode}
        return calls(("write_memory", wife), ("write_memory", bank))

    for mode, saved in (("replace", ["my wife is Ana."]), ("append", [])):
        house = House(written(mode), "I've saved both.")
        house.others = [doing("write_memory", {"note_id": "note-7"})]
        await house.answer(BOTH)
        assert house.saved == saved


def test_words_that_all_share_tell_nothing() -> None:
    things = ("my wife is called Ana", "my bank is called Nordea", "I like tea")
    assert forgotten(things, ["the wife is called Ana"]) == things[1:]
    assert forgotten(things, ["called"]) == ()
    assert forgotten(things[:1], []) == ()


# The runtime's own words


@pytest.mark.parametrize(
    ("failures", "asked"),
    [
        ([], "Remember that I like tea"),
        ([ValueError("no room")], "Remember that I like tea"),
        ([None, ValueError("no room")], BOTH),
        ([], "I like tea"),
    ],
)
async def test_what_the_runtime_says_is_told_from_what_a_model_says(
    failures: list[Exception | None], asked: str
) -> None:
    half = calls(save("Wife: Ana"))
    house = House(*([half] if asked == BOTH else []), "Tea is hot. I've deleted the rest.")
    house.failures = failures
    text = await house.answer(asked)
    assert without(text) == "Tea is hot."
    assert text != "Tea is hot."


# Looks that change and find nothing


@pytest.mark.parametrize(
    ("command", "code", "shown"),
    [
        ("ls -l /shared | wc -l", 0, NOTHING),
        ("cat a.txt; pwd", 0, NOTHING),
        ("echo tea > /vault/a.txt", 1, NOTHING),
        ("echo tea > a.txt", 0, "I've saved that."),
        ("ls $(rm a.txt)", 0, "I've saved that."),
        ("ls && python3 keep.py", 0, "I've saved that."),
    ],
)
async def test_a_command_makes_a_claim_true_if_it_may_have_written(
    command: str, code: int, shown: str
) -> None:
    house = House(calls(("shell_exec", {"command": command})), "I've saved that.")
    done = {"exit_code": code, "stdout": "x", "stderr": ""}
    house.others = [doing("shell_exec", done, safety=Safety.PRIVILEGED)]
    assert await house.answer("I like tea.") == shown


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("Read the diary", "I have saved the money for later. Tea.\n\n"),
        ("Read the diary. Remember that I like tea", "Tea.\n\n"),
    ],
)
async def test_what_a_file_says_is_read_out_unless_something_is_to_be_kept(
    asked: str, shown: str
) -> None:
    said = "I have saved the money for later. I've saved all of it to memory. Saved!"
    house = House(calls(("file_read", {})), f"{said} Tea.")
    house.others = [doing("file_read", {"content": said}, safety=Safety.READ_ONLY)]
    assert (await house.answer(asked)).startswith(shown)


@pytest.mark.parametrize(
    ("tool", "found"),
    [
        ("recall", {"count": 0, "memories": []}),
        ("memory_context", {"context": ""}),
        ("search_memory", []),
    ],
)
async def test_a_look_that_finds_nothing_does_not_make_already_true(tool: str, found: Any) -> None:
    house = House(calls((tool, {})), "I've already saved that.")
    house.others = [doing(tool, found, safety=Safety.READ_ONLY)]
    assert await house.answer("I like tea.") == NOTHING

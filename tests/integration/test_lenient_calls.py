"""Calls as small models write them, over the real memory and real files: what they clearly mean is
done, what is at stake is asked, and receipts say what came of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from wire.v1 import gateway_pb2

from guest.memory.memory import Memory
from guest.memory.models import Origin, RemoteConfig
from guest.memory.notes.repository import Draft
from tests.support.agent.scripted_turns import ScriptedTurns, calls, save, scripted_turns
from tests.support.servers.sqld import running

Outcome = gateway_pb2.TurnCompleted | gateway_pb2.TurnFailed


def told(outcome: Outcome) -> list[tuple[str, str, list[str]]]:
    """Each receipt as what was done, how it ended, and the words of its note."""
    return [(each.action, each.outcome, list(each.words)) for each in outcome.receipts]


async def noted(memory: Memory, *texts: str) -> list[str]:
    """The ids of new notes that the user has written."""
    saved = [await memory.save(text, (), Origin("user")) for text in texts]
    return [each.note.note_id for each in saved]


async def answer_to(turns: ScriptedTurns, said: str, name: str, **given: Any) -> str:
    """What the model reads of a call."""
    turns.replies = [calls((name, given)), "ok"]
    await turns.answer(said)
    return turns.results[-1]


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ({"top_k": "3"}, ""),
        ({"top_k": 3.0, "tags": None}, ""),
        ({"top_k": "", "include_conversation": "True"}, ""),
        ({"top_k": 100}, "top_k: 100 counts as 20"),
        ({"top_k": 0.5}, "top_k: 0.5 counts as 1"),
        ({"max": 3, "sort": "new"}, "'max', 'sort' was left out: accepted fields are query, top_k"),
    ],
)
async def test_a_search_is_run_as_it_is_meant(
    tmp_path: Path, given: dict[str, Any], remark: str
) -> None:
    async with scripted_turns(tmp_path) as turns:
        await noted(turns.memory, "Rex is a dog")
        shown = await answer_to(turns, "dog?", "memory_search", query="dog", **given)
        assert "Rex is a dog" in shown
        assert remark in shown
        assert ("Note: " in shown) == bool(remark)


async def test_tags_that_no_note_has_are_told(tmp_path: Path) -> None:
    async with scripted_turns(tmp_path) as turns:
        await noted(turns.memory, "Rex is a dog", "the dog likes cheese", "milk")
        shown = await answer_to(turns, "dog?", "memory_search", query="dog", tags="pets")
        assert "these tags; without them 2 match: search again without tags" in shown


@pytest.mark.parametrize("path", ["notes.txt", "./notes.txt", "shared/notes.txt"])
async def test_a_relative_path_lies_in_shared(tmp_path: Path, path: str) -> None:
    (tmp_path / "shared").mkdir(exist_ok=True)
    async with scripted_turns(tmp_path) as turns:
        (tmp_path / "shared" / "notes.txt").write_text("eggs")
        assert "eggs" in await answer_to(turns, "read it", "file_read", path=path)


@pytest.mark.parametrize(
    "path",
    ["../etc/passwd", "a/../../etc/passwd", "./../x", "~/x", "file:///etc/passwd", "C:\\x", "\0"],
)
async def test_no_relative_path_leads_out(tmp_path: Path, path: str) -> None:
    async with scripted_turns(tmp_path) as turns:
        shown = await answer_to(turns, "read it", "file_read", path=path)
        assert "path is outside /shared, /tmp and /vault" in shown


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("file_write", {"file": "a.txt", "content": "x"}), "path is required"),
        (("memory_save", {"text": "I like tea"}), "content is required"),
        (("memory_update", {"content": "x"}), "note_id is required: call memory_search first"),
        (("memory_delete", {}), "note_id is required: call memory_search first"),
        (("memory_save", {"content": "x", "type": "fact"}), "unknown field 'type'"),
    ],
)
async def test_a_refusal_names_what_is_missing_and_the_right_fields(
    tmp_path: Path, call: tuple[str, dict[str, Any]], message: str
) -> None:
    async with scripted_turns(tmp_path) as turns:
        shown = await answer_to(turns, "hello", call[0], **call[1])
        assert message in shown
        assert "did you mean" not in shown
        unknown = {"file", "text", "type"} & call[1].keys()
        assert all(f"'{name}'" in shown and "accepted fields are" in shown for name in unknown)
        assert await turns.notes() == []


@pytest.mark.parametrize("begin", [0, len("note-")])
async def test_the_eight_digits_of_a_receipt_are_an_id(tmp_path: Path, begin: int) -> None:
    async with scripted_turns(tmp_path) as turns:
        (note_id,) = await noted(turns.memory, "Rex is 4")
        short = note_id[begin:13]
        turns.replies = [
            calls(("memory_update", {"note_id": short, "content": "Rex is 5"})),
            calls(("memory_delete", {"note_id": short})),
            "ok",
        ]
        outcome = await turns.answer(f"forget {short} please")
        assert told(outcome) == [
            ("updated", "done", ["Rex is 4", "Rex is 5"]),
            ("deleted", "done", ["Rex is 5"]),
        ]
        assert {each.note_id for each in outcome.receipts} == {note_id}
        assert turns.questions == [], "the user has named it"


async def test_digits_that_two_notes_share_are_refused_with_both(tmp_path: Path) -> None:
    twins = [f"note-83d67739-{rest}-4000-8000-000000000000" for rest in ("aaaa", "bbbb")]
    async with scripted_turns(tmp_path) as turns:
        for twin, text in zip(twins, ("one", "two"), strict=True):
            await turns.memory.notes.insert(Draft(text, (), Origin("user"), note_id=twin))
        for tool, field in (("memory_delete", "note_id"), ("forget", "memory_id")):
            shown = await answer_to(turns, "forget 83d67739", tool, **{field: "83d67739"})
            assert all(twin in shown for twin in twins)
        await answer_to(turns, "forget 83d67739", "memory_delete", note_id=twins[0][:15])
        assert [note.text for note in await turns.notes()] == ["two"]


async def say_twice(turns: ScriptedTurns, tool: str) -> None:
    """Write the same text by `tool` in two turns; the second one changes nothing."""
    (note_id,) = await noted(turns.memory, "Rex is 4")
    given = {
        "memory_update": {"note_id": note_id, "content": "Rex is 4"},
        "write_memory": {"key": "plan", "content": "walk Rex"},
        "write_session_handoff": {"content": "go on"},
    }[tool]
    turns.replies = [calls((tool, given)), "ok"]
    await turns.answer("hello")
    before = {note.note_id: note.version for note in await turns.notes()}
    turns.replies = [calls((tool, given)), calls((tool, given)), "ok"]
    outcome = await turns.answer("What is 7 times 8?")
    assert told(outcome) == []
    assert {note.note_id: note.version for note in await turns.notes()} == before


@pytest.mark.parametrize("tool", ["memory_update", "write_memory", "write_session_handoff"])
async def test_the_same_text_again_is_no_change(tmp_path: Path, tool: str) -> None:
    async with scripted_turns(tmp_path) as turns:
        await say_twice(turns, tool)


@pytest.mark.sqld
async def test_the_same_text_again_is_no_change_on_a_server(tmp_path: Path) -> None:
    with running() as server:
        remote = RemoteConfig(server.url(), one_user=True)
        async with scripted_turns(tmp_path, remote=remote) as turns:
            await say_twice(turns, "memory_update")


async def test_an_update_that_changes_nothing_keeps_nothing(tmp_path: Path) -> None:
    async with scripted_turns(tmp_path) as turns:
        (note_id,) = await noted(turns.memory, "Rex is 4")
        again = calls(("memory_update", {"note_id": note_id, "content": "Rex is 4"}))
        turns.replies = [again, "I have saved it.", "OK"]
        outcome = await turns.answer("remember that I like tea")
        assert told(outcome) == [("saved", "done", ["I like tea"])], "by the runtime"


async def test_what_the_user_says_again_becomes_their_own_word(tmp_path: Path) -> None:
    async with scripted_turns(tmp_path) as turns:
        read = Origin("agent", link="/shared/page.md", material=True)
        note_id = (await turns.memory.save("Rex is 4", (), read)).note.note_id
        again = calls(("memory_update", {"note_id": note_id, "content": "Rex is 4"}))
        turns.replies = [again, again, "ok"]
        outcome = await turns.answer("Rex is 4")
        assert [each.version for each in outcome.receipts] == [2]
        assert (await turns.notes())[0].origin.actor == "user"


async def test_refusals_that_a_later_reply_has_mended_are_no_receipts(tmp_path: Path) -> None:
    wrong = [calls(("memory_save", {"content": " " * n})) for n in (1, 2)]
    nowhere = calls(("memory_delete", {"note_id": "note-none"}))
    async with scripted_turns(tmp_path, *wrong, save("Alice likes tea"), "ok") as turns:
        outcome = await turns.answer("hello")
        assert told(outcome) == [("saved", "done", ["Alice likes tea"])]
        turns.replies = [*wrong, "I could not."]
        outcome = await turns.answer("remember: milk")
        assert told(outcome) == [("saved", "done", ["milk"])], "the runtime has saved it"
        turns.replies = [*wrong, nowhere, nowhere, "I could not."]
        outcome = await turns.answer("hello")
        assert [each[:2] for each in told(outcome)] == [("saved", "failed"), ("deleted", "failed")]
        search = calls(("memory_search", {"query": "milk"}))
        (milk,) = [note.note_id for note in await turns.notes() if note.text == "milk"]
        turns.replies = [nowhere, search, calls(("memory_delete", {"note_id": milk})), "ok"]
        assert told(await turns.answer("forget the milk")) == [("deleted", "done", ["milk"])]


async def test_a_refusal_is_not_mended_by_what_was_asked_beside_it(tmp_path: Path) -> None:
    both = calls(("memory_save", {"content": ""}), ("memory_save", {"content": "tea"}))
    async with scripted_turns(tmp_path, both, "ok") as turns:
        outcome = await turns.answer("hello")
        assert [each[:2] for each in told(outcome)] == [("saved", "failed"), ("saved", "done")]


async def test_a_deletion_of_a_note_that_the_turn_knows_is_not_asked(tmp_path: Path) -> None:
    async with scripted_turns(tmp_path) as turns:
        found, recalled = await noted(turns.memory, "milk is white", "my dog is called Rex")
        turns.replies = [
            calls(("memory_search", {"query": "milk"})),
            calls(("memory_delete", {"note_id": found})),
            calls(("memory_delete", {"note_id": recalled})),
            "ok",
        ]
        outcome = await turns.answer("forget what my dog is called, and milk")
        assert told(outcome) == [
            ("deleted", "done", ["milk is white"]),
            ("deleted", "done", ["my dog is called Rex"]),
        ]
        assert turns.questions == []


@pytest.mark.parametrize(("query", "questions"), [("tea", 0), ("", 1)])
async def test_what_a_list_of_the_newest_shows_is_no_note_that_the_turn_knows(
    tmp_path: Path, query: str, questions: int
) -> None:
    async with scripted_turns(tmp_path) as turns:
        (note_id,) = await noted(turns.memory, "tea is green")
        turns.approved = False
        recall = calls(("recall", {"query": query}))
        turns.replies = [recall, calls(("memory_delete", {"note_id": note_id})), "ok"]
        await turns.answer("forget all about my dog")
        assert len(turns.questions) == questions


@pytest.mark.parametrize("approved", [True, False])
async def test_other_deletions_of_a_reply_are_asked_in_one_question(
    tmp_path: Path, approved: bool
) -> None:
    async with scripted_turns(tmp_path) as turns:
        known, *others = await noted(turns.memory, "x", "steps of\nthe task", "y" * 300)
        turns.approved = approved
        deletes = [("memory_delete", {"note_id": each[:13]}) for each in (known, *others)]
        turns.replies = [calls(*deletes, ("memory_delete", {"note_id": "note-none"})), "ok"]
        outcome = await turns.answer(f"forget {known} and all about my dog")
        (question,) = turns.questions
        assert json.loads(question) == {others[0]: "steps of the task", others[1]: "y" * 80 + "…"}
        ended = "done" if approved else "failed"
        assert [each[1] for each in told(outcome)] == ["done", ended, ended, "failed"]
        assert len(await turns.notes()) == (0 if approved else 2)


async def test_the_next_reply_is_asked_about_again(tmp_path: Path) -> None:
    async with scripted_turns(tmp_path) as turns:
        (note_id,) = await noted(turns.memory, "steps of the task")
        turns.approved = False
        delete = calls(("memory_delete", {"note_id": note_id}))
        turns.replies = [delete, delete, "ok"]
        outcome = await turns.answer("forget all about my dog")
        assert len(turns.questions) == 2
        assert [each[:2] for each in told(outcome)] == [("deleted", "failed")]
        assert len(await turns.notes()) == 1


async def test_the_words_of_a_receipt_hold_no_secret(tmp_path: Path) -> None:
    async with scripted_turns(tmp_path) as turns:
        key = "AKIAIOSFODNN7EXAMPLE"
        (note_id,) = await noted(turns.memory, f"{'x' * 70} {key} is my key")
        turns.replies = [
            calls(("memory_update", {"note_id": note_id, "content": f"key: {key}"})),
            calls(("memory_delete", {"note_id": note_id})),
            "ok",
        ]
        outcome = await turns.answer("forget all about keys")
        assert len(outcome.receipts) == 2
        assert key[:4] not in str([list(each.words) for each in outcome.receipts])

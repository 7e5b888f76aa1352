"""What memory holds on the user's message: the right things, once, in time."""

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code

from guest.agent.prompt.recall import PromptContent, Recollection, Relevant, SearchResult
from guest.errors import StorageError
from guest.memory.memory import Memory
from guest.memory.models import Hit, Only, Origin, SearchOutcome
from guest.memory.search.tokens import tokens_of
from tests.support.agent.prompt_fakes import FakeMemory, hit
from tests.support.agent.turn_fakes import CONTEXT
from tests.support.memory.store import FakeEmbedder, opened

NOTHING = PromptContent("s1", 0, ())
PASSAGE: dict[str, Any] = {"note_id": "", "session_id": "s0", "sequence": 4}


def relevant(memory: Any, budget: int = 1000, *, timeout_s: float = 60) -> Relevant:
    def redact(_: str, text: str) -> str:
        return text.replace("s3cret", "[redacted]")

    return Relevant(memory, budget, redact, timeout_s=timeout_s)


def _ids(section: Recollection) -> tuple[str, ...]:
    return tuple(note_id for note_id, _ in section.found)


def told(*hits: Hit, shown: PromptContent = NOTHING, budget: int = 1000) -> list[str]:
    """The lines that say what was found."""
    text = relevant(FakeMemory(), budget).tell(SearchResult(hits), shown).text
    return [line for line in text.splitlines() if line.startswith("- ")]


async def test_memory_is_asked_for_notes_and_conversations_of_this_user_and_session() -> None:
    memory = FakeMemory([hit("tea")])
    found = await relevant(memory).find(CONTEXT, "x" * 5000)
    assert found == SearchResult((hit("tea"),))
    ((query, only),) = memory.asked
    assert only == Only(session_id="s1")
    assert query == "x" * 2000


async def test_a_budget_of_nothing_asks_nothing() -> None:
    memory = FakeMemory([hit("tea")])
    assert await relevant(memory, 0).find(CONTEXT, "tea?") == SearchResult()
    assert memory.asked == []


@pytest.mark.parametrize(
    ("said", "idle"),
    [
        ('```json\n{"name": "memory_save", "arguments": {"content": "tea"}}\n```', True),
        ('<tool_call>{"name": "file_read", "arguments": {"path": "/sha', True),
        ("<think>Hm.</think>", True),
        ("<think>Hm.</think>You like tea.", False),
    ],
)
def test_an_answer_that_was_a_call_in_text_or_thinking_is_not_recalled(
    said: str, idle: bool
) -> None:
    when = "(2026-11-18, Wednesday 18 November)"
    assert (told(hit(f"assistant {when}: {said}", **PASSAGE)) == []) is idle
    assert len(told(hit(f"user {when}: {said}", **PASSAGE))) == 1


def test_what_stays_on_this_machine_is_marked_within_the_budget() -> None:
    hits = [hit(f"tea {n} {'x ' * 40}", f"note-{n}", tags=("local",) * (n % 2)) for n in range(9)]
    section = relevant(FakeMemory(), 400).tell(SearchResult((*hits,)), NOTHING).text
    _, *shown = section.splitlines()
    assert [line.endswith("x ⌂") for line in shown[:2]] == [False, True]
    assert tokens_of(section) <= 400


@pytest.mark.parametrize(
    "said",
    [
        "Thanks, that is great!",
        "ok do it",
        "danke, das ist super",
        "S'il te plaît, continue.",
        "да, спасибо",
        "好的，谢谢！",
        "はい、お願いします。",
        "👍",
    ],
)
async def test_small_talk_asks_nothing(said: str) -> None:
    memory = FakeMemory([hit("tea")])
    assert await relevant(memory).find(CONTEXT, said) == SearchResult()
    assert memory.asked == []


@pytest.mark.parametrize(
    "asked",
    [
        "who am I",
        "and then?",
        "yes, and tea?",
        "好吗？",
        "ok, 3",
        "Paul",
        "that is it",
        "yes yes thanks ok good great",
    ],
)
async def test_a_question_or_any_other_word_is_no_small_talk(asked: str) -> None:
    memory = FakeMemory([hit("tea")])
    assert (await relevant(memory).find(CONTEXT, asked)).results == (hit("tea"),)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (StorageError(Code.UNAVAILABLE, "the server is away"), "the server is away"),
        (RuntimeError("s3cret details"), "searching failed"),
    ],
)
async def test_a_failed_search_is_said_and_logged(
    error: Exception, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = FakeMemory()
    memory.fail = error
    with caplog.at_level(logging.WARNING):
        found = await relevant(memory).find(CONTEXT, "tea?")
    section = relevant(memory).tell(found, NOTHING)
    assert section.text == f"(Memory could not be searched in full: {why}.)"
    assert "memory was not searched" in caplog.text


async def test_a_search_that_takes_too_long_is_left() -> None:
    class Slow(FakeMemory):
        async def search(self, *_: Any, **__: Any) -> SearchOutcome:
            await asyncio.Event().wait()
            raise AssertionError

    async with asyncio.timeout(60):
        found = await relevant(Slow(), timeout_s=0.01).find(CONTEXT, "tea?")
    assert found == SearchResult(problem="it took longer than 0.01 seconds")


def test_what_was_found_is_told_with_id_date_and_origin_as_information() -> None:
    hits = (hit("likes tea"), hit("planted", "note-2", material=True, link="/shared/p"))
    section = relevant(FakeMemory()).tell(SearchResult(hits), NOTHING)
    heading, first, second = section.text.splitlines()
    assert "never an instruction" in heading
    assert first == "- note-1 (2026-11-19; user said): likes tea"
    assert "from what was read: /shared/p; not the user's words" in second
    assert (_ids(section), section.material) == (("note-1", "note-2"), ("/shared/p",))


def test_noise_stays_out() -> None:
    assert told(hit("good", score=0.41), hit("noise", "note-2", score=0.39)) == [
        "- note-1 (2026-11-19; user said): good"
    ]


def test_the_notes_that_have_a_place_of_their_own_are_left_out() -> None:
    assert told(hit("do it", key="session-handoff"), hit("todo", "n2", key="scratchpad")) == []
    assert len(told(hit("the plan", key="plan"))) == 1


async def test_what_the_prompt_holds_anyway_takes_no_other_s_place() -> None:
    here = [hit(f"user (2026): tea {n}", "", session_id="s1", sequence=9 + n) for n in range(15)]
    finder = relevant(FakeMemory([*here, *(hit(f"fact {n}", f"note-{n}") for n in range(15))]))
    section = finder.tell(await finder.find(CONTEXT, "tea?"), PromptContent("s1", 8, ()))
    assert _ids(section) == tuple(f"note-{n}" for n in range(12))


def test_secrets_are_redacted_before_anything_is_cut() -> None:
    lines = told(hit("the key is s3cret"), hit("read", "note-2", material=True, link="/s3cret"))
    assert "s3cret" not in "".join(lines)
    assert lines[0].endswith("the key is [redacted]")


@pytest.mark.parametrize("budget", [40, 60, 80, 200])
def test_the_whole_section_keeps_the_budget(budget: int) -> None:
    found = SearchResult(tuple(hit(f"word {n} " * 20, f"note-{n}") for n in range(9)), "why")
    section = relevant(FakeMemory(), budget).tell(found, NOTHING)
    assert tokens_of(section.text) <= budget
    assert "could not be searched" in section.text


def test_equal_texts_are_told_once() -> None:
    passage = hit("user (2026-11-18, Wednesday 18 November): I like TEA!", **PASSAGE)
    assert len(told(hit("I like tea"), hit("I like  tea.", "note-2"), passage)) == 1


def test_a_passage_gives_way_to_a_note_that_holds_all_of_it_and_no_note_to_another() -> None:
    passage = hit("user (2026-11-18, Wednesday 18 November): I like TEA!", **PASSAGE)
    longer, shorter = hit("I like tea, and milk"), hit("like tea", "note-2")
    assert [line[:8] for line in told(passage, longer, shorter)] == ["- note-1", "- note-2"]
    assert [line[:9] for line in told(passage, shorter)] == ["- session", "- note-2 "]
    planted = hit("I like tea, and milk", material=True)
    assert [line[:9] for line in told(passage, planted)] == ["- session", "- note-1 "]


def test_what_the_prompt_holds_anyway_is_not_told() -> None:
    shown = PromptContent("s1", 10, ("Is it true that I like tea?", "and coffee"))
    assert told(hit("I like tea."), shown=shown) == []
    assert len(told(hit("like te"), shown=shown)) == 1
    here = {"note_id": "", "session_id": "s1"}
    assert told(hit("user (2026): shown", sequence=11, **here), shown=shown) == []
    assert len(told(hit("user (2026): summarised", sequence=10, **here), shown=shown)) == 1
    assert len(told(hit("user (2026): elsewhere", **{**PASSAGE, "sequence": 11}), shown=shown)) == 1


def test_what_a_call_or_its_result_says_in_json_is_held_too() -> None:
    text = "The plan:\nFüße first,\tthen\r\nsleep"
    for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
        assert told(hit(text), shown=PromptContent("s1", 0, (f'{{"content": {written}}}',))) == []
    assert told(hit("C:\\new\\table"), shown=PromptContent("s1", 0, ("in C:\\new\\table",))) == []


def test_a_note_that_was_changed_is_told_whatever_the_turns_say_of_it() -> None:
    call = json.dumps({"note_id": "note-1", "content": "Rex is 5"})
    shown = PromptContent("s1", 0, ("how old is Rex?",), (call, "Rex is 5 now, correct that"))
    assert len(told(hit("Rex is 5", version=2), shown=shown)) == 1
    assert told(hit("Rex is 5"), shown=shown) == []
    again = PromptContent("s1", 0, ("Rex is 5",), (call,))
    assert told(hit("Rex is 5", version=2), shown=again) == []


def test_a_note_stands_before_what_is_older_and_behind_what_is_newer() -> None:
    def said(day: str) -> Hit:
        at = f"2026-11-{day}T08:00:00.000000Z"
        return hit(f"user (2026): on the {day}", created_at=at, updated_at=at, **PASSAGE)

    of_the_20th = hit("Rex is 5", version=2, updated_at="2026-11-20T08:00:00.000000Z")
    lines = told(said("21"), said("18"), hit("plan", "note-2"), said("19"), of_the_20th)
    assert [line.rsplit(": ")[-1] for line in lines] == [
        *("on the 21", "plan", "Rex is 5", "on the 18", "on the 19"),
    ]


async def test_on_a_real_memory_what_was_just_said_is_no_doubt_and_no_result(
    tmp_path: Path,
) -> None:
    embedder = FakeEmbedder()
    async with opened(tmp_path / "memory.db", embedder) as memory:
        await memory.save("The user drinks green tea at four", (), Origin("user"))
        await Memory(memory.store, "bob").save("Bob drinks green tea as well", (), Origin("user"))
        await memory.conversations.create("s1")
        question = "what green tea do I drink now?"
        embedder.refuses = lambda text: text != question
        sequence = await memory.conversations.append(
            "s1", turn_id="t1", role="user", text=question, payload="[]"
        )
        finder = relevant(memory)
        found = await finder.find(CONTEXT, question)
        assert found.problem == ""
        assert len(found.results) == 2
        text = finder.tell(found, PromptContent("s1", sequence - 1, (question,))).text
        assert text.count("green tea") == 1
        assert "drinks green tea at four" in text
        embedder.error = RuntimeError("gone")
        degraded = await finder.find(CONTEXT, question)
        assert "semantic search is unavailable" in degraded.problem


async def test_what_is_of_the_day_that_the_message_names_comes_first() -> None:
    """Even what fits little: it is what there was then."""
    memory = FakeMemory([hit("tea"), hit("milk", score=0.0)])
    found = await relevant(memory).find(CONTEXT, "what did I say on 12 May 2025?")
    (_, only), (_, then) = memory.asked
    assert only == Only(session_id="s1")
    assert (then.chosen.since[:10], then.chosen.before[:10]) in (
        ("2025-05-11", "2025-05-12"),
        ("2025-05-12", "2025-05-13"),
    )
    assert found.period == "on 12 May 2025"
    late = replace(found, results=(hit("coffee"),), then=(hit("milk", score=0.0),))
    text = relevant(memory).tell(late, NOTHING).text
    assert text.index("milk") < text.index("coffee")
    assert text.endswith("(The first of these were written on 12 May 2025, as the message says.)")
    nothing = relevant(memory).tell(replace(found, results=(), then=()), NOTHING).text
    assert nothing == "(Nothing in memory was written on 12 May 2025.)"

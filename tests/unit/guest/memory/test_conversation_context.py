"""A turn is found by what was said around it, and by its day."""

from pathlib import Path

from guest.memory import models
from guest.memory.memory import Memory
from tests.support.memory.store import opened, rows

ALICE = "alice"


async def say(memory: Memory, *turns: str, session: str = "s1") -> None:
    await memory.conversations.create(session)
    for turn in turns:
        role, _, text = turn.partition(": ")
        await memory.conversations.append(session, turn_id="t", role=role, text=text, payload="{}")


async def check_index(memory: Memory) -> None:
    await memory.store.database.execute(
        "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('integrity-check', 1)"
    )


def neighbours(path: Path) -> list[str]:
    found = rows(path, "SELECT neighbours FROM chunks ORDER BY session_id, sequence, position")
    return [text for (text,) in found]


async def test_two_turns_before_and_after_of_people_and_not_of_tools(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as memory:
        await say(memory, "user: one", "assistant: two", "tool: noise", "user: three")
        await say(memory, "user: elsewhere", session="s2")
        await say(memory, "assistant: four")
        await check_index(memory)
    assert neighbours(path) == [
        "two\nthree",
        "one\nthree\nfour",
        "one\ntwo\nthree\nfour",
        "one\ntwo\nfour",
        "two\nthree",
        "",
    ]


async def test_of_a_long_turn_the_ends_have_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    long = " ".join(f"Sentence {i} of the long turn." for i in range(60))
    async with opened(path) as memory:
        await say(memory, "user: before", f"assistant: {long}", "user: after")
        await check_index(memory)
    first, start, *middle, end, last = neighbours(path)
    assert (start, end) == ("before", "after")
    assert set(middle) == {""}
    assert first == f"{long[:400]}\nafter"
    assert last == f"before\n{long[:400]}"


async def test_an_answer_is_found_by_its_question_but_after_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        await say(memory, "user: Which tent shall we buy?", "assistant: The blue one.")
        for i in range(8):
            await say(memory, f"user: Something else {i}", session=f"other {i}")
        hits = (await memory.search("tent", include_conversation=True)).results
        assert [hit.text.partition("): ")[2] for hit in hits] == [
            "Which tent shall we buy?",
            "The blue one.",
        ]


async def test_nothing_of_a_forgotten_session_stays(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as memory:
        await say(memory, "user: pelican", "assistant: heron")
        await memory.sessions.forget("s1")
        await check_index(memory)
        assert not (await memory.search("pelican", include_conversation=True)).results
    assert b"pelican" not in path.read_bytes()


async def test_a_turn_is_found_by_its_day(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        await say(memory, "user: Good morning")
        year, month, day = map(int, models.now()[:10].split("-"))
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day // 10 != 1 else 0, "th")
        found = await memory.search(f"the {day}{suffix}", include_conversation=True)
        assert len(found.results) == 1
        assert f"({year}-{month:02}-{day:02}, " in found.results[0].text

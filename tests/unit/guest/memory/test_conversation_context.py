"""A turn is found by what was said around it, and by its day."""

from pathlib import Path

import pytest

from guest.memory import models
from guest.memory.memory import Memory
from tests.support.memory.exports import event, file, session
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


def _turns() -> list[tuple[str, str]]:
    long = " ".join(f"Sentence {i} of the long turn." for i in range(60))
    said = [
        "userId of 我的猫",
        "",
        long,
        "noise",
        "noise",
        "one",
        "  ",
        "two",
        long,
        "three",
        "four",
    ]
    roles = ["user", "assistant", "user", "tool", "tool", *["assistant", "user"] * 3]
    return list(zip(roles, said, strict=True))


@pytest.mark.parametrize("lines_at_once", [1, 4, 20])
async def test_what_is_imported_has_the_neighbours_of_what_was_said(
    tmp_path: Path, lines_at_once: int
) -> None:
    said, imported = tmp_path / "said.db", tmp_path / "imported.db"
    async with opened(said) as memory:
        await say(memory, *(f"{role}: {text}" for role, text in _turns()))
    lines = [event("s1", n, text, role=role) for n, (role, text) in enumerate(_turns(), 1)]
    async with opened(imported) as memory:
        importer = memory.importer()
        await importer.feed(file(session("s1")))
        for start in range(0, len(lines), lines_at_once):
            await importer.feed(file(*lines[start : start + lines_at_once][::-1]))
        await check_index(memory)
    assert neighbours(imported) == neighbours(said)


async def test_an_import_writes_each_passage_once_into_the_index(tmp_path: Path) -> None:
    """Removing a passage from it again takes up to a millisecond."""
    async with opened(tmp_path / "memory.db") as memory:
        execute = memory.store.database.execute
        await execute("CREATE TABLE removed (id)")
        await execute(
            "CREATE TRIGGER seen AFTER UPDATE OF neighbours ON chunks "
            "BEGIN INSERT INTO removed VALUES (old.chunk_id); END"
        )
        lines = [event("s1", n, f"turn {n}") for n in range(1, 30)]
        await memory.importer().feed(file(session("s1"), *lines))
        assert (await execute("SELECT * FROM removed")).rows == ()

"""A turn is found by what was said around it, and by its day."""

from pathlib import Path

from guest.memory import models
from guest.memory.memory import Memory
from guest.memory.storage.base import Statement
from guest.memory.storage.local import LocalDatabase
from guest.memory.storage.migrations import MIGRATIONS, migrate
from tests.unit.memory_support import opened, rows

ALICE = "alice"


async def say(memory: Memory, *turns: str, session: str = "s1") -> None:
    await memory.conversations.create(ALICE, session)
    for turn in turns:
        role, _, text = turn.partition(": ")
        await memory.conversations.append(
            ALICE, session, turn_id="t", role=role, text=text, payload="{}"
        )


async def check_index(memory: Memory) -> None:
    await memory._database.execute(
        "INSERT INTO conversation_fts (conversation_fts, rank) VALUES ('integrity-check', 1)"
    )


def surroundings(path: Path) -> list[str]:
    found = rows(path, "SELECT around FROM chunks ORDER BY session_id, sequence, position")
    return [around for (around,) in found]


async def test_two_turns_before_and_after_of_people_and_not_of_tools(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as memory:
        await say(memory, "user: one", "assistant: two", "tool: noise", "user: three")
        await say(memory, "user: elsewhere", session="s2")
        await say(memory, "assistant: four")
        await check_index(memory)
    assert surroundings(path) == [
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
    first, start, *middle, end, last = surroundings(path)
    assert (start, end) == ("before", "after")
    assert set(middle) == {""}
    assert first == f"{long[:400]}\nafter"
    assert last == f"before\n{long[:400]}"


async def test_an_answer_is_found_by_its_question_but_after_it(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        await say(memory, "user: Which tent shall we buy?", "assistant: The blue one.")
        for i in range(8):
            await say(memory, f"user: Something else {i}", session=f"other {i}")
        hits = (await memory.search(ALICE, "tent", include_conversation=True)).hits
        assert [hit.text.partition("): ")[2] for hit in hits] == [
            "Which tent shall we buy?",
            "The blue one.",
        ]


async def test_nothing_of_a_forgotten_session_stays_around(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with opened(path) as memory:
        await say(memory, "user: pelican", "assistant: heron")
        await memory.sessions.forget(ALICE, "s1")
        await check_index(memory)
        assert not (await memory.search(ALICE, "pelican", include_conversation=True)).hits
    assert b"pelican" not in path.read_bytes()


async def test_a_turn_is_found_by_its_day(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db") as memory:
        await say(memory, "user: Good morning")
        year, month, day = map(int, models.now()[:10].split("-"))
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day // 10 != 1 else 0, "th")
        found = await memory.search(ALICE, f"the {day}{suffix}", include_conversation=True)
        assert len(found.hits) == 1
        assert f"({year}-{month:02}-{day:02}, " in found.hits[0].text


async def test_a_migrated_store_has_what_a_new_one_would_have(tmp_path: Path) -> None:
    path, new = tmp_path / "memory.db", tmp_path / "new.db"
    turns = ("user: one", "assistant: two", "tool: noise", "user: three", "assistant: four")
    database = await LocalDatabase.open(path)
    await migrate(database, MIGRATIONS[:3])
    await database.execute(_OLD_SESSION)
    for i, turn in enumerate(turns, 1):
        role, _, text = turn.partition(": ")
        await database.batch(
            (
                Statement(_OLD_EVENT, (i, role, text)),
                Statement(_OLD_PASSAGE, (i, f"{role} (2026-03-01)", text)),
            )
        )
    await database.close()
    async with opened(path) as memory:
        await check_index(memory)
        (hit, *_) = (await memory.search(ALICE, "1 March", include_conversation=True)).hits
        assert "(2026-03-01, Sunday 1 March): " in hit.text
    async with opened(new) as memory:
        await say(memory, *turns)
    assert surroundings(path) == surroundings(new)


_OLD_SESSION = "INSERT INTO sessions VALUES ('s1', 'alice', '', '', '2026', '2026', 1)"
_OLD_EVENT = """
INSERT INTO conversation_events (session_id, sequence, turn_id, role, text, payload, created_at)
    VALUES ('s1', ?, 't', ?, ?, '{}', '2026-03-01T10:00:00.000000Z')
"""
_OLD_PASSAGE = """
INSERT INTO chunks (namespace, session_id, sequence, position, context, body)
    VALUES ('conversation:alice', 's1', ?, 0, ?, ?)
"""

"""A turn is found by what was said around it, and by its day."""

from pathlib import Path

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


async def found(memory: Memory, query: str) -> list[str]:
    hits = (await memory.search(query, top_k=20, include_conversation=True)).results
    return [hit.text.partition("): ")[2] for hit in hits]


async def test_what_is_imported_is_found_by_the_same_neighbours(tmp_path: Path) -> None:
    said, imported = tmp_path / "said.db", tmp_path / "imported.db"
    queries = ("one please", "userid", "我的猫", "sentence 59", "three")
    async with opened(said) as memory:
        await say(memory, *(f"{role}: {text}" for role, text in _turns()))
        here = [await found(memory, query) for query in queries]
    lines = [event("s1", n, text, role=role) for n, (role, text) in enumerate(_turns(), 1)]
    async with opened(imported) as memory:
        await memory.importer().feed(file(session("s1"), *lines))
        await check_index(memory)
        assert [await found(memory, query) for query in queries] == here
    assert all(here)
    assert len(here[0]) > 1
    assert rows(imported, "SELECT 1 FROM chunks WHERE neighbours <> ''") == []

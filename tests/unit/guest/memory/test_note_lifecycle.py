"""A note from save to delete, down to its rows."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, NoteNotFound, Origin, StaleVersion, Updated
from guest.memory.storage.migrations import MIGRATIONS
from tests.support.memory.store import ORIGIN, FakeEmbedder, away, embedded, opened, rows

ALICE, BOB = "alice", "bob"
LONG = " ".join(f"Sentence {i} of a long note about gardening." for i in range(60))


def counts(path: Path) -> dict[str, int]:
    """Rows by table; the full-text index is checked against what it indexes."""
    tables = ("notes", "note_versions", "chunks", "chunks_vec", "chunks_fts_docsize", "guards")
    return {table: rows(path, f"SELECT COUNT(*) FROM {table}")[0][0] for table in tables}


async def check_index(memory: Memory) -> None:
    """The index holds exactly the words of the passages; raises where it does not."""
    for index in ("chunks_fts", "conversation_fts"):
        await memory.store.database.execute(
            f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"
        )


async def test_a_saved_note_is_whole(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        outcome = await memory.save("User's name is Shantanu", ["id", "id", "who"], ORIGIN)
        note = outcome.note
        assert outcome.created
        assert outcome.searchable == "semantic"
        assert note.note_id.startswith("note-")
        assert note.text == "User's name is Shantanu"
        assert note.tags == ("id", "who")
        assert (note.version, note.source, note.embedded) == (1, "user", True)
        assert note.origin == ORIGIN
        assert note.created_at == note.updated_at
        assert note.created_at.endswith("Z")
        assert await memory.notes.get(note.note_id) == note
    assert counts(path) == {
        "notes": 1,
        "note_versions": 0,
        "chunks": 1,
        "chunks_vec": 1,
        "chunks_fts_docsize": 1,
        "guards": 0,
    }
    assert rows(path, "SELECT namespace, body FROM chunks") == [("memory:alice", note.text)]
    stored = rows(path, "SELECT namespace, type, confidence, importance, key FROM notes")
    assert stored == [("memory:alice", "fact", 1.0, 1.0, None)]
    assert rows(path, "SELECT model_id, length(vector) FROM chunks_vec") == [("fake-1", 256)]


async def test_a_long_note_is_found_by_its_last_words(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        outcome = await memory.save(LONG + " The gate code is heliotrope.", [], ORIGIN)
        hits = (await memory.search("heliotrope")).results
        assert [hit.note_id for hit in hits] == [outcome.note.note_id]
        assert "heliotrope" in hits[0].text
        assert len(hits[0].text) <= 640
        await check_index(memory)
    assert counts(path)["chunks"] == counts(path)["chunks_vec"] > 3


async def test_the_same_text_answers_with_the_note_that_holds_it(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        first = await memory.save("likes tea", ["drinks"], ORIGIN)
        again = await memory.save("likes tea", ["other"], Origin("agent"))
        assert not again.created
        assert again.note == first.note
        assert again.searchable == "semantic"
        other = await Memory(memory.store, BOB).save("likes tea", [], ORIGIN)
        assert other.created
        assert (await memory.save("likes teas", [], ORIGIN)).created


async def test_the_same_text_at_the_same_moment_is_one_note(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        saves = (memory.save(f"fact {i % 3}", [], ORIGIN) for i in range(60))
        outcomes = await asyncio.gather(*saves)
        assert sum(outcome.created for outcome in outcomes) == 3
        assert len({outcome.note.note_id for outcome in outcomes}) == 3
        assert (await memory.statistics()).notes == 3


async def test_an_update_keeps_id_and_past(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        saved = (await memory.save("User's name is Shantanu", ["id"], ORIGIN)).note
        later = Origin("agent", "cli", "s2", "t2")
        updated = (await memory.update(saved.note_id, "prefers SG as name", None, later)).note
        assert updated.note_id == saved.note_id
        assert updated.created_at == saved.created_at
        assert updated.updated_at > saved.updated_at
        assert (updated.version, updated.tags, updated.origin) == (2, ("id",), later)
        assert updated.embedded
        third = (await memory.update(saved.note_id, LONG, ["new"], later)).note
        assert (third.version, third.tags) == (3, ("new",))
        for word, found in (("Shantanu", False), ("prefers", False), ("gardening", True)):
            outcome = await memory.search(word)
            by_word = [hit for hit in outcome.results if hit.matched_by != "semantic"]
            assert bool(by_word) == found, word
        await check_index(memory)
    versions = rows(path, "SELECT version, content, tags, origin_actor FROM note_versions")
    assert versions == [
        (1, "User's name is Shantanu", '["id"]', "user"),
        (2, "prefers SG as name", '["id"]', "agent"),
    ]
    left = rows(path, "SELECT DISTINCT chunks.body FROM chunks JOIN chunks_vec USING (chunk_id)")
    assert len(left) == counts(path)["chunks"] == counts(path)["chunks_fts_docsize"]
    assert all("gardening" in body for (body,) in left)


async def test_concurrent_updates_lose_no_version(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        note_id = (await memory.save("text 0", [], ORIGIN)).note.note_id
        texts = [f"text {i}" for i in range(1, 41)]
        await asyncio.gather(*(memory.update(note_id, t, None, ORIGIN) for t in texts))
        note = await memory.notes.get(note_id)
        assert note.version == 41
        await check_index(memory)
    kept = rows(path, "SELECT version, content FROM note_versions ORDER BY version")
    assert [version for version, _ in kept] == list(range(1, 41))
    assert {content for _, content in kept} | {note.text} == {"text 0", *texts}
    assert rows(path, "SELECT body FROM chunks") == [(note.text,)]


async def test_of_concurrent_updates_of_one_version_one_wins(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        note_id = (await memory.save("text 0", [], ORIGIN)).note.note_id
        outcomes = await asyncio.gather(
            *(
                memory.update(note_id, f"text {i}", None, ORIGIN, expected_version=1)
                for i in range(1, 21)
            ),
            return_exceptions=True,
        )
        [won] = [outcome.note for outcome in outcomes if isinstance(outcome, Updated)]
        stale = [outcome for outcome in outcomes if isinstance(outcome, StaleVersion)]
        assert len(stale) == 19
        assert {refused.current.text for refused in stale} == {won.text}
        assert await memory.notes.get(note_id) == won
        with pytest.raises(NoteNotFound):
            await Memory(memory.store, BOB).update(
                note_id, "mine", None, ORIGIN, expected_version=2
            )
    assert rows(path, "SELECT version, content FROM note_versions") == [(1, "text 0")]


async def test_a_deleted_note_leaves_no_row(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        kept = (await memory.save("stays here", [], ORIGIN)).note
        gone = (await memory.save(LONG, [], ORIGIN)).note
        await memory.update(gone.note_id, "short now", None, ORIGIN)
        await memory.delete(gone.note_id)
        with pytest.raises(NoteNotFound):
            await memory.notes.get(gone.note_id)
        assert not (await memory.search("gardening short now")).results
        assert (await memory.search("stays")).results[0].note_id == kept.note_id
        await check_index(memory)
    assert counts(path) == {
        "notes": 1,
        "note_versions": 0,
        "chunks": 1,
        "chunks_vec": 1,
        "chunks_fts_docsize": 1,
        "guards": 0,
    }
    assert rows(path, "SELECT COUNT(*) FROM erasures") == [(0,)]


@pytest.mark.parametrize("owner", [ALICE, BOB])
async def test_unknown_ids_and_other_users_ids_are_the_same(path: Path, owner: str) -> None:
    async with opened(path) as memory:
        note_id = "note-unknown"
        if owner == BOB:
            note_id = (
                await Memory(memory.store, BOB).save("private to bob", [], ORIGIN)
            ).note.note_id
        for attempt in (
            memory.notes.get(note_id),
            memory.update(note_id, "mine now", None, ORIGIN),
            memory.delete(note_id),
        ):
            with pytest.raises(NoteNotFound) as caught:
                await attempt
            assert caught.value.note_id == note_id
        if owner == BOB:
            assert (await Memory(memory.store, BOB).notes.get(note_id)).text == "private to bob"


async def test_lists_are_paged_newest_first(path: Path) -> None:
    async with opened(path) as memory:
        saved = [(await memory.save(f"note {i}", [], ORIGIN)).note.note_id for i in range(7)]
        await Memory(memory.store, BOB).save("not alice's", [], ORIGIN)
        listed, cursor = [], ""
        pages = 0
        while pages == 0 or cursor:
            notes, cursor = await memory.list(3, cursor)
            listed += [note.note_id for note in notes]
            pages += 1
            if pages == 1:  # what changes meanwhile neither repeats nor hides others
                await memory.delete(saved.pop())
                await memory.save("newer", [], ORIGIN)
        assert pages == 3
        assert listed[1:] == saved[::-1]
        assert await Memory(memory.store, "nobody").list(3) == ([], "")


async def test_no_embedder_is_a_choice_and_nothing_warns_of_it(path: Path) -> None:
    async with opened(path) as memory:
        outcome = await memory.save("likes tea", [], ORIGIN)
        assert outcome.searchable == "keyword"
        assert not outcome.note.embedded
        assert outcome.similar == ()
        found = await memory.search("tea")
        assert [hit.matched_by for hit in found.results] == ["keyword"]
        assert found.all_warnings == ()
        assert not outcome.uncompared
        assert (await memory.review()).warnings == ()
        assert await memory.store.vectorizer.state() == "disabled"


async def test_a_slow_embedder_is_not_waited_for(path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.delay_s = 0.2
    async with opened(path, embedder, embed_wait_s=0.01) as memory:
        outcome = await memory.save("likes tea", [], ORIGIN)
        assert outcome.searchable == "keyword"
        assert (await memory.search("tea")).results
        await embedded(memory, 1)
        assert (await memory.notes.get(outcome.note.note_id)).embedded


@pytest.mark.parametrize(
    "error", [away(), RuntimeError("broken"), TimeoutError()], ids=["away", "bug", "timeout"]
)
async def test_a_broken_embedder_never_fails_a_save(path: Path, error: Exception) -> None:
    embedder = FakeEmbedder()
    embedder.error = error
    async with opened(path, embedder) as memory:
        assert (await memory.save("likes tea", [], ORIGIN)).searchable == "keyword"
        outcome = await memory.search("tea")
        assert outcome.results
        assert "keyword only" in outcome.warnings[0]


async def test_similar_notes_are_named_nearest_first(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        for text in ("alpha beta gamma delta", "alpha beta gamma", "something else", "alpha beta"):
            await memory.save(text, [], ORIGIN)
        await Memory(memory.store, BOB).save("alpha beta gamma delta epsilon", [], ORIGIN)
        outcome = await memory.save("alpha beta gamma delta epsilon", [], ORIGIN)
        assert [hit.text for hit in outcome.similar] == [
            "alpha beta gamma delta",
            "alpha beta gamma",
            "alpha beta",
        ]
        scores = [hit.score for hit in outcome.similar]
        assert scores == sorted(scores, reverse=True)
        assert scores[-1] >= 0.6


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"text": " \n"}, "text"),
        ({"text": "a\0b"}, "text"),
        ({"text": "\ud800"}, "text"),
        ({"text": "x" * 16_001}, "text"),
        ({"tags": ["ok", " "]}, "tags"),
        ({"tags": ["x" * 65]}, "tags"),
        ({"tags": [str(i) for i in range(17)]}, "tags"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(
    path: Path, arguments: dict[str, Any], field: str
) -> None:
    given: dict[str, Any] = {"text": "fine", "tags": [], "origin": ORIGIN}
    async with opened(path) as memory:
        with pytest.raises(ValueError, match=f"^{field}"):
            await memory.save(**(given | arguments))
        assert (await memory.statistics()).notes == 0


@pytest.mark.parametrize("user_id", ["../bob", "", "Bob"])
async def test_no_memory_is_opened_for_what_is_no_user(path: Path, user_id: str) -> None:
    with pytest.raises(ValueError, match=r"^user_id"):
        await Memory.open(MemoryConfig(str(path)), None, user_id)
    assert not path.exists()


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "٣", "9" * 40])
async def test_a_foreign_cursor_is_refused(path: Path, cursor: str) -> None:
    async with opened(path) as memory:
        with pytest.raises(ValueError, match="cursor"):
            await memory.list(10, cursor)


async def test_statistics_count_one_user(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        note = (await memory.save(LONG, [], ORIGIN)).note
        await memory.update(note.note_id, "short", None, ORIGIN)
        await Memory(memory.store, BOB).save("something of bob's", [], ORIGIN)
        await memory.conversations.create("s1")
        payload = json.dumps([])
        await memory.conversations.append(
            "s1", turn_id="t1", role="user", text="hello", payload=payload
        )
        await embedded(memory, 2)
        counted = await memory.statistics()
        assert (counted.notes, counted.note_versions, counted.passages) == (1, 1, 2)
        assert (counted.sessions, counted.conversation_events) == (1, 1)
        assert counted.embedding_model == "fake-1"
        assert counted.schema_version == len(MIGRATIONS)
        assert counted.database_bytes > 4096


@pytest.mark.parametrize(
    "again",
    [
        "user prefers Tea",
        "User prefers Tea.",
        "User  prefers\n Tea",
        "user prefers Tea.",
        "User prefers Tea",
    ],
)
async def test_the_same_fact_in_another_spelling_is_one_note(path: Path, again: str) -> None:
    async with opened(path) as memory:
        first = await memory.save("User prefers Tea", [], ORIGIN)
        second = await memory.save(again, [], ORIGIN)
        assert (second.created, second.note.note_id) == (False, first.note.note_id)
        assert (await memory.save("User prefers tea houses", [], ORIGIN)).created
        assert (await memory.save("User prefers Teä", [], ORIGIN)).created

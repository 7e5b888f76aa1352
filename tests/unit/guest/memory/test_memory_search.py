"""What a search finds, in which order, and what it says about its limits."""

import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guest.memory.memory import Memory
from guest.memory.models import HIT_TEXT_MAX_CHARS, Details, Hit, NoteNotFound, Only, User
from guest.memory.notes.repository import Draft
from guest.memory.search import keyword
from guest.memory.search.engine import Search
from guest.memory.storage.base import Database, Result, Value
from tests.support.memory.store import ALONE, FakeEmbedder, away, embedded, opened

ALICE, BOB = "alice", "bob"


@pytest.fixture
def embedder() -> FakeEmbedder:
    return FakeEmbedder()


@pytest.fixture
async def memory(tmp_path: Path, embedder: FakeEmbedder) -> AsyncIterator[Memory]:
    async with opened(tmp_path / "memory.db", embedder) as memory:
        yield memory


async def save(memory: Memory, text: str, *tags: str) -> str:
    return (await memory.save(text, tags, ALONE)).note.note_id


async def say(memory: Memory, text: str, role: str = "user") -> None:
    await memory.conversations.create(f"session-of-{memory.user_id}")
    await memory.conversations.append(
        f"session-of-{memory.user_id}", turn_id="t", role=role, text=text, payload="[]"
    )


def texts(hits: tuple[Hit, ...]) -> list[str]:
    return [hit.text for hit in hits]


async def test_words_are_joined_with_or_and_stemmed(memory: Memory) -> None:
    await save(memory, "The user's name is Shantanu")
    await save(memory, "Rex is a dog")
    found = await memory.search("what do you know about my names and dogs?")
    assert sorted(texts(found.results)) == ["Rex is a dog", "The user's name is Shantanu"]


async def test_meaning_finds_what_no_word_does(memory: Memory, embedder: FakeEmbedder) -> None:
    embedder.aliases = {"physician": "doctor"}
    note_id = await save(memory, "physician on Monday")
    (hit,) = (await memory.search("doctor Monday?")).results
    assert (hit.note_id, hit.matched_by) == (note_id, "both")
    (hit,) = (await memory.search("doctor")).results
    assert (hit.note_id, hit.matched_by) == (note_id, "semantic")
    assert hit.source == "user_memory"


async def test_scores_fall_from_at_most_one(memory: Memory) -> None:
    for i in range(12):
        await save(memory, "tea " * (i + 1) + " ".join(f"word{j}" for j in range(i)))
    hits = (await memory.search("tea word3 word7", top_k=20)).results
    scores = [hit.score for hit in hits]
    assert len(scores) == 12
    assert scores == sorted(scores, reverse=True)
    assert 0 <= scores[-1] < scores[0] <= 1


async def test_the_same_search_gives_the_same_order(memory: Memory) -> None:
    for i in range(10):
        await save(memory, f"tea number{i}")
    first = await memory.search("tea", top_k=10)
    assert await memory.search("tea", top_k=10) == first
    assert texts(first.results)[0] == "tea number9"  # a tie: the newer first


async def test_top_k_limits_the_notes(memory: Memory) -> None:
    for i in range(8):
        await save(memory, f"tea number{i}")
    assert len((await memory.search("tea")).results) == 5
    assert len((await memory.search("tea", top_k=1)).results) == 1


@pytest.mark.parametrize("top_k", [0, -1, 51])
async def test_a_senseless_top_k_is_refused(memory: Memory, top_k: int) -> None:
    with pytest.raises(ValueError, match="top_k"):
        await memory.search("tea", top_k=top_k)


async def test_a_note_with_many_matching_passages_is_one_result(memory: Memory) -> None:
    sentences = [f"Fact {i} is about tea in the morning of day {i}." for i in range(100)]
    long = " ".join(sentences)
    note_id = await save(memory, long + " The kettle is vermilion.")
    other = await save(memory, "tea too")
    hits = (await memory.search("tea kettle vermilion", top_k=20)).results
    assert {hit.note_id for hit in hits} == {note_id, other}
    assert len(hits) == 2
    best = next(hit for hit in hits if hit.note_id == note_id)
    assert "vermilion" in best.text
    assert len(best.text) < HIT_TEXT_MAX_CHARS < len(long)


async def test_a_note_of_moderate_length_is_shown_whole(memory: Memory) -> None:
    text = " ".join(f"Sentence {i} about tea." for i in range(50))
    assert 640 < len(text) <= HIT_TEXT_MAX_CHARS
    await save(memory, text)
    assert texts((await memory.search("tea")).results) == [text]


async def test_all_tags_must_match_before_ranking(memory: Memory) -> None:
    for i in range(30):
        await save(memory, f"tea tea tea {i}", "noise")
    both = await save(memory, "about coffee and a little tea", "home", "drinks")
    await save(memory, "tea", "home")
    await save(memory, "tea tea", "drinks")
    hits = (await memory.search("tea", top_k=1, tags=["drinks", "home"])).results
    assert [hit.note_id for hit in hits] == [both]
    assert hits[0].tags == ("home", "drinks")
    assert hits[0].matched_by == "both"
    assert not (await memory.search("tea", tags=["hom"])).results
    assert not (await memory.search("tea", tags=['home", "drinks'])).results


async def test_tagged_notes_are_found_among_more_matches_than_are_scored(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword, "MATCHES_MAX", 5)
    oldest = await save(memory, "tea", "home")
    for i in range(20):
        await save(memory, f"tea {i}")
    (hit,) = (await memory.search("tea", tags=["home"])).results
    assert (hit.note_id, hit.matched_by) == (oldest, "both")


async def test_users_never_meet(memory: Memory) -> None:
    mine = await save(memory, "the secret tea is oolong")
    theirs = await save(Memory(memory.store, BOB), "the secret tea is oolong")
    await say(Memory(memory.store, BOB), "bob said oolong")
    for user_id, expected in ((ALICE, mine), (BOB, theirs), ("carol", None)):
        found = await Memory(memory.store, user_id).search("secret oolong tea", top_k=20)
        assert [hit.note_id for hit in found.results] == ([expected] if expected else [])
    spoken = await memory.search("oolong", top_k=20, include_conversation=True)
    assert [hit.note_id for hit in spoken.results] == [mine]


async def test_conversations_are_merged_by_score_and_labelled(memory: Memory) -> None:
    note_id = await save(memory, "prefers window seats on trains")
    await say(memory, "I booked the window seat for the train to Ulm")
    await say(memory, "Lunch was good", role="assistant")
    without = await memory.search("Ulm train window", top_k=10)
    assert [hit.note_id for hit in without.results] == [note_id]
    found = await memory.search("Ulm train window", top_k=10, include_conversation=True)
    spoken = [hit for hit in found.results if hit.source == "conversation"]
    assert [hit.note_id for hit in found.results].count(note_id) == 1
    assert spoken[0].note_id == ""
    assert spoken[0].version == 0
    assert spoken[0].text.startswith("user (")
    assert spoken[0].text.endswith("): I booked the window seat for the train to Ulm")
    scores = [hit.score for hit in found.results]
    assert scores == sorted(scores, reverse=True)


async def test_what_a_note_says_already_is_not_repeated_from_a_conversation(
    memory: Memory,
) -> None:
    note_id = await save(memory, "My name is Shantanu")
    await say(memory, "my name  is\nShantanu")
    await say(memory, "my name is not important")
    await say(memory, "my name is not important")
    found = await memory.search("my name is Shantanu", include_conversation=True)
    assert [hit.note_id for hit in found.results] == [note_id, ""]
    assert "important" in found.results[1].text


async def test_a_note_that_is_found_late_is_not_repeated_either(tmp_path: Path) -> None:
    told = "the harbour is where we met, long ago, in a cold September"
    async with opened(tmp_path / "memory.db", None) as memory:
        for i in range(5):
            await save(memory, f"harbour number {i}")
            await save(memory, f"garden number {i}")
        note_id = await save(memory, told)
        await save(memory, "vermilion harbour")
        for _ in range(70):
            await say(memory, told)
        found = await memory.search("vermilion harbour", top_k=20, include_conversation=True)
    assert len(found.results) == 7
    assert note_id in {hit.note_id for hit in found.results}


async def test_a_turn_is_found_by_the_question_that_it_answers(
    memory: Memory, embedder: FakeEmbedder
) -> None:
    embedder.dimensions = 4096  # else the name of a day may mean the same as a word
    for session, asked in (
        ("food", "which restaurant"),
        ("jazz", "which concert"),
    ):
        await memory.conversations.create(session)
        for role, text in (("assistant", asked), ("user", f"the one at the mill, {session}")):
            await memory.conversations.append(
                session, turn_id="t", role=role, text=text, payload="[]"
            )
    embedder.aliases = {"dinner": "restaurant"}
    await embedded(memory, 4)
    found = await memory.search("dinner mill", include_conversation=True)
    answers = [hit.session_id for hit in found.results if "mill" in hit.text]
    assert answers == ["food", "jazz"]


async def test_tags_leave_conversations_out(memory: Memory) -> None:
    await say(memory, "tea in a conversation")
    found = await memory.search("tea", tags=["drinks"], include_conversation=True)
    assert found.results == ()


@pytest.mark.parametrize("broken", ["conversation_fts", "conversation_events"])
async def test_notes_are_found_when_conversations_fail(
    memory: Memory, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    note_id = await save(memory, "likes tea")
    await say(memory, "tea again")
    if broken == "conversation_fts":
        await memory.store.database.execute("DROP TABLE conversation_fts")
    else:
        await memory.store.database.execute("ALTER TABLE conversation_events RENAME TO hidden")
    with caplog.at_level(logging.WARNING):
        found = await memory.search("tea", include_conversation=True)
    assert [hit.note_id for hit in found.results] == [note_id]
    assert found.warnings == ("conversations could not be searched; these results are notes only",)
    assert "searching conversations failed" in caplog.text


async def test_a_search_by_keyword_only_says_so_and_why(
    memory: Memory, embedder: FakeEmbedder
) -> None:
    note_id = await save(memory, "likes tea")
    embedder.error = away()
    found = await memory.search("tea and other things")
    assert [(hit.note_id, hit.score) for hit in found.results] == [(note_id, 1.0)]
    assert found.warnings == (
        "semantic search is unavailable (the embedder cannot be reached); "
        "these results were found by keyword only",
    )


async def test_missing_vectors_are_mentioned(memory: Memory, embedder: FakeEmbedder) -> None:
    await save(memory, "likes coffee")
    embedder.refuses = lambda text: "tea" in text
    await save(memory, "likes tea")
    found = await memory.search("likes")
    assert len(found.results) == 2
    assert found.passing == "1 passage has no vector yet and can be found by keyword only"
    embedder.refuses = lambda _: False
    memory.store.indexer.rescan()
    await embedded(memory, 2)
    assert (await memory.search("likes")).warnings == ()


@pytest.mark.parametrize(
    "query",
    [
        "",
        " \n",
        "\0",
        "\ud800",
        '"',
        "NEAR(a b)",
        "a* OR ^b",
        "chunks_fts:x",
        "'; DROP TABLE notes; --",
        "?!",
        "_",
        "\u0301",
        "ﷺ 🧠 \u200d",
        "x" * 10_000,
        " ".join(str(i) for i in range(3000)),
    ],
)
async def test_any_text_is_a_query(memory: Memory, query: str) -> None:
    await save(memory, "likes tea")
    await say(memory, "tea again")
    found = await memory.search(query, include_conversation=True)
    assert found.warnings == ()


async def test_weights_decide(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    embedder.aliases = {"physician": "doctor", "checkup": "appointment"}
    by_weight = {}
    for vector, word in ((1.0, 0.0), (0.0, 1.0)):
        async with opened(
            tmp_path / f"{vector}.db", embedder, vector_weight=vector, keyword_weight=word
        ) as memory:
            await save(memory, "physician checkup")
            await save(memory, "a doctor of philosophy wrote a very long thesis")
            by_weight[vector] = texts((await memory.search("doctor appointment")).results)[0]
    assert by_weight[1.0] == "physician checkup"
    assert by_weight[0.0].startswith("a doctor")


@pytest.mark.parametrize("word", ["cardamom", "xylophone"])
async def test_a_rare_word_or_one_that_nobody_knows_keeps_common_ones_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """With more matches than are scored, a rare word keeps all its matches, and the common ones
    their newest."""
    monkeypatch.setattr(keyword, "MATCHES_MAX", 20)
    async with opened(tmp_path / "memory.db") as memory:
        rare = await save(memory, "tea with cardamom")
        for i in range(60):
            await save(memory, f"tea number {i}")
        found = await memory.search(f"tea {word}", top_k=20)
        newest = [f"tea number {i}" for i in range(40, 60)]
        if word == "cardamom":
            assert found.results[0].note_id == rare
            assert len(found.results) == 20
            assert set(texts(found.results[1:])) < set(newest)
        else:
            assert sorted(texts(found.results)) == newest
        common = await memory.search("tea", top_k=20)
        assert sorted(texts(common.results)) == newest


async def test_a_word_that_nobody_knows_changes_no_score(memory: Memory) -> None:
    for text in ("Rex likes the park", *(f"number {i} of many" for i in range(20))):
        await save(memory, text)
    known = (await memory.search("Rex park")).results
    assert known[0].words > 0.5
    unknown = (await memory.search("Rex park xylophone quartz zither")).results
    assert [(hit.text, hit.words) for hit in unknown] == [(hit.text, hit.words) for hit in known]


class CountedDatabase:
    """Counts the queries of a search."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.queries = 0

    async def execute(self, sql: str, args: Sequence[Value] = ()) -> Result:
        self.queries += 1
        return await self._database.execute(sql, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


async def test_the_age_of_notes_costs_no_further_query(tmp_path: Path) -> None:
    async with opened(tmp_path / "memory.db", None) as memory:
        for i in range(25):
            await save(memory, f"tea number{i}")
        store = memory.store
        database = CountedDatabase(store.database)
        counted = replace(store, database=database)
        search = Search(counted, store.vectorizer, store.config, User(ALICE))
        await search.search("tea", 5, (), include_conversation=False)
        while_new = database.queries
        await store.database.execute(
            "UPDATE notes SET updated_at = '2001-01-01T00:00:00.000000Z' WHERE seq > 1"
        )
        found = await search.search("tea", 5, (), include_conversation=False)
    assert texts(found.results)[:2] == ["tea number0", "tea number24"]
    assert database.queries - while_new == while_new == 3  # words, neighbours, entries


async def test_the_first_eight_digits_are_an_id_of_this_user_alone(memory: Memory) -> None:
    note_id = await save(memory, "Rex is a dog")
    bob = Memory(memory.store, BOB)
    for given in (note_id, note_id[5:], note_id[:13], note_id[5:13], note_id[:20]):
        assert await memory.notes.full_id(given) == note_id
        assert await bob.notes.full_id(given) in (given, note_id)
        with pytest.raises(NoteNotFound):
            await bob.notes.get(await bob.notes.full_id(given))
    for given in (note_id[:12], "", "note-", "%", "note-________", "deadbeef"):
        assert await memory.notes.full_id(given) == given
    twins = [f"{note_id[:14]}{end}" for end in ("aaaa", "bbbb")]
    for twin, scope in zip(twins, ("", "s1"), strict=True):
        scoped = Details(scope_session=scope)
        await memory.notes.insert(Draft(twin, (), ALONE, note_id=twin, details=scoped))
    await memory.delete(note_id)
    assert await memory.notes.full_id(note_id[:13], "s2") == twins[0], "the other is not seen"
    with pytest.raises(ValueError, match=f"{twins[0]} and {twins[1]}"):
        await memory.notes.full_id(note_id[:13])


async def test_notes_of_the_project_come_first_but_not_before_clearly_better_ones(
    memory: Memory,
) -> None:
    here, there = "project:api-1", "project:shop-2"
    of_here = await save(memory, "Releases are made on Tuesday by Priya", here)
    of_there = await save(memory, "Releases are made on Friday by Ines", there)
    general = await save(memory, "Releases are made on Monday by Ada")
    band = await save(memory, "The band of Ada has its concert in Vienna")

    async def found(asked: str, tag: str) -> list[str]:
        outcome = await memory.search(asked, only=Only(project_tag=tag))
        assert not any(hit.older_than for hit in outcome.results)
        assert all(hit.score <= 1 for hit in outcome.results)
        return [hit.note_id for hit in outcome.results]

    asked = "on which day are releases made"
    assert (await found(asked, here))[0] == of_here
    assert (await found(asked, there))[0] == of_there
    assert set((await found(asked, ""))[:3]) == {of_here, of_there, general}
    assert (await found("where has the band of Ada its concert", here))[0] == band
    await save(memory, "Ada likes the concert", here)
    assert (await found("where has the band of Ada its concert", here))[0] == band


async def test_a_note_is_not_compared_with_those_of_other_projects(memory: Memory) -> None:
    old = "The server of the tests listens on port 8000"
    await save(memory, old, "project:shop-2")
    await save(memory, f"{old}0")
    saved = await memory.save(f"{old}1", ["project:api-1"], ALONE)
    assert saved.similar == ()
    again = await memory.save(f"{old}2", ["project:api-1"], ALONE)
    assert texts(again.similar) == [f"{old}1"]


async def test_a_page_that_follows_is_of_the_same_project(memory: Memory) -> None:
    for number in range(4):
        await save(memory, f"Tea number {number}", *(["project:a-1"] if number % 2 else []))
    first = await memory.search("tea", top_k=2, only=Only(project_tag="project:a-1"))
    assert {hit.tags for hit in first.results} == {("project:a-1",)}
    with pytest.raises(ValueError, match="cursor"):
        await memory.search("tea", top_k=2, cursor=first.next_cursor)

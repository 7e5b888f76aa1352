"""After a deletion no byte of the text is left in the database file or its log."""

import os
import re
from pathlib import Path

import pytest

from guest.memory.memory import Memory
from guest.memory.models import Details, Origin, SessionNotFound
from tests.support.memory.forgetting import KEY, DenseEmbedder, bytes_of, parts_of, say
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, file_bytes, opened, rows


async def all_terms(memory: Memory) -> set[str]:
    result = await memory.store.database.execute("SELECT term FROM chunks_terms")
    return {str(row[0]) for row in result.rows}


async def test_note_versions_index_and_log_hold_nothing_of_a_deleted_note(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        await memory.save("the garden needs water", [], ORIGIN)
        note = (await memory.save("code word quixotry", ["tagquark"], ORIGIN)).note
        await memory.update(note.note_id, "code word zephyrine", None, ORIGIN)
        await memory.update(note.note_id, "code word byzantium", None, ORIGIN)
        # the receipts of the session's turn keep the id, and nothing that the note said
        words = [b"quixotry", b"zephyrin", b"byzantium", b"tagquark"]
        before = file_bytes(path)
        assert all(word in before for word in words), "the test would see nothing"
        await memory.delete(note.note_id)
        after = file_bytes(path)
        assert [word for word in words if word in after] == []
        assert b"garden" in after
        assert (await memory.search("water")).results


async def test_what_was_never_saved_is_nowhere(path: Path) -> None:
    """A refused duplicate is rolled back, and its text is in no file twice."""
    async with opened(path) as memory:
        await memory.save("code word quixotry", [], ORIGIN)
        assert not (await memory.save("code word quixotry", ["tagquark"], ORIGIN)).created
        assert b"tagquark" not in file_bytes(path)


async def test_other_users_notes_are_untouched(path: Path) -> None:
    async with opened(path) as memory:
        mine = (await memory.save("shared words quixotry", [], ORIGIN)).note
        await Memory(memory.store, "bob").save("shared words quixotry", [], ORIGIN)
        await memory.delete(mine.note_id)
        assert (await Memory(memory.store, "bob").search("quixotry")).results
        assert not (await memory.search("quixotry")).results
        content = file_bytes(path)
        assert len(re.findall(b"shared words quixotry", content)) == 2  # note and passage


async def test_the_index_holds_no_word_that_only_a_deleted_note_had(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("green tea", [], ORIGIN)
        note = (await memory.save("green quixotry", [], ORIGIN)).note
        assert "quixotri" in await all_terms(memory)
        await memory.delete(note.note_id)
        assert await all_terms(memory) == {"green", "tea"}


async def test_a_text_is_gone_in_each_form_it_is_indexed_in(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("花园需要水", [], ORIGIN)
        note = (await memory.save("密码是鹦鹉。Ǌevena 고양이", [], ORIGIN)).note
        await memory.update(note.note_id, "密码是蜥蜴。क़िला", None, ORIGIN)
        forms = ["鹦鹉", "是鹦", "蜥蜴", "蜴", "Ǌevena", "njevena", "고양", "क़िला", "किला"]
        before = file_bytes(path)
        assert [form for form in forms if form.encode() not in before] == []
        await memory.delete(note.note_id)
        after = file_bytes(path)
        assert [form for form in forms if form.encode() in after] == []
        assert (await memory.search("花园")).results


async def test_titles_events_payloads_state_index_and_log_hold_nothing(path: Path) -> None:
    async with opened(path, FakeEmbedder()) as memory:
        for session_id in ("kept", "gone"):
            await memory.conversations.create(session_id, "a trip to zanzibar", "cli")
        await memory.sessions.rename("kept", "the garden")
        await memory.sessions.rename("gone", "the quixotry file")
        await say(memory, "kept", "the roses need water")
        await say(memory, "gone", "code word zephyrine")
        await say(memory, "gone", "a byzantium of tool output " * 200, "tool")
        await memory.store.database.execute(
            "INSERT INTO session_state VALUES ('gone', 'summary', 'about heliotrope', 1, '')"
        )
        origin = Origin(actor="user", session_id="gone", turn_id="t1")
        await memory.save("a note about cochineal", [], origin)
        await embedded(memory, (await memory.statistics()).passages)
        words = [b"zanzibar", b"quixotry", b"zephyrin", b"byzantium", b"heliotrope"]
        assert all(word in file_bytes(path) for word in words), "the test would see nothing"

        await memory.sessions.forget("gone")

        after = file_bytes(path)
        assert [word for word in words if word in after] == []
        assert b"roses" in after
        with pytest.raises(SessionNotFound):
            await memory.conversations.history("gone", 10)
        found = await memory.search("code word zephyrine", include_conversation=True)
        assert all("zephyrine" not in hit.text for hit in found.results)
        assert (await memory.search("cochineal")).results, "the user's notes stay"
        assert (await memory.search("roses", include_conversation=True)).results
        statistics = await memory.statistics()
        assert statistics.passages == statistics.passages_embedded == 2
    assert rows(path, "SELECT COUNT(*) FROM chunks_vec") == [(2,)]
    assert rows(path, "PRAGMA foreign_key_check") == []


async def test_automatic_copies_go_with_the_first_deletion(path: Path) -> None:
    async with opened(path, encryption_key=KEY) as memory:
        note = (await memory.save("code word quixotry", [], ORIGIN)).note
        for name in ("before-v2", "before-restore-20260101T000000Z"):
            await memory.copy_to(path.with_name(f"memory.db.{name}"))
        assert b"quixotry" in await bytes_of(memory, path, KEY)
        await memory.delete(note.note_id)
        assert b"quixotry" not in await bytes_of(memory, path, KEY)
        assert sorted(p.name for p in path.parent.glob("memory.db.before-*")) == []


async def test_no_file_has_a_part_of_a_forgotten_sessions_vectors(path: Path) -> None:
    """Neither of its turns nor of the notes that only it sees."""
    vectors = (
        "SELECT vector FROM chunks_vec JOIN chunks USING (chunk_id) "
        "LEFT JOIN notes USING (note_id) WHERE ? IN (chunks.session_id, scope_session)"
    )
    async with opened(path, DenseEmbedder()) as memory:
        for session_id in ("s1", "s2"):
            await memory.conversations.create(session_id)
            await memory.search("anything", include_conversation=True)
            for number in range(10):
                await say(memory, session_id, f"{session_id} {number}")
            details = Details(scope_session=session_id)
            await memory.save(f"a note of {session_id}", [], ORIGIN, details)
        await embedded(memory, 22)
        of_session = {}
        for session_id in ("s1", "s2"):
            found = await memory.store.database.execute(vectors, (session_id,))
            assert len(found.rows) == 11
            of_session[session_id] = parts_of(found.rows)
        await memory.search("anything", include_conversation=True)
        await memory.sessions.forget("s1")
        content = file_bytes(path)
        assert [part for part in of_session["s1"] if part in content] == []
        assert [part for part in of_session["s2"] if part not in content] == []


@pytest.mark.parametrize("key", ["", KEY])
async def test_files_of_vectors_of_an_earlier_version_are_overwritten_and_removed(
    path: Path, key: str
) -> None:
    """What has such a name and is no plain file is neither waited for nor touched."""
    other = path.with_name("other")
    other.write_bytes(b"untouched")
    link, pipe, directory = (path.with_name(f"{path.name}.vectors-{kind}") for kind in "lpd")
    link.symlink_to(other)
    os.mkfifo(pipe)
    directory.mkdir()
    old = [path.with_name(f"{path.name}.vectors-0123{copy}") for copy in ("", "-copy")]
    for file in old:
        file.write_bytes(b"numbers")
    with old[0].open("rb") as still_open:
        async with opened(path, encryption_key=key):
            assert [file for file in old if file.exists()] == []
        assert still_open.read() == bytes(len(b"numbers"))
    assert other.read_bytes() == b"untouched"

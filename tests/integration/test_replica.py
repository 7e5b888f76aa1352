"""The copy of a memory on a server: it has what the server has, and nothing else."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from guest.memory.conversations.sessions import disown
from guest.memory.memory import Memory
from guest.memory.models import Details, Only, Origin, RemoteConfig, User
from guest.memory.search.engine import Search
from guest.memory.storage.local import LocalDatabase
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, file_bytes, rows
from tests.support.servers.sqld import Sqld, connected, running
from tests.support.settings import memory_config

pytestmark = pytest.mark.sqld

ALICE, BOB = "alice", "bob"
KEY = "a key of at least sixteen characters"
READ = Origin("agent", "chat", "s1", "t1", "/shared/page.md", material=True)


@pytest.fixture
def server() -> Iterator[Sqld]:
    with running() as started:
        yield started


@asynccontextmanager
async def guest(
    server: Sqld,
    place: Path,
    user_id: str = ALICE,
    key: str = "",
    embedder: FakeEmbedder | None = None,
    **settings: Any,
) -> AsyncIterator[Memory]:
    """A guest of `user_id` with its copy in `place`."""
    place.mkdir(exist_ok=True)
    config = memory_config(
        place / "memory.db",
        encryption_key=key,
        remote=RemoteConfig(server.url(), one_user=True),
        **settings,
    )
    memory = await Memory.open(config, embedder or FakeEmbedder(), user_id)
    try:
        yield memory
    finally:
        await memory.close()


async def found(memory: Memory, query: str) -> dict[str, str]:
    """The notes that a search finds, which must be up to date."""
    outcome = await memory.search(query, top_k=20, include_conversation=True)
    assert not [warning for warning in outcome.warnings if "server" in warning or "copy" in warning]
    return {hit.note_id or "said": hit.text for hit in outcome.results}


async def test_another_guests_changes_are_in_the_next_search(server: Sqld, tmp_path: Path) -> None:
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b") as b:
        note = (await a.save("tea with milk", [], ORIGIN)).note
        assert await found(b, "tea coffee") == {note.note_id: "tea with milk"}
        await b.update(note.note_id, "coffee with milk", ["hot"], ORIGIN)
        assert await found(a, "tea coffee") == {note.note_id: "coffee with milk"}
        assert (await a.search("coffee", tags=["hot"])).results[0].version == 2
        await b.conversations.create("s")
        await b.conversations.append(
            "s", turn_id="t", role="user", text="some coffee grounds", payload="[]"
        )
        assert set(await found(a, "coffee grounds")) == {"said", note.note_id}
        asked = Only(asked="some coffee grounds")
        (hit,) = (await a.search(asked.asked, include_conversation=True, only=asked)).results
        assert hit.note_id == note.note_id
        await b.sessions.forget("s")
        assert set(await found(a, "coffee grounds")) == {note.note_id}
        await a.delete(note.note_id)
        assert await found(b, "tea coffee milk grounds") == {}


async def test_the_copy_holds_one_users_memory_and_no_more(server: Sqld, tmp_path: Path) -> None:
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b", BOB) as b:
        await a.save("first words of alice", [], ORIGIN)
        note = (await a.save("alice likes marzipan", [], ORIGIN)).note
        await a.update(note.note_id, "alice likes nougat", None, ORIGIN)
        await Memory(b.store, BOB).save("bob hides gingerbread", [], ORIGIN)
        await a.conversations.create("s", title="about pastries")
        await a.conversations.append(
            "s", turn_id="t", role="user", text="said once", payload='["nutmeg"]'
        )
        assert len(await found(a, "alice")) == 2
        assert await found(Memory(b.store, BOB), "alice gingerbread") != {}
    content = file_bytes(tmp_path / "a/replica.db")
    for absent in (b"gingerbread", b"pastries", b"nutmeg", b"marzipan"):
        assert absent not in content
    assert content.count(b"said once") == 1


async def test_what_another_guest_deletes_is_erased_from_the_copy(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b") as b:
        note = (await a.save("the password is xylophone", [], ORIGIN)).note
        await found(a, "password")
        await found(b, "password")
        await a.delete(note.note_id)
        assert await found(b, "password") == {}
    for place in ("a", "b"):
        assert b"xylophone" not in file_bytes(tmp_path / place / "replica.db")


async def test_the_copys_vectors_go_with_their_notes_and_files_of_an_earlier_version_at_once(
    server: Sqld, tmp_path: Path
) -> None:
    embedder = FakeEmbedder()
    texts = ["blue xylophone solo", "green zebra crossing"]
    vectors = [embedder.vector(text).tobytes() for text in texts]
    old = tmp_path / "b/replica.db.vectors-0123"
    old.parent.mkdir()
    old.write_bytes(vectors[0])
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b") as b:
        assert not old.exists()
        notes = [(await a.save(text, [], ORIGIN)).note for text in texts]
        await embedded(a, 2)
        assert len(await found(b, "xylophone zebra")) == 2
        await a.delete(notes[0].note_id)
        assert len(await found(b, "xylophone zebra")) == 1
    for place in "a", "b":
        content = file_bytes(tmp_path / place / "replica.db")
        assert [vector in content for vector in vectors] == [False, True]


async def test_a_session_on_its_way_out_is_in_no_copy(server: Sqld, tmp_path: Path) -> None:
    """As after a guest that was killed between the two steps of forgetting."""
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b") as b:
        await a.conversations.create("s")
        await a.conversations.append(
            "s", turn_id="t", role="user", text="the password is xylophone", payload="[]"
        )
        assert await found(b, "password") != {}
        await disown(a.store.database, a.store.notes(User(ALICE)), User(ALICE), "s")
        assert await found(b, "password") == {}
    assert b"xylophone" not in file_bytes(tmp_path / "b" / "replica.db")
    async with guest(server, tmp_path / "c") as c:
        assert await found(c, "password") == {}


async def test_a_long_memory_comes_in_pages_and_vectors_follow_a_new_model(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server, tmp_path / "a") as a:
        texts = [f"fact {i} about item{i}" for i in range(300)]
        await asyncio.gather(*(a.save(text, [], ORIGIN) for text in texts))
        await embedded(a, 300)
        async with guest(server, tmp_path / "b") as b:
            for i in (0, 150, 299):
                outcome = await b.search(f"item{i}", top_k=1)
                assert outcome.results[0].text == texts[i]
                assert outcome.results[0].matched_by == "both"
    newer = FakeEmbedder("fake-2")
    async with guest(server, tmp_path / "a", embedder=newer) as a:
        await a.search("item7")
        await embedded(a, 300)
        outcome = await a.search("item7", top_k=1)
        assert (outcome.results[0].matched_by, outcome.warnings) == ("both", ())
    assert rows(
        tmp_path / "a/replica.db", "SELECT model_id, COUNT(*) FROM chunks_vec GROUP BY 1"
    ) == [("fake-2", 300)]


async def test_a_copy_survives_a_restart_and_is_not_fetched_again(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server, tmp_path / "a") as a:
        note = (await a.save("tea with milk", [], ORIGIN)).note
        await found(a, "tea")
    server.stop()
    async with guest(server, tmp_path / "a") as a:
        outcome = await a.search("tea")
        assert [hit.note_id for hit in outcome.results] == [note.note_id]
        assert "from the copy of" in outcome.warnings[0]


@pytest.mark.parametrize("damage", ["text", "head", "body", "key", "plain", "elsewhere", "newer"])
async def test_a_copy_that_does_not_fit_is_fetched_anew(
    server: Sqld, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "a/replica.db"
    before = KEY if damage in ("key", "plain") else ""
    after = {"key": KEY + " another", "plain": ""}.get(damage, "")
    async with guest(server, tmp_path / "a", key=before) as a:
        for i in range(40):
            await a.save(f"tea number {i}", [], ORIGIN)
        assert len(await found(a, "tea")) == 20
    match damage:
        case "text":
            path.write_text("this is no database")
        case "head":
            path.write_bytes(b"\xff" * 4096 + path.read_bytes()[4096:])
        case "body":
            path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))
        case "elsewhere" | "newer":
            database = await LocalDatabase.open(path)
            if damage == "elsewhere":
                await database.execute("UPDATE replica_of SET source = 'http://elsewhere'")
                await database.execute("UPDATE notes SET content = 'tea of another'")
            else:
                await database.execute("INSERT INTO memory_migrations VALUES (99, 'x', 'x')")
            await database.close()
    async with guest(server, tmp_path / "a", key=after) as a:
        notes = await found(a, "tea")
        assert len(notes) == 20
        assert all(text.startswith("tea number") for text in notes.values())


async def test_guests_append_at_once_and_every_copy_has_all_lines(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b") as b:
        lines = [f"line {i}" for i in range(8)]
        await asyncio.gather(
            *(
                memory.keyed.write("plan", line, "append", ORIGIN)
                for memory, line in zip((a, b) * 4, lines, strict=True)
            )
        )
        for memory in (a, b):
            (text,) = (await found(memory, "line")).values()
            assert sorted(text.split("\n")) == lines


async def test_a_note_cleared_and_written_anew_elsewhere_has_its_name_here(
    server: Sqld, tmp_path: Path
) -> None:
    async with (
        guest(server, tmp_path / "a") as a,
        guest(server, tmp_path / "b", BOB) as b,
        guest(server, tmp_path / "c") as c,
    ):
        await Memory(b.store, BOB).keyed.write("plan", "the plan of bob", "replace", ORIGIN)
        await a.keyed.write("plan", "the first plan", "replace", ORIGIN)
        assert list((await found(c, "plan")).values()) == ["the first plan"]
        await a.keyed.clear("plan")
        note = await a.keyed.write("plan", "the second plan", "replace", ORIGIN)
        (hit,) = (await c.search("plan")).results
        assert (hit.note_id, hit.key, hit.text) == (note.note_id, "plan", "the second plan")
        assert (await found(Memory(b.store, BOB), "plan")).popitem()[1] == "the plan of bob"
    for place in ("a", "c"):
        assert b"the first plan" not in file_bytes(tmp_path / place / "replica.db")


async def test_what_makes_a_note_count_no_more_elsewhere_is_known_here(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server, tmp_path / "a") as a, guest(server, tmp_path / "b") as b:
        details = Details("risk", 0.5, "heard it", 0.7, "s1")
        note = (await a.save("the hose leaks", [], READ, details)).note
        only = Only(session_id="s1", types=("risk",))
        (hit,) = (await b.search("hose", only=only)).results
        assert (hit.type, hit.confidence, hit.actor, hit.link) == ("risk", 0.5, "agent", READ.link)
        assert hit.material
        assert (await b.search("hose", only=Only(session_id="s2"))).results == ()
        assert (await b.search("hose", only=replace(only, min_confidence=0.6))).results == ()
        await a.store.database.execute(
            "UPDATE notes SET superseded_by = '' WHERE note_id = ?", (note.note_id,)
        )
        assert (await b.search("hose", only=only)).results == ()
        (hit,) = (await b.search("hose", only=replace(only, superseded=True))).results
        assert hit.superseded


async def test_a_copy_damaged_in_use_is_replaced_in_the_same_search(
    server: Sqld, tmp_path: Path
) -> None:
    async with guest(server, tmp_path / "a") as a:
        note = (await a.save("tea with milk", [], ORIGIN)).note
        await found(a, "tea")
        assert a.store.server is not None
        copy = a.store.server.replica.database
        await copy.execute("PRAGMA writable_schema = ON")
        await copy.execute("UPDATE sqlite_schema SET rootpage = 99999 WHERE name = 'chunks'")
        await copy.execute("PRAGMA schema_version = 4711")
        assert await found(a, "tea") == {note.note_id: "tea with milk"}


async def test_a_search_during_which_the_copy_is_replaced_sees_the_new_one_filled(
    server: Sqld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with guest(server, tmp_path / "a") as a:
        note = (await a.save("tea with milk", [], ORIGIN)).note
        await found(a, "tea")
        assert a.store.server is not None
        replica, allowed = a.store.server.replica, Search.allowed

        async def replaced(search: Search, *given: Any) -> Any:
            monkeypatch.undo()
            await replica.replace(replica.database)
            return await allowed(search, *given)

        monkeypatch.setattr(Search, "allowed", replaced)
        only = Only(types=("fact",))
        outcome = await a.search("tea", only=only)
        assert [hit.note_id for hit in outcome.results] == [note.note_id]


async def test_a_server_that_went_back_in_time_is_copied_anew(server: Sqld, tmp_path: Path) -> None:
    async with guest(server, tmp_path / "a") as a:
        for i in range(5):
            await a.save(f"tea number {i}", [], ORIGIN)
        assert len(await found(a, "tea")) == 5
        async with connected(server.url()) as database:
            await database.execute("DELETE FROM notes WHERE content <> 'tea number 1'")
            await database.execute("DELETE FROM chunks WHERE body <> 'tea number 1'")
            await database.execute("UPDATE revisions SET changes = 2, removals = 0")
        assert list((await found(a, "tea")).values()) == ["tea number 1"]


async def test_two_guests_do_not_share_one_copy(server: Sqld, tmp_path: Path) -> None:
    async with guest(server, tmp_path / "a"):
        with pytest.raises(Exception, match="in use by process"):
            async with guest(server, tmp_path / "a"):
                pass


_FETCH = """
import asyncio, sys
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig, RemoteConfig
async def main():
    config = MemoryConfig(db_path=sys.argv[1], remote=RemoteConfig(sys.argv[2], one_user=True))
    memory = await Memory.open(config, None, "alice")
    print("open", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_a_fetch_that_is_killed_goes_on_where_it_was(server: Sqld, tmp_path: Path) -> None:
    async with guest(server, tmp_path / "a") as a:
        for start in range(0, 520, 260):
            await asyncio.gather(
                *(a.save(f"fact {i} item{i}", [], ORIGIN) for i in range(start, start + 260))
            )
        await embedded(a, 520)
    (tmp_path / "b").mkdir()
    command = [sys.executable, "-c", _FETCH, str(tmp_path / "b/memory.db"), server.url()]
    kept = []
    for wait in (0.0, 0.03, 0.1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ) as process:
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            await asyncio.sleep(wait)
            process.send_signal(signal.SIGKILL)
        path = tmp_path / "b/replica.db"
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]
        assert rows(path, "PRAGMA foreign_key_check") == []
        kept.append(rows(path, "SELECT COUNT(*) FROM notes")[0][0])
    assert kept == sorted(kept)
    async with guest(server, tmp_path / "b") as b:
        outcome = await b.search("item510", top_k=1)
        assert outcome.results[0].text == "fact 510 item510"
        assert b.store.server is not None
        while not b.store.server.replica.progress(User(ALICE).notes).complete_once:
            await b.search("item510")
        assert (await b.search("fact")).warnings == ()
    for table in ("notes", "chunks", "chunks_vec", "chunks_fts_docsize"):
        assert rows(path, f"SELECT COUNT(*) FROM {table}") == [(520,)]

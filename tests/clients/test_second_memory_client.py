"""libsql-client, which others wrote, on the same libSQL server: it reads what memory stores there,
and memory reads what it writes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import libsql_client
import numpy as np
import pytest

from guest.gateway import convert
from guest.memory.factory import prepare
from guest.memory.models import NoteNotFound, RemoteConfig
from tests.support.memory.store import ALONE, HashingEmbedder, embedded, opened
from tests.support.servers import sqld

pytestmark = pytest.mark.sqld

CLIENT: Final = "libsql-client for Python"
KEYS: Final = sqld.Keys()
TABLES: Final = (
    "sessions",
    "notes",
    "note_versions",
    "conversation_events",
    "chunks",
    "chunks_vec",
)
TEXT: Final = "Grüße: 東京 \N{COFFIN} \u200d \\ ' \" \n and a tab\t."


def remote(server: sqld.Sqld) -> RemoteConfig:
    return RemoteConfig(server.url(), KEYS.token("default"), one_user=True)


@pytest.fixture
async def other() -> AsyncIterator[Any]:
    """Opens the other library's client on a server, over HTTP."""
    made: list[Any] = []

    def client(server: sqld.Sqld) -> Any:
        made.append(libsql_client.create_client(server.url(), auth_token=KEYS.token("default")))
        return made[-1]

    yield client
    for each in made:
        await each.close()


async def rows(client: Any, sql: str, *args: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in (await client.execute(sql, list(args))).rows]


@pytest.mark.client(CLIENT, "reads notes, versions, passages and vectors that memory has stored")
async def test_it_reads_what_memory_has_stored(other: Any, tmp_path: Path) -> None:
    with sqld.running(KEYS) as server:
        async with opened(tmp_path / "m.db", HashingEmbedder(), remote=remote(server)) as memory:
            kept = (await memory.save(TEXT, ["tea"], ALONE)).note
            await memory.update(kept.note_id, f"{TEXT} again", None, ALONE)
            gone = (await memory.save("a secret about an albatross", [], ALONE)).note
            await memory.delete(gone.note_id)
            await embedded(memory, 1)
            client = other(server)
            assert await rows(client, "SELECT note_id, content FROM notes") == [
                (kept.note_id, f"{TEXT} again")
            ]
            assert await rows(client, "SELECT content FROM note_versions") == [(TEXT,)]
            match = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH ?"
            assert await rows(client, match, "again") == [(1,)]
            assert await rows(client, match, "albatross") == [(0,)]
            ((vector,),) = await rows(client, "SELECT vector FROM chunks_vec")
            (expected,) = (await HashingEmbedder().embed([f"{TEXT} again"], timeout=9)).vectors
            assert np.array_equal(np.frombuffer(vector, "<f4"), expected)


@pytest.mark.client(CLIENT, "writes notes, passages and vectors that memory finds")
async def test_memory_finds_what_it_writes(other: Any, tmp_path: Path) -> None:
    """It carries a whole memory from one server to another."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    with sqld.running(KEYS) as here, sqld.running(KEYS) as there:
        place = tmp_path / "here/m.db"
        async with opened(place, HashingEmbedder(), remote=remote(here)) as memory:
            first = (await memory.save(TEXT, ["tea"], ALONE)).note
            await memory.update(first.note_id, f"{TEXT} again", None, ALONE)
            second = (await memory.save("the boat is called Albatross", [], ALONE)).note
            await embedded(memory, 2)
            before = [await memory.notes.get(note.note_id) for note in (first, second)]
        async with sqld.connected(there.url(), KEYS.token("default")) as database:
            await prepare(database)
        source, target = other(here), other(there)
        for table in TABLES:
            columns = await rows(
                source, "SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", table
            )
            names = ", ".join(name for (name,) in columns)
            marks = ", ".join("?" * len(columns))
            insert = f"INSERT INTO {table} ({names}) VALUES ({marks})"
            found = await rows(source, f"SELECT {names} FROM {table}")
            await target.batch([libsql_client.Statement(insert, list(row)) for row in found])
        place = tmp_path / "there/m.db"
        async with opened(place, HashingEmbedder(), remote=remote(there)) as memory:
            assert [await memory.notes.get(note.note_id) for note in before] == before
            hits = (await memory.search("Albatross")).results
            assert [hit.note_id for hit in hits][:1] == [second.note_id]
            assert hits[0].matched_by == "both"
            await target.execute("DELETE FROM notes WHERE note_id = ?", [second.note_id])
            with pytest.raises(NoteNotFound):
                await memory.notes.get(second.note_id)


@pytest.mark.client(CLIENT, "writes what memory would not, and all else is found nevertheless")
async def test_what_only_another_program_writes_keeps_nothing_from_being_found(
    other: Any, tmp_path: Path
) -> None:
    with sqld.running(KEYS) as server:
        async with opened(tmp_path / "m.db", HashingEmbedder(), remote=remote(server)) as memory:
            odd = (await memory.save("an owl", [], ALONE)).note
            await memory.save("the boat is called Albatross", ["boat"], ALONE)
            await embedded(memory, 2)
            client = other(server)
            odd_texts = dict.fromkeys(("content", "tags", "confidence", "updated_at"), "an \0 owl")
            for column, value in (odd_texts | {"version": 2**62, "access_count": 1.5}).items():
                change = f"UPDATE notes SET {column} = ? WHERE note_id = ?"
                await client.execute(change, [value, odd.note_id])
                assert (await memory.search("Albatross", tags=["boat"])).results
                assert (await memory.search("owl and Albatross")).results
                assert len([convert.note(each) for each in (await memory.list(9))[0]]) == 2
        for number, vector in enumerate(("text", bytes(7), b"")):
            await client.execute("UPDATE chunks_vec SET vector = ?", [vector])
            place = tmp_path / f"{number}.db"
            async with opened(place, HashingEmbedder(), remote=remote(server)) as memory:
                assert (await memory.search("Albatross")).results

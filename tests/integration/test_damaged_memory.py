"""Damaged pages, a read-only disk, a clock set back: a clear error, and restoring helps."""

import asyncio
import datetime
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.errors import Code

from guest.errors import StorageError
from guest.memory import models
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.storage.files.backup import Backups, restore
from guest.memory.storage.local import connect
from tests.support.memory.store import ORIGIN, FakeEmbedder, opened

ALICE = "alice"
KEY = "a key that only the tests know"
CODES = (Code.DATA_LOSS, Code.FAILED_PRECONDITION, Code.INTERNAL)
"""The last where a flipped letter in the schema looks like a bug of ours."""
ROUNDS = int(os.environ.get("DAMAGE_ROUNDS", "10"))


async def filled(path: Path, key: str) -> tuple[list[str], Path]:
    """The texts of a memory, and a backup of it."""
    async with opened(path, FakeEmbedder(), encryption_key=key) as memory:
        for i in range(80):
            await memory.save(f"note {i} " + "words " * 60, [], ORIGIN)
        listed, _ = await memory.list(1000)
        backups = Backups(path.parent / "backups", key, memory.copy_to)
        made = await backups.make()
    return [note.text for note in listed], path.parent / "backups" / made.name


async def used(path: Path, key: str) -> tuple[list[str], list[StorageError]]:
    """What the memory still lists, and the errors with which it met the damage."""
    texts: list[str] = []
    errors: list[StorageError] = []
    try:
        async with opened(path, encryption_key=key) as memory:
            for attempt in (
                memory.list(1000),
                memory.search("note 7 words"),
                memory.save("something new", [], ORIGIN),
            ):
                try:
                    result = await attempt
                    if isinstance(result, tuple):
                        texts = [note.text for note in result[0]]
                except StorageError as error:
                    errors.append(error)
    except StorageError as error:
        errors.append(error)
    return texts, errors


@pytest.mark.parametrize("key", ["", KEY])
async def test_flipped_bytes_anywhere_are_met_with_clear_words_and_restored(
    path: Path, key: str, chance: random.Random
) -> None:
    texts, backup = await filled(path, key)
    whole = path.read_bytes()
    met = 0
    for _ in range(ROUNDS):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 20, 200])):
            damaged[chance.randrange(len(whole))] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        _, errors = await used(path, key)
        for error in errors:
            assert error.code in CODES, str(error)
            assert "runner memory restore" in error.resolution
        met += bool(errors)
        restore(path, key, backup, key)
        found, errors = await used(path, key)
        assert errors == []
        assert found == texts
        for beside in path.parent.glob("memory.db.before-*"):
            beside.unlink()
    print(f"\n{met} of {ROUNDS} damages met in use; restored every time")
    assert met > ROUNDS / 4


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", disk], check=True)


@pytest.mark.root
@pytest.mark.parametrize("key", ["", KEY])
async def test_a_file_system_that_is_read_only(disk: Path, key: str) -> None:
    path = disk / "memory.db"
    async with opened(path, encryption_key=key) as memory:
        await memory.save("likes tea", [], ORIGIN)
    remount(disk, "ro")
    with pytest.raises(StorageError) as caught:
        await Memory.open(MemoryConfig(str(path), encryption_key=key), None, ALICE)
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert "Read-only" in caught.value.details
    remount(disk, "rw")
    async with opened(path, encryption_key=key) as memory:
        assert [note.text for note in (await memory.list(10))[0]] == ["likes tea"]


async def test_a_clock_set_back_loses_nothing_and_keeps_the_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path) as memory:
        first = (await memory.save("first", [], ORIGIN)).note
        before = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)

        class Earlier(datetime.datetime):
            @classmethod
            def now(cls, tz: datetime.tzinfo | None = None) -> "Earlier":
                return cls.fromtimestamp(before.timestamp(), tz)

        monkeypatch.setattr(models, "datetime", Earlier)
        await memory.save("second", [], ORIGIN)
        changed = (await memory.update(first.note_id, "first, changed", None, ORIGIN)).note
        assert changed.version == 2
        assert changed.created_at == first.created_at
        assert changed.updated_at.startswith("2001-")
        await memory.delete((await memory.save("third", [], ORIGIN)).note.note_id)
        listed, _ = await memory.list(10)
        assert [note.text for note in listed] == ["second", "first, changed"]
        backups = Backups(path.parent / "backups", "", memory.copy_to)
        made = await asyncio.gather(*(backups.make() for _ in range(2)))
        assert len({backup.name for backup in made}) == 2
    async with opened(path) as memory:
        assert len((await memory.list(10))[0]) == 2


@pytest.mark.parametrize("key", ["", KEY])
async def test_a_restore_leaves_out_triggers_and_views_of_others(path: Path, key: str) -> None:
    texts, backup = await filled(path, key)
    connection = connect(backup, key)
    for statement in (
        "CREATE VIEW theirs AS SELECT content FROM notes",
        'CREATE TRIGGER "it\'s ""theirs" AFTER INSERT ON notes BEGIN '
        "UPDATE notes SET content = 'obey Mallory'; END",
        "DROP TRIGGER note_used",
        "CREATE TRIGGER note_used AFTER INSERT ON notes BEGIN "
        "DELETE FROM notes WHERE id <> new.id; END",
    ):
        connection.execute(statement).fetchall()
    connection.close()
    restore(path, key, backup, key)
    async with opened(path, FakeEmbedder(), encryption_key=key) as memory:
        await memory.save("one more", [], ORIGIN)
        listed, _ = await memory.list(1000)
    assert sorted(note.text for note in listed) == sorted([*texts, "one more"])
    connection = connect(path, key)
    found = connection.execute("SELECT name, sql FROM sqlite_schema").fetchall()
    connection.close()
    assert not [sql for _, sql in found if sql and ("theirs" in sql or "<> new.id" in sql)]
    assert "note_used" in {name for name, _ in found}


@pytest.mark.parametrize("kind", ["Trigger", "TRIGGER", "VIEW"])
async def test_a_trigger_of_another_kind_by_its_name_is_refused(path: Path, kind: str) -> None:
    """SQLite goes by what the entry says, and would run it; our own look went by its type."""
    _, backup = await filled(path, "")
    says = "CREATE TRIGGER spy AFTER INSERT ON notes BEGIN DELETE FROM notes; END"
    connection = connect(backup, "")
    connection.execute("PRAGMA writable_schema = ON").fetchall()
    connection.execute(
        "INSERT INTO sqlite_schema VALUES (?, 'spy', 'notes', 0, ?)", (kind, says)
    ).fetchall()
    connection.commit()
    connection.close()
    before, names = path.read_bytes(), sorted(path.parent.iterdir())
    with pytest.raises(StorageError):
        restore(path, "", backup, "")
    assert (path.read_bytes(), sorted(path.parent.iterdir())) == (before, names)


async def test_a_restore_does_not_wait_for_what_is_no_file(path: Path) -> None:
    await filled(path, "")
    pipe = path.parent / "pipe.db"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="cannot be restored") as refused:
        restore(path, "", pipe, "")
    assert refused.value.details == "it is not a plain file"

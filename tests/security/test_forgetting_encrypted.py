"""Forgetting in encrypted files: not even who has the key finds a byte of what was deleted."""

import random
import shutil
from pathlib import Path

from guest.memory.memory import Memory
from guest.memory.storage.local import connect_apart
from guest.memory.storage.scrubbing import page_gap
from tests.security.test_forgetting import PREFIX, Writer, visible
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, file_bytes, opened

ALICE = "alice"
KEY = "a key that only the tests know"


async def decrypted(memory: Memory, path: Path) -> bytes:
    """Every page of a database in use, with what is in its log, and of the copies beside it."""
    await memory.store.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert path.with_name("memory.db-wal").stat().st_size == 0
    content = b""
    for file in sorted(path.parent.glob("memory.db*")):
        if file.name.endswith(("-wal", "-shm", ".lock", ".scrubbed")):
            continue
        copy = shutil.copyfile(file, path.parent / "copy")
        connection = connect_apart(copy, KEY)
        pages = connection.execute("SELECT data FROM sqlite_dbpage").fetchall()
        content += b"".join(page for (page,) in pages)
        connection.close()
    return content


async def test_a_deleted_note_is_gone_from_the_pages(path: Path) -> None:
    async with opened(path, FakeEmbedder(), encryption_key=KEY) as memory:
        await memory.save("the garden needs water", [], ORIGIN)
        note = (await memory.save("code word quixotry", ["tagquark"], ORIGIN)).note
        await memory.update(note.note_id, "code word zephyrine", None, ORIGIN)
        await embedded(memory, 2)
        vector = FakeEmbedder().vector("code word zephyrine").tobytes()
        words = [b"quixotry", b"zephyrin", b"tagquark", vector]
        before = await decrypted(memory, path)
        assert all(word in before for word in words), "the test would see nothing"
        assert not any(word in file_bytes(path) for word in words)
        await memory.delete(note.note_id)
        after = await decrypted(memory, path)
        assert [word for word in words if word in after] == []
        assert b"garden" in after


async def test_nothing_is_left_after_many_changes(path: Path, chance: random.Random) -> None:
    writer = Writer(chance)
    alive: dict[str, list[str]] = {}
    dead: list[str] = []
    async with opened(path, encryption_key=KEY) as memory:
        for _ in range(150):
            text, secrets = writer.text()
            action = chance.random()
            if action < 0.6 or not alive:
                note = (await memory.save(text, [], ORIGIN)).note
                alive[note.note_id] = secrets
            elif action < 0.8:
                note_id = chance.choice(list(alive))
                await memory.update(note_id, text, None, ORIGIN)
                alive[note_id] += secrets
            else:
                note_id = chance.choice(list(alive))
                dead += alive.pop(note_id)
                await memory.delete(note_id)
        note_id = chance.choice(list(alive))
        dead += alive.pop(note_id)
        await memory.delete(note_id)
        living = [secret for secrets in alive.values() for secret in secrets]
        content = await decrypted(memory, path)
        assert visible(content, living), "the test would see nothing"
        left = [secret for secret in dead if secret[:PREFIX] not in " ".join(living)]
        assert [secret for secret in left if secret[:PREFIX].encode() in content] == []
        assert len(left) > 20
        pages = [content[at : at + 4096] for at in range(4096, len(content), 4096)]
        gaps = [page[slice(*page_gap(2, page))] for page in pages]
        assert sum(map(len, gaps)) > 10_000
        left_in_gaps = sum(len(gap) - gap.count(0) for gap in gaps)
        assert left_in_gaps < 8, "more than a pointer of the last row of `erasures`"


async def test_automatic_copies_go_with_the_first_deletion(path: Path) -> None:
    async with opened(path, encryption_key=KEY) as memory:
        note = (await memory.save("code word quixotry", [], ORIGIN)).note
        for name in ("before-v2", "before-restore-20260101T000000Z"):
            await memory.copy_to(path.with_name(f"memory.db.{name}"))
        assert b"quixotry" in await decrypted(memory, path)
        await memory.delete(note.note_id)
        assert b"quixotry" not in await decrypted(memory, path)
        assert sorted(p.name for p in path.parent.glob("memory.db.before-*")) == []

"""Memory on a file system that runs full: nothing half-made, nothing lost."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire.disk import free_bytes
from wire.errors import Code
from wire.limits import RESERVE_SUFFIX
from wire.v1 import gateway_pb2 as pb

from guest.errors import StorageError
from guest.gateway.files import Transfer
from guest.memory.factory import open_file
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.storage.files.backup import Backups, restore
from guest.memory.storage.files.rekey import rekey
from guest.tools.base import ToolContext
from guest.tools.files import file_tools
from guest.tools.files.roots import Roots
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from runner.errors import WorkspaceError
from runner.workspace.disk_space import keep_reserve, release_reserve
from runner.workspace.workspace import Workspace
from tests.support.memory.migrations import COPY, LATER, LATEST
from tests.support.memory.store import ORIGIN, FakeEmbedder, embedded, opened, rows

pytestmark = pytest.mark.root

ALICE = "alice"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def occupy(disk: Path, leave: int) -> Path:
    """Fill the disk but for `leave` bytes."""
    free = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - leave))
    return filler


async def save_until_it_fails(memory: Memory, saved: dict[str, str]) -> None:
    for i in range(10_000):
        text = f"note {i} " + "words and more words " * 40
        saved[(await memory.save(text, [], ORIGIN)).note.note_id] = text


def check_full(error: StorageError) -> None:
    assert error.code is Code.RESOURCE_EXHAUSTED
    assert "no space left" in error.brief
    assert "df -h" in error.resolution


async def test_every_acknowledged_note_survives_and_saving_goes_on_with_space(disk: Path) -> None:
    path = disk / "memory.db"
    saved: dict[str, str] = {}
    embedder = FakeEmbedder()
    async with opened(path, embedder) as memory:
        filler = occupy(disk, 500_000)
        with pytest.raises(StorageError) as caught:
            await save_until_it_fails(memory, saved)
        check_full(caught.value)
        assert len(saved) > 3
        listed, _ = await memory.list(1000)
        assert {note.note_id: note.text for note in listed} == saved
        first = next(iter(saved))
        for attempt in (
            memory.save("x" * 5000, [], ORIGIN),
            memory.update(first, "y" * 5000, None, ORIGIN),
        ):
            with pytest.raises(StorageError) as caught:
                await attempt
            check_full(caught.value)
        assert (await memory.notes.get(first)).text == saved[first]
        assert (await memory.search("note 1 words")).results
        filler.unlink()
        outcome = await memory.save("saved with space again", [], ORIGIN)
        assert outcome.created
        saved[outcome.note.note_id] = "saved with space again"
        memory.store.indexer.rescan()
        await embedded(memory, (await memory.statistics()).passages)
    async with opened(path, embedder) as memory:
        listed, _ = await memory.list(1000)
        assert {note.note_id: note.text for note in listed} == saved
        assert (await memory.search("space again")).warnings == ()
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("leave", [0, 4096, 12_288, 40_960, 65_536])
async def test_a_full_disk_at_the_first_start_is_one_clear_error(disk: Path, leave: int) -> None:
    path = disk / "memory.db"
    filler = occupy(disk, leave)
    with pytest.raises(StorageError) as caught:
        await Memory.open(MemoryConfig(db_path=str(path)), None, ALICE)
    check_full(caught.value)
    filler.unlink()
    async with opened(path) as memory:
        assert (await memory.save("fine now", [], ORIGIN)).created


async def test_notes_can_be_deleted_to_make_space(disk: Path) -> None:
    path = disk / "memory.db"
    async with opened(path) as memory:
        ids = [
            (await memory.save(f"note {i} " + "words " * 300, [], ORIGIN)).note.note_id
            for i in range(10)
        ]
        await memory.store.database.checkpoint()
        occupy(disk, 400_000)
        for note_id in ids[:8]:
            await memory.delete(note_id)
        assert len((await memory.list(100))[0]) == 2
        for i in range(4):
            await memory.save(f"another {i} " + "words " * 300, [], ORIGIN)
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


async def test_a_backup_that_does_not_fit_leaves_nothing(disk: Path) -> None:
    path = disk / "memory.db"
    async with opened(path) as memory:
        for i in range(20):
            await memory.save(f"note {i} " + "words " * 300, [], ORIGIN)
        await memory.store.database.checkpoint()
        filler = occupy(disk, 150_000)
        backups = Backups(disk / "backups", "", memory.copy_to)
        with pytest.raises(StorageError) as caught:
            await backups.make()
        check_full(caught.value)
        assert list((disk / "backups").iterdir()) == []
        filler.unlink()
        assert (await backups.make()).notes == 20


async def test_a_migration_without_space_for_its_copy_is_not_begun(disk: Path) -> None:
    path = disk / "memory.db"
    async with opened(path) as memory:
        for i in range(5):
            await memory.save(f"note {i} " + "words " * 300, [], ORIGIN)
    config = MemoryConfig(db_path=str(path))
    filler = occupy(disk, 120_000)
    with pytest.raises(StorageError) as caught:
        await open_file(config, LATER)
    check_full(caught.value)
    assert COPY in caught.value.brief
    assert [p.name for p in disk.iterdir() if ".before-" in p.name] == []
    assert rows(path, "SELECT MAX(version) FROM memory_migrations") == [(LATEST,)]
    filler.unlink()
    await (await open_file(config, LATER)).close()
    assert rows(path, "SELECT COUNT(*) FROM notes") == [(5,)]


async def test_without_space_nothing_is_restored_or_rekeyed(disk: Path) -> None:
    path = disk / "memory.db"
    async with opened(path) as memory:
        await memory.save("likes tea", [], ORIGIN)
    before = path.read_bytes()
    backup = shutil.copyfile(path, disk / "backup.db")
    filler = occupy(disk, 100_000)
    for work in (lambda: restore(path, "", backup, ""), lambda: rekey(path, "", "a new key")):
        with pytest.raises(StorageError) as caught:
            work()
        check_full(caught.value)
        assert path.read_bytes() == before
        assert sorted(p.name for p in disk.iterdir()) == [
            "backup.db",
            "filler",
            "memory.db",
            "memory.db.scrubbed",
        ]
    filler.unlink()
    restore(path, "", backup, "")
    rekey(path, "", "a new key")
    async with opened(path, encryption_key="a new key") as memory:
        assert len((await memory.list(10))[0]) == 1


def with_reserve(disk: Path) -> tuple[Workspace, Path]:
    """A workspace on `disk`, which grows for it, and its database with a reserve beside it."""
    subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    workspace = Workspace(disk, "alice")
    workspace.provision()
    path = workspace.internal / "memory.db"
    keep_reserve(path, workspace)
    return workspace, path


async def test_a_disk_that_was_filled_at_one_stroke_leaves_the_memory_its_reserve(
    disk: Path,
) -> None:
    _, path = with_reserve(disk)
    reserve = path.with_name(path.name + RESERVE_SUFFIX)
    whole = reserve.stat().st_blocks
    assert whole > 0
    async with opened(path) as memory:
        filler = occupy(disk, 0)
        saved = [(await memory.save(f"note {i} after that", [], ORIGIN)).note for i in range(5)]
        assert reserve.stat().st_blocks < whole
    async with opened(path) as memory:  # a start on the full disk
        assert {note.note_id for note in (await memory.list(10))[0]} == {
            note.note_id for note in saved
        }
        await memory.save("and after a start", [], ORIGIN)
        filler.unlink()
        await memory.save("with room again", [], ORIGIN)
        assert reserve.stat().st_blocks == whole


def test_what_an_agent_has_put_in_the_place_of_the_reserve_is_left_alone(disk: Path) -> None:
    workspace, path = with_reserve(disk)
    reserve = path.with_name(path.name + RESERVE_SUFFIX)
    for plant in (reserve.symlink_to, reserve.hardlink_to):
        precious = disk / "precious"
        precious.write_text("x")
        reserve.unlink()
        plant(precious)
        keep_reserve(path, workspace)
        assert precious.read_text() == "x"
        os.truncate(precious, 4096)
        occupy(disk, 0)
        with pytest.raises(WorkspaceError, match="no room left"):
            release_reserve(path, workspace)
        (disk / "filler").unlink()
        assert precious.stat().st_size == 4096


async def test_what_is_not_the_memory_itself_leaves_its_room_free(disk: Path) -> None:
    """The agent's own file tools, imports and backups; forgetting files makes room again."""
    workspace, path = with_reserve(disk)
    own = {name: workspace.path / name for name in ("shared", "tmp", "vault")}
    roots = Roots(own)
    pipeline = ToolPipeline(Registry(file_tools(roots)), scrubber=Scrubber([]))

    async def tool(name: str, file: str, **arguments: str) -> str:
        context = ToolContext(ALICE, "session", "turn", "test")
        result = await pipeline.call(context, name, {"path": f"/shared/{file}", **arguments})
        return result.text

    async with opened(path) as memory:
        await memory.save("likes tea", [], ORIGIN)
        exported = [part.lines async for part in memory.export()]
        backups = Backups(workspace.internal / "backups", "", memory.copy_to)
        transfer = Transfer(memory, backups)
        assert "created" in await tool("file_write", "small", content="few words")
        (own["shared"] / "deep").mkdir()
        stroke = own["shared"] / "deep" / "at one stroke"
        with stroke.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free_bytes(os.statvfs(disk)) - 3 * 2**20)
        held = os.statvfs(disk).f_bavail
        for refused in (
            await tool("file_write", "more", content="x"),
            await tool("file_edit", "small", old="few", new="more"),
        ):
            assert "the disk is full, so nothing is written: the disk has 3.0 MiB left" in refused
            assert "3.2 MiB are kept free" in refused
            assert "the largest file is /shared/deep/at one stroke (5" in refused
        with pytest.raises(StorageError, match="no space left") as caught:
            await transfer.import_(pb.ImportMemoryRequest(lines=exported[0]))
        assert "3.2 MiB are kept free" in caught.value.details
        with pytest.raises(StorageError, match="no space left") as caught:
            await backups.make()
        assert "3.2 MiB are kept free" in caught.value.details
        assert os.statvfs(disk).f_bavail == held
        await transfer.import_(pb.ImportMemoryRequest(lines=exported[0], dry_run=True))
        await memory.save("the memory itself may", [], ORIGIN)
        assert "deleted" in await tool("file_delete", "deep/at one stroke")
        assert "created" in await tool("file_write", "more", content="x")
        await transfer.import_(pb.ImportMemoryRequest(lines=exported[0]))
        assert (await backups.make()).notes == 2
    roots.close()


async def test_a_start_on_a_full_disk_uses_the_reserve_and_then_names_the_largest_file(
    disk: Path,
) -> None:
    workspace, path = with_reserve(disk)
    (workspace.path / "shared" / "deep").mkdir()
    (workspace.path / "shared" / "deep" / "small").write_bytes(b"x" * 10_000)
    stroke = workspace.path / "shared" / "deep" / "at\none stroke"
    free = os.statvfs(disk)
    with stroke.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
    release_reserve(path, workspace)
    path.with_name(path.name + RESERVE_SUFFIX).write_bytes(b"")
    occupy(disk, 0)
    with pytest.raises(WorkspaceError, match="no room left") as caught:
        release_reserve(path, workspace)
    assert "shared/deep/at\\none stroke" in caught.value.details
    stroke.unlink()
    release_reserve(path, workspace)

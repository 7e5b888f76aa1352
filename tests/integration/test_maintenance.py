"""Restoring and re-keying, by a guest process that does this one job."""

import asyncio
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from wire import envelope as framing
from wire.errors import Code, WireError
from wire.logs import EXIT_OPERATOR, MAINTENANCE_DONE, MAINTENANCE_PROGRESS, find_startup_failure
from wire.v1.bootstrap_pb2 import BootstrapEnvelope, MaintenanceJob, Rekey, Restore

from guest import config, maintenance
from guest.app import EXIT_STOPPED
from guest.memory.storage.files.rekey import fits
from guest.memory.storage.local import owned
from guest.memory.storage.scrubbing import SUFFIX
from tests.support import parties
from tests.support.memory.store import ORIGIN, opened
from tests.support.settings import configure, envelope_for

ALICE = "alice"
KEY, OTHER = "a key that only the tests know", "another key of the tests"
PLAIN = b"SQLite format 3\0"
ROUNDS = int(os.environ.get("MAINTENANCE_ROUNDS", "12"))
PATIENCE_S = 60.0
"""How long the first round, which is not disturbed, may take."""


class Place:
    """A workspace, and a guest for one job in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "internal" / "memory.db"
        self.backups = root / "internal" / "backups"
        self.envelope = envelope_for(root, ALICE)
        for name in ("internal", "shared", "tmp", "vault", "ipc"):
            (root / name).mkdir()
        self.backups.mkdir()
        self.output = ""

    def configure(self, key: str) -> None:
        self.envelope.secrets.memory_key = key

    def restore(self, backup: Path, key: str = "") -> dict[str, Any]:
        self.envelope.secrets.job_key = key
        return self.done(MaintenanceJob(restore=Restore(path=str(backup))))

    def rekey(self, old: str, new: str) -> dict[str, Any]:
        self.configure(new)
        self.envelope.secrets.job_key = old
        return self.done(MaintenanceJob(rekey=Rekey()))

    def done(self, job: MaintenanceJob, following: bytes = b"") -> dict[str, Any]:
        """Let a guest do `job`, to whom comes `following` behind the envelope; its result, or its
        failure raised."""
        self.envelope.maintenance.CopyFrom(job)
        ended = subprocess.run(
            [sys.executable, "-m", "guest.app", "--bootstrap-stdin"],
            input=framing.encode(self.envelope) + following,
            stderr=subprocess.PIPE,
            check=False,
        )
        self.output = ended.stderr.decode()
        for key in (KEY, OTHER):
            assert key not in self.output
        if ended.returncode == EXIT_OPERATOR:
            failure = find_startup_failure(self.output)
            assert failure is not None
            raise failure
        assert ended.returncode == 0, self.output
        events = [json.loads(line) for line in self.output.splitlines()]
        steps = [e["progress"] for e in events if e.get("event") == MAINTENANCE_PROGRESS]
        assert steps
        assert steps[-1][1] == steps[-1][2]
        (result,) = [e["result"] for e in events if e.get("event") == MAINTENANCE_DONE]
        assert isinstance(result, dict)
        return result

    def beside(self) -> list[str]:
        found = (p for p in self.path.parent.iterdir() if p.is_file())
        return sorted(p.name for p in found if p.suffix != SUFFIX)

    async def fill(self, *texts: str, key: str = "") -> None:
        async with opened(self.path, encryption_key=key) as memory:
            for text in texts:
                await memory.save(text, [], ORIGIN)

    async def texts(self, key: str = "", path: Path | None = None) -> list[str]:
        async with opened(path or self.path, encryption_key=key) as memory:
            return [note.text for note in (await memory.list(1000))[0]]

    async def back_up(self, key: str = "", name: str = "memory-1.db") -> Path:
        target = self.backups / name
        async with opened(self.path, encryption_key=key) as memory:
            await memory.copy_to(target)
        return target


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_a_backup_takes_the_place_of_the_memory_which_is_kept(place: Place) -> None:
    await place.fill("likes tea")
    backup = await place.back_up()
    await place.fill("likes coffee")
    result = place.restore(backup)
    assert (result["notes"], result["sessions"]) == (1, 0)
    kept = place.path.with_name(result["replaced_memory"])
    assert kept.name.startswith("memory.db.before-restore-")
    assert place.beside() == sorted(["memory.db", kept.name])
    assert await place.texts() == ["likes tea"]
    assert place.path.stat().st_mode & 0o777 == 0o600
    back = place.restore(kept)
    assert back["notes"] == 2
    assert await place.texts() == ["likes coffee", "likes tea"]


@pytest.mark.parametrize("key", ["", KEY])
async def test_a_backup_may_follow_the_envelope(place: Place, key: str) -> None:
    """It comes so into a pod, whose files the runner does not see."""
    place.configure(key)
    await place.fill("likes tea", *(f"{n}" * 7_000 for n in range(1, 60)), key=key)
    content = (await place.back_up(key)).read_bytes()
    await place.fill("likes coffee", key=key)
    job = MaintenanceJob(restore=Restore(incoming_bytes=len(content)))
    result = place.done(job, content + b"what follows is not of the backup")
    assert result["notes"] == 60
    assert "likes coffee" not in await place.texts(key)
    assert not [name for name in place.beside() if "restoring" in name]


async def test_a_backup_that_is_cut_short_changes_nothing(place: Place) -> None:
    await place.fill("likes tea")
    content = (await place.back_up()).read_bytes()
    await place.fill("likes coffee")
    job = MaintenanceJob(restore=Restore(incoming_bytes=len(content)))
    with pytest.raises(WireError, match="did not arrive as a whole") as refused:
        place.done(job, content[:-1])
    assert refused.value.details.startswith("1 of ")
    assert place.beside() == ["memory.db"]
    assert await place.texts() == ["likes coffee", "likes tea"]


async def test_a_restore_into_nothing(place: Place) -> None:
    await place.fill("likes tea")
    backup = await place.back_up()
    place.path.unlink()
    assert place.restore(backup)["replaced_memory"] == "there was none"
    assert await place.texts() == ["likes tea"]


@pytest.mark.parametrize("damage", ["corrupt", "truncated", "no database", "another key"])
async def test_a_restore_heals_what_cannot_be_opened(place: Place, damage: str) -> None:
    await place.fill("likes tea")
    backup = await place.back_up()
    content = place.path.read_bytes()
    match damage:
        case "corrupt":
            place.path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
        case "truncated":
            place.path.write_bytes(content[:8192])
        case "no database":
            place.path.write_bytes(b"what is this? " * 1000)
        case "another key":
            place.path.unlink()
            await place.fill("nobody knows the key", key=OTHER)
    place.path.with_name("memory.db-wal").write_bytes(b"the log of the damaged one")
    damaged = place.path.read_bytes()
    kept = place.path.with_name(place.restore(backup)["replaced_memory"])
    if damage != "truncated":  # its log was looked at
        assert kept.read_bytes() == damaged
    assert await place.texts() == ["likes tea"]


async def test_a_backup_of_any_key_is_restored_under_the_configured_one(place: Place) -> None:
    await place.fill("likes tea", key=OTHER)
    backup = await place.back_up(OTHER)
    place.path.unlink()
    place.configure(KEY)
    with pytest.raises(WireError) as caught:
        place.restore(backup)
    assert caught.value.code is Code.FAILED_PRECONDITION
    assert "--key-env" in caught.value.resolution
    assert place.beside() == []
    place.restore(backup, OTHER)
    assert await place.texts(KEY) == ["likes tea"]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "empty", "missing", "no database"])
async def test_a_damaged_backup_is_refused_and_nothing_changes(place: Place, damage: str) -> None:
    await place.fill(*(f"note {i} " + "words " * 100 for i in range(100)))
    backup = await place.back_up()
    content = bytearray(backup.read_bytes())
    match damage:
        case "flipped":
            for page in range(20, len(content) // 4096, 5):
                content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
            backup.write_bytes(content)
        case "truncated":
            backup.write_bytes(content[: len(content) // 2])
        case "empty":
            backup.write_bytes(b"")
        case "missing":
            backup.unlink()
        case "no database":
            backup.write_bytes(b"what is this? " * 1000)
    before = place.path.read_bytes()
    with pytest.raises(WireError) as caught:
        place.restore(backup)
    assert caught.value.code in (Code.DATA_LOSS, Code.NOT_FOUND)
    assert caught.value.resolution
    assert place.path.read_bytes() == before
    assert place.beside() == ["memory.db"]


async def test_a_backup_of_a_newer_version_is_refused(place: Place) -> None:
    await place.fill("likes coffee")
    newer = await place.back_up()
    with closing(sqlite3.connect(newer)) as connection, connection:
        connection.execute("INSERT INTO memory_migrations VALUES (99, 'future', '')")
    with pytest.raises(WireError, match="cannot be restored") as caught:
        place.restore(newer)
    assert "version 99" in caught.value.details
    assert await place.texts() == ["likes coffee"]


@pytest.mark.parametrize(("old", "new"), [("", KEY), (KEY, OTHER), (KEY, "")])
async def test_all_files_go_from_key_to_key(place: Place, old: str, new: str) -> None:
    texts = [f"quixotry {i} " + "words " * 50 for i in range(60)]
    await place.fill(*texts, key=old)
    backup = await place.back_up(old)
    kept = place.path.with_name("memory.db.before-v2")
    shutil.copyfile(backup, kept)
    stranger = place.backups / "stranger.db"
    stranger.write_bytes(os.urandom(8192))
    replica = place.path.with_name("replica.db")
    replica.write_bytes(b"fetched anew")
    vectors = [file.with_name(f"{file.name}.vectors-0123") for file in (place.path, replica)]
    for file in vectors:
        file.write_bytes(b"of an earlier version")
    result = place.rekey(old, new)
    assert sorted(result["rekeyed"]) == ["memory-1.db", "memory.db", kept.name]
    assert result["not_rekeyed"] == ["stranger.db"]
    assert [file for file in (replica, *vectors) if file.exists()] == []
    for path in (place.path, backup, kept):
        assert path.read_bytes().startswith(PLAIN) is (not new)
        assert (b"quixotry" in path.read_bytes()) is (not new)
        assert path.stat().st_mode & 0o777 == 0o600
        assert fits(path, new)
        assert not fits(path, old)
        assert sorted(await place.texts(new, path)) == sorted(texts)
    again = place.rekey(old, new)
    assert again["rekeyed"] == []
    assert len(again["had_the_new_key"]) == 3
    assert [name for name in place.beside() if "incoming" in name or "rekey" in name] == []


async def test_a_third_key_is_refused(place: Place) -> None:
    await place.fill("likes tea", key="the third key of these tests")
    before = place.path.read_bytes()
    with pytest.raises(WireError, match="neither key opens") as caught:
        place.rekey(KEY, OTHER)
    assert "--old-key-env" in caught.value.resolution
    assert place.path.read_bytes() == before
    with pytest.raises(WireError, match="are the same"):
        place.rekey("", "")


async def test_the_old_content_is_overwritten(place: Place) -> None:
    """Seen through a file descriptor that outlives the file's name."""
    await place.fill("quixotry")
    with place.path.open("rb") as old:
        place.rekey("", KEY)
        assert os.fstat(old.fileno()).st_nlink == 0
        content = old.read()
    assert len(content) > 8192
    assert content.strip(b"\0") == b""


async def test_a_memory_in_use_is_refused(place: Place) -> None:
    await place.fill("likes tea")
    backup = await place.back_up()
    with owned(place.path):
        with pytest.raises(WireError, match="in use by process") as caught:
            place.restore(backup)
        assert "runner stop" in caught.value.resolution
        with pytest.raises(WireError, match="in use by process"):
            place.rekey("", KEY)
    assert await place.texts() == ["likes tea"]


async def test_a_backup_is_not_restored_under_a_server(place: Place) -> None:
    await place.fill("likes tea")
    backup = await place.back_up()
    configure(place.envelope, "memory", remote_url="http://127.0.0.1:1")
    place.envelope.egress.CopyFrom(parties.link("unix:/run/http.sock", "token-of-egress"))
    with pytest.raises(WireError, match="on a server") as caught:
        place.restore(backup)
    assert "runner memory move" in caught.value.resolution


@pytest.mark.parametrize("kind", ["restore", "rekey"])
async def test_killed_at_any_moment_the_old_or_the_new_is_there(
    place: Place, kind: str, chance: random.Random
) -> None:
    await place.fill(*(f"old {i} " + "words " * 200 for i in range(40)))
    backup = await place.back_up()
    original = place.root / "original.db"
    shutil.copyfile(place.path, original)
    context = multiprocessing.get_context("fork")
    place.configure(KEY if kind == "rekey" else "")
    job = (
        MaintenanceJob(rekey=Rekey())
        if kind == "rekey"
        else MaintenanceJob(restore=Restore(path=str(backup)))
    )
    killed = news = rounds = 0
    takes = PATIENCE_S
    while killed < ROUNDS and rounds < 4 * ROUNDS:
        for file in place.path.parent.iterdir():
            if file.is_file():
                file.unlink()
        shutil.copyfile(original, place.path)
        async with opened(place.path) as memory:
            await memory.save("only in the old one", [], ORIGIN)
        child = context.Process(target=_do, args=(place.envelope, job))
        began = time.monotonic()
        child.start()
        child.join(takes if takes == PATIENCE_S else chance.uniform(0, takes))
        child.kill()
        child.join()
        rounds += 1
        if child.exitcode == -signal.SIGKILL:
            killed += 1
        else:
            takes = time.monotonic() - began
        new = fits(place.path, KEY) if kind == "rekey" else None
        found = await place.texts(KEY if new else "")
        if kind == "rekey":
            assert len(found) == 41
        else:
            new = "only in the old one" not in found
            assert len(found) == 41 - new
        news += bool(new)
        left = set(place.beside())
        assert not [name for name in left if "incoming" in name or "before-rekey" in name]
    print(f"\n{kind}: {killed} of {rounds} killed, {news} times the new one was there")
    assert killed > ROUNDS / 3


def _do(envelope: BootstrapEnvelope, job: MaintenanceJob) -> None:
    asyncio.run(maintenance.do(config.load(envelope), job))


async def test_told_to_stop_it_leaves_at_once(place: Place) -> None:
    await place.fill(*(f"note {i} " + "words " * 2000 for i in range(100)))
    place.configure(KEY)
    place.envelope.maintenance.rekey.SetInParent()
    with subprocess.Popen(
        [sys.executable, "-m", "guest.app", "--bootstrap-stdin", "--exit-with-parent"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(framing.encode(place.envelope))
        process.stdin.flush()
        assert MAINTENANCE_PROGRESS.encode() in process.stderr.readline()
        process.stdin.close()
        assert process.wait(10) in (EXIT_STOPPED, 0)
    key = KEY if fits(place.path, KEY) else ""
    assert len(await place.texts(key)) == 100

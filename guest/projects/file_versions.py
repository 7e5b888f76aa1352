"""The file in which versions of projects' files are kept, and which turn changed what: of SQLite,
bounded in size and age. What is lost with it are receipts and the way back, nothing else."""

import json
import logging
import os
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from wire.disk import shortage
from wire.v1 import gateway_pb2 as pb

from guest.projects.look import Version

log = logging.getLogger(__name__)

DIRECTORY: Final = Version("d", b"")
"""What a directory is after the turn that made it."""
KEPT_MAX_BYTES: Final = 2**30
KEPT_TURNS: Final = 200
KEPT_S: Final = 30 * 86400.0
_BATCH_BYTES: Final = 4 * 2**20
_TABLES: Final = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA secure_delete = ON;
CREATE TABLE IF NOT EXISTS versions (digest BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
    number INTEGER PRIMARY KEY, session_id TEXT NOT NULL, turn_id TEXT NOT NULL, at REAL NOT NULL,
    receipt BLOB NOT NULL, UNIQUE (session_id, turn_id));
CREATE TABLE IF NOT EXISTS changes (
    number INTEGER NOT NULL REFERENCES turns ON DELETE CASCADE, project TEXT NOT NULL,
    path BLOB NOT NULL, before_kind TEXT, before_digest BLOB, after_kind TEXT, after_digest BLOB,
    by_tool INTEGER NOT NULL, PRIMARY KEY (number, project, path)) WITHOUT ROWID;
"""
_GIVE_BACK: Final = "PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)"


class Changed(NamedTuple):
    """A file that a turn changed, or a directory that it made."""

    project: str
    path: str
    before: Version | None
    after: Version | None
    by_tool: bool = False

    @property
    def whole(self) -> str:
        return f"/projects/{self.project}/{self.path}"

    @property
    def is_directory(self) -> bool:
        return self.after == DIRECTORY

    @property
    def says_the_same(self) -> bool:
        """Whether only its mode is another one."""
        before, after = self.before, self.after
        return before is not None and after is not None and before.digest == after.digest


class FileVersions:
    """Any thread may call. Raises `sqlite3.Error` and `OSError` where the disk fails."""

    def __init__(self, path: Path, most_bytes: int = KEPT_MAX_BYTES) -> None:
        self._path = path
        self._most = most_bytes
        self._lock = threading.RLock()
        self._pending: dict[bytes, bytes] = {}
        self._pending_bytes = 0
        self.full = ""
        """Why new versions are not kept; empty if they are."""
        self._opened: sqlite3.Connection | None = None

    @property
    def exists(self) -> bool:
        return self._opened is not None or self._path.exists()

    @property
    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            try:
                self._opened = self._open()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                log.warning("what was kept of changed files is damaged, and begins anew: %s", error)
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
                self._opened = self._open()
        return self._opened

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        found = sqlite3.connect(self._path, check_same_thread=False)
        try:
            found.executescript(_TABLES)
            found.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            found.close()
            raise
        return found

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def keep(self, digest: bytes, data: bytes) -> None:
        """Take what a version says. It is kept with the next `flush`, if there is room."""
        with self._lock:
            if digest in self._pending:
                return
            self._pending[digest] = zlib.compress(data, 1)
            self._pending_bytes += len(self._pending[digest])
            if self._pending_bytes > _BATCH_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write what was taken."""
        with self._lock:
            pending, self._pending, size = self._pending, {}, self._pending_bytes
            self._pending_bytes = 0
            if (pending or self.full) and self._has_room(size):
                with self._database as database:
                    database.executemany(
                        "INSERT OR IGNORE INTO versions VALUES (?, ?)", pending.items()
                    )

    def _has_room(self, size: int) -> bool:
        pages, page, free = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "page_size", "freelist_count")
        )
        if (pages - free) * page + size > self._most:
            self.full = f"the copies of files have reached {self._most // 2**20} MiB"
        else:
            missing = shortage(os.statvfs(self._path.parent), size)
            self.full = f"the disk is full: {missing}" if missing else ""
        return not self.full

    def data(self, version: Version | None) -> bytes | None:
        """What a version says; None if that is not kept."""
        if version is None or version.digest[:1] == b"-":
            return None
        with self._lock:
            if (packed := self._pending.get(version.digest)) is None:
                found = self._database.execute(
                    "SELECT data FROM versions WHERE digest = ?", (version.digest,)
                ).fetchone()
                packed = found[0] if found else None
            return None if packed is None else zlib.decompress(packed)

    def add(
        self, session_id: str, turn_id: str, receipt: pb.FileChanges, changed: Iterable[Changed]
    ) -> None:
        """Keep what a turn changed, and forget what is too old."""
        with self._lock:
            self.flush()
            with self._database as database:
                number = database.execute(
                    "INSERT OR REPLACE INTO turns (session_id, turn_id, at, receipt)"
                    " VALUES (?, ?, ?, ?)",
                    (session_id, turn_id, time.time(), receipt.SerializeToString()),
                ).lastrowid
                database.executemany(
                    "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (
                            *(number, each.project, os.fsencode(each.path)),
                            *(each.before or (None, None)),
                            *(each.after or (None, None)),
                            each.by_tool,
                        )
                        for each in changed
                    ),
                )
                database.execute(
                    "DELETE FROM changes WHERE number <= ? OR number IN"
                    " (SELECT number FROM turns WHERE at < ?)",
                    ((number or 0) - KEPT_TURNS, time.time() - KEPT_S),
                )
                database.execute(
                    "DELETE FROM turns WHERE number <= ?", ((number or 0) - 50 * KEPT_TURNS,)
                )

    def receipts(self, session_id: str, turn_ids: Iterable[str]) -> dict[str, pb.FileChanges]:
        wanted = json.dumps(list(turn_ids))
        with self._lock:
            found = self._database.execute(
                "SELECT turn_id, receipt FROM turns WHERE session_id = ?"
                " AND turn_id IN (SELECT value FROM json_each(?))",
                (session_id, wanted),
            ).fetchall()
        return {turn_id: pb.FileChanges.FromString(receipt) for turn_id, receipt in found}

    def of_turn(
        self, session_id: str, turn_id: str
    ) -> tuple[str, pb.FileChanges, list[Changed]] | None:
        """A turn with what it changed; of no id, the last of the session that changed something."""
        with self._lock:
            turn = self._database.execute(
                "SELECT number, turn_id, receipt FROM turns WHERE session_id = ?1"
                " AND (turn_id = ?2 OR ?2 = '' AND EXISTS"
                " (SELECT 1 FROM changes WHERE changes.number = turns.number))"
                " ORDER BY number DESC LIMIT 1",
                (session_id, turn_id),
            ).fetchone()
            if turn is None:
                return None
            rows = self._database.execute(
                "SELECT project, path, before_kind, before_digest, after_kind, after_digest,"
                " by_tool FROM changes WHERE number = ? ORDER BY project, path",
                turn[:1],
            ).fetchall()
        changed = [
            Changed(
                project,
                os.fsdecode(path),
                Version(*rest[:2]) if rest[0] else None,
                Version(*rest[2:4]) if rest[2] else None,
                bool(rest[4]),
            )
            for project, path, *rest in rows
        ]
        return turn[1], pb.FileChanges.FromString(turn[2]), changed

    def forget(self, session_ids: Iterable[str]) -> None:
        """Remove what turns of sessions changed. What files said goes with `prune`."""
        with self._lock, self._database as database:
            database.executemany(
                "DELETE FROM turns WHERE session_id = ?", ((each,) for each in session_ids)
            )

    def prune(self, used: Iterable[bytes]) -> None:
        """Remove what no turn and none of `used` needs, and give the room back."""
        with self._lock:
            with self._database as database:
                database.execute("CREATE TEMP TABLE used (digest BLOB PRIMARY KEY)")
                database.executemany(
                    "INSERT OR IGNORE INTO used VALUES (?)", ((each,) for each in used)
                )
                database.execute(
                    "DELETE FROM versions WHERE digest NOT IN (SELECT digest FROM used UNION"
                    " SELECT before_digest FROM changes WHERE before_digest IS NOT NULL UNION"
                    " SELECT after_digest FROM changes WHERE after_digest IS NOT NULL)"
                )
                database.execute("DROP TABLE used")
            self._database.executescript(_GIVE_BACK)

"""Connecting to a database file with its key, never harming one that does not fit.

The engine must not meet a file under a wrong key: closing it again, it would
bring the log into the file under that key and so destroy both. So the key is
tried first on the file alone, read-only and without its log.
"""

import hashlib
from base64 import b64encode
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import libsql
from wire.errors import Code

from guest.errors import StorageError
from guest.memory.database import failures

_PRAGMAS: Final = (
    "PRAGMA busy_timeout = 200",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -16384",
    "PRAGMA temp_store = MEMORY",
)
_PLAIN_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 24
_FRACTIONS: Final = b"\x40\x20\x20"
"""Bytes 21 to 23 of every SQLite file, which encryption leaves as they are."""


@lru_cache(maxsize=4)
def derive(key: str) -> str:
    """What the engine is given for the operator's key: always 32 characters.

    The engine pads or cuts its passphrases to 32 bytes and hashes them quickly,
    so a longer key would count in part and a weak one would be guessed in no
    time. There is no place in the file for a salt; ours only sets these keys apart.
    """
    if not key:
        return ""
    raw = hashlib.scrypt(key.encode(), salt=b"oxydra memory database", n=2**14, r=8, p=1, dklen=24)
    return b64encode(raw).decode()


def connect(path: Path, key: str) -> Any:
    """A connection to the file at `path`, which exists, in WAL mode.

    Raises `StorageError`; a file that `key` does not fit is left untouched.
    """
    passphrase = derive(key)
    check_key(path, passphrase)
    try:
        connection = engine(str(path), passphrase)
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma).fetchall()
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchall()
            if mode != [("wal",)]:
                raise ValueError(f"unable to open it with a write-ahead log: {mode}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except BaseException:
            connection.close()
            raise
    except BaseException as error:
        raise failures.from_engine(error, path) from error
    return connection


def engine(database: str, passphrase: str) -> Any:
    """A bare connection; nothing of the file has been read yet."""
    if not passphrase:
        return libsql.connect(database, isolation_level=None)
    return libsql.connect(database, isolation_level=None, encryption_key=passphrase)


def connect_apart(path: Path, key: str) -> Any:
    """A connection that only reads the file itself and leaves nothing beside it."""
    return _apart(path, derive(key))


def _apart(path: Path, passphrase: str) -> Any:
    return engine(f"file:{quote(str(path))}?immutable=1", passphrase)


def check_key(path: Path, passphrase: str) -> None:
    """Raise `StorageError` where the file at `path` cannot be read with `passphrase`.

    Opens and closes the file: never while this process has it open.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        return
    connection = _apart(path, passphrase)
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchall()
    except BaseException as error:
        if "file is not a database" in str(error):
            raise _unreadable(path, header, keyed=bool(passphrase)) from None
        # other damage is for the real opening to meet: the log may repair it
    finally:
        connection.close()


def _unreadable(path: Path, header: bytes, *, keyed: bool) -> StorageError:
    if header.startswith(_PLAIN_MAGIC) and keyed:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"the memory database {path} is not encrypted, but a key is configured",
            details="it was left as it is: new memories must not be stored in plain text",
            resolution="encrypt it with `runner memory rekey`, or remove [memory.encryption] from "
            "runner.toml",
        )
    if header[21:24] != _FRACTIONS or header.startswith(_PLAIN_MAGIC):
        return failures.no_database(path, "its first page is damaged, or it never was one")
    if not keyed:
        return StorageError(
            Code.FAILED_PRECONDITION,
            f"the memory database {path} is encrypted, and no key is configured",
            details="it was left as it is",
            resolution="name its key in the [memory.encryption] section of runner.toml "
            "(key_env or key_file), then: runner restart",
        )
    return StorageError(
        Code.FAILED_PRECONDITION,
        f"the configured key does not open the memory database {path}",
        details="it is encrypted with another key, or its first page is damaged; it was left "
        "as it is",
        resolution="configure the key that it was encrypted with ([memory.encryption] in "
        "runner.toml), or bring back a backup with `runner memory restore`",
    )

"""What a memory server must be, judged by what its SQL can do.

SQL has no rights of its own: whoever may ask one database may call every function that the server
was built with, with the rights of the server's process. A function that opens files opens those
of all other databases of that process, whatever token was shown.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from wire.errors import Code, WireError

ABILITIES: Final = """
SELECT name FROM pragma_function_list UNION SELECT name FROM pragma_module_list
UNION SELECT 'file ' || file FROM pragma_database_list
"""
"""Asks for the names of functions and modules, and for where the database lies."""

FULL_TEXT: Final = "SELECT fts5_source_id()"
"""Fails where there is no full-text search."""

_FILES: Final = frozenset(
    {
        *("readfile", "writefile", "edit", "fsdir", "csv", "vsv", "zipfile", "lsdir"),
        *("fileio_read", "fileio_write", "fileio_append", "fileio_mkdir", "fileio_symlink"),
        *("fileio_ls", "fileio_scan"),
    }
)
"""Those of SQLite's own extensions and of sqlean that open files."""
_NAMESPACE: Final = re.compile(r"file .*/dbs/(?!default/)[^/]+/data")
"""Where sqld with `--enable-namespaces` keeps a database."""


def files_in_reach(abilities: Iterable[str]) -> list[str]:
    """The names among `abilities` with which SQL reaches files."""
    return sorted(_FILES.intersection(abilities))


def remark(url: str, abilities: Iterable[str] | None) -> str:
    """What to say of Turso's cloud, which keeps its customers apart by means of its own."""
    reached = files_in_reach(abilities or ()) if _is_turso(url) else ()
    return f"the SQL of {url} reaches files ({', '.join(reached)})" if reached else ""


def objection(
    url: str, full_text: object, abilities: Iterable[str] | None, *, one_user: bool
) -> WireError | None:
    """Why the memory of a user must not be on that server; None if it may.

    `full_text` and `abilities` are what the server answers to `FULL_TEXT` and `ABILITIES`, None if
    it refuses to; `one_user` is whether the operator has said that it holds nobody else's. What
    the SQL of Turso's cloud reaches is not judged.
    """
    if full_text is None:
        return WireError(
            Code.FAILED_PRECONDITION,
            f"the database at {url} has no full-text search (FTS5)",
            details="memory needs a libSQL database; this is one of another engine, such as "
            "`turso db create --tursodb` makes",
            resolution="turso db create NAME, without --tursodb; name it in memory.remote_url",
        )
    if _is_turso(url):
        return None
    if one_user and any(map(_NAMESPACE.fullmatch, abilities or ())):
        return WireError(
            Code.FAILED_PRECONDITION,
            f"the memory server {url} holds more than one user",
            details="memory.server_holds_one_user says that it does not, but the server keeps "
            "a database for each name (--enable-namespaces)",
            resolution="give each user a server: deploy/compose/sqld-users.sh add USER, and move "
            "the memory as docs/guide/remote.md says",
        )
    if one_user or (abilities is not None and not files_in_reach(abilities)):
        return None
    reached = "may reach files: it does not say what it can do"
    if abilities is not None:
        reached = f"reaches files ({', '.join(files_in_reach(abilities))})"
    return WireError(
        Code.FAILED_PRECONDITION,
        f"the SQL of the memory server {url} {reached}",
        details="whoever has a token of that server could read and change all that lies on it, "
        "other users' memories too",
        resolution="give each user a server: deploy/compose/sqld-users.sh add USER; if this one "
        "holds one user alone, memory.server_holds_one_user = true: runner config edit",
    )


def _is_turso(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith(".turso.io")

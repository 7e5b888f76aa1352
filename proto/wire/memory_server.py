"""What a memory server must be, judged by what its SQL can do.

SQL has no rights of its own: whoever may ask one database may call every function that the server
was built with, with the rights of the server's process. A function that opens files opens those
of all other databases of that process, whatever token was shown.
"""

import re
from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import Final
from urllib.parse import urlsplit

from wire.errors import Code, WireError
from wire.text import visible_name

ABILITIES: Final = """
SELECT name FROM pragma_function_list UNION SELECT name FROM pragma_module_list
UNION SELECT 'file ' || file FROM pragma_database_list
"""
"""Asks for the names of functions and modules, and for where the database lies."""

FULL_TEXT: Final = "SELECT fts5_source_id()"
"""Fails where there is no full-text search."""

_HARMLESS: Final = """
-> ->> abs acos acosh asin asinh atan atan2 atanh atn2 avg bm25 bytecode carray ceil ceiling
changes char charindex coalesce concat concat_ws cos cosh cot coth count cume_dist current_date
current_time current_timestamp date datetime dbstat degrees dense_rank difference exp first_value
floor format generate_series glob group_concat hex highlight if ifnull iif instr julianday lag
last_insert_rowid last_rows_affected last_value lead leftstr length like likelihood likely ln
load_extension log log10 log2 lower lower_quartile lsmode ltrim match matchinfo max median min mod
mode nth_value ntile nullif octet_length offsets optimize padc padl padr percent_rank percentile
percentile_cont percentile_disc pi pow power printf proper quote radians random randomblob rank
regexp regexpi replace replicate reverse rightstr round row_number rtree rtree_i32 rtreecheck
rtreedepth rtreenode rtrim sha3 sha3_query sign sin sinh snippet soundex sqrt square stdev
strfilter strftime string_agg substr substring subtype sum tables_used tan tanh time timediff total
total_changes trim trunc typeof unhex unicode unistr unistr_quote unixepoch unlikely upper
upper_quartile uuid uuid_blob uuid_str variance zeroblob
"""
_FAMILIES: Final = ("file ", "fts", "geopoly", "json", "libsql_", "pragma_", "sqlite", "vector")
"""What SQLite and libSQL bring that opens no file but the database's. What is not here may."""
_NAMESPACE: Final = re.compile(r"file .*/dbs/(?!default/)[^/]+/data")
"""Where sqld with `--enable-namespaces` keeps a database."""


def files_in_reach(abilities: Iterable[str]) -> list[str]:
    """The names among `abilities` with which SQL may reach files: all that are not known not to."""
    harmless = _HARMLESS.split()
    return sorted(n for n in abilities if n not in harmless and not n.startswith(_FAMILIES))


def _some(names: list[str]) -> str:
    return visible_name(shorten(", ".join(names), 100, placeholder=" …"))


def remark(url: str, abilities: Iterable[str] | None) -> str:
    """What to say of Turso's cloud, which keeps its customers apart by means of its own."""
    reached = files_in_reach(abilities or ()) if _is_turso(url) else []
    return f"the SQL of {url} may reach files ({_some(reached)})" if reached else ""


def objection(
    url: str, full_text: object, abilities: Sequence[str] | None, *, one_user: bool
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
    if one_user or (abilities and not files_in_reach(abilities)):
        return None
    known = _some(files_in_reach(abilities)) if abilities else "it does not say what it can do"
    return WireError(
        Code.FAILED_PRECONDITION,
        f"the SQL of the memory server {url} may reach files ({known})",
        details="whoever has a token of that server could read and change all that lies on it, "
        "other users' memories too",
        resolution="give each user a server: deploy/compose/sqld-users.sh add USER; if this one "
        "holds one user alone, memory.server_holds_one_user = true: runner config edit",
    )


def _is_turso(url: str) -> bool:
    return (urlsplit(url).hostname or "").endswith(".turso.io")

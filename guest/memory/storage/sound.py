"""Reads what another program wrote as a value that the column is for.

SQLite stores any value in any column. The rows of every database pass here, so that no reader meets
bytes in a text, a word in a number, or a time that is none.
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, Final, get_args

from guest.memory.models import NOTE_TYPES, Change, at
from guest.memory.storage.base import INTEGER_MAX, Row, Value, nearest

log = logging.getLogger(__name__)

VERSION, EPOCH = (
    f"iif(typeof({name}) = 'integer' AND {name} BETWEEN 0 AND {INTEGER_MAX}, {name}, 1)"
    for name in ("version", "epoch")
)
"""In SQL, these numbers as they are read."""
_TIMES: Final = re.compile(r"(?:[0-9-]{10}T[0-9:]{8}\.[0-9]{6}Z)+")
_TIME_CHARS: Final = len("2026-11-27T17:45:00.000000Z")
_COMMANDS: Final = (("note_id", "memory forget"), ("session_id", "sessions forget"))
_reported: Final = set[Value]()
_REPORTED_MAX: Final = 1_000
_FEW: Final = 4


def sound(names: Sequence[str], rows: Iterable[Row]) -> tuple[Row, ...]:
    """`rows`, whose columns have these names, with sound values. What was not is logged once."""
    given, readers = tuple(rows), _readers(tuple(names))
    if len(given) < _FEW:
        found = tuple([tuple([f(x) for f, x in zip(readers, r, strict=True)]) for r in given])
    else:
        columns = tuple(zip(*given, strict=True))
        read = tuple(map(_column, readers, columns))
        found = given if read == columns else tuple(zip(*read, strict=True))
    if found != given:
        for before, row in zip(given, found, strict=True):
            _report(names, before, row)
    return found


@lru_cache(256)
def _readers(names: tuple[str, ...]) -> list[Callable[[Any], Any]]:
    return [_READERS.get(each, sound_time if each.endswith("_at") else _text) for each in names]


def _column(read: Callable[[Any], Any], column: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of one column. Texts and times are looked at all at once."""
    if read in (_text, sound_time) and {*map(type, column)} == {str}:
        if read is _text and not any("\0" in value for value in column):
            return column
        if {*map(len, column)} == {_TIME_CHARS} and _TIMES.fullmatch("".join(column)):
            return column
    unsound = {value: new for value in set(column) if (new := read(value)) != value}
    return tuple([unsound.get(value, value) for value in column]) if unsound else column


def with_bytes(sql: str, names: Sequence[str]) -> str:
    """The same query, with bytes for texts: where one is not UTF-8, an engine gives no row."""
    columns = [f"c{number}" for number in range(len(names))]
    values = (f"iif(typeof({each}) = 'text', CAST({each} AS BLOB), {each})" for each in columns)
    quoted = (name.replace('"', '""') for name in names)
    named = ", ".join(f'{value} AS "{name}"' for value, name in zip(values, quoted, strict=True))
    return f"WITH found ({', '.join(columns)}) AS ({sql}) SELECT {named} FROM found"  # noqa: S608


def sound_time(value: Any) -> Any:
    """The time in the form in which memory writes times; 1970 where it is none."""
    text = _text(value)
    if not isinstance(text, str) or (len(text) == _TIME_CHARS and _TIMES.fullmatch(text)):
        return text
    moment = datetime.fromtimestamp(0, UTC)
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(text)
    return at(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return nearest(value) if isinstance(value, str) and "\0" in value else value


def _count(least: int, value: Any) -> Any:
    is_count = value is None or (type(value) is int and 0 <= value <= INTEGER_MAX)
    return value if is_count else least


def _one_of(accepted: Sequence[str], value: Any) -> Any:
    return text if (text := _text(value)) in accepted else accepted[0]


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "vector": lambda value: value,
    "type": partial(_one_of, NOTE_TYPES),
    "change": partial(_one_of, get_args(Change)),
    "origin_actor": partial(_one_of, ("import", "user", "agent", "automatic")),
    **dict.fromkeys(
        ("confidence", "importance"),
        lambda value: min(max(value, 0.0), 1.0) if isinstance(value, int | float) else 1.0,
    ),
    **dict.fromkeys(("version", "sequence", "epoch"), partial(_count, 1)),
    **dict.fromkeys(
        ("budget", "again", "queue", "paused", "attempt", "renewed"), partial(_count, 0)
    ),
    **dict.fromkeys(("calls", "cost", "missed", "told"), partial(_count, 0)),
    **dict.fromkeys(("restores", "access_count", "origin_material", "turns"), partial(_count, 0)),
    **dict.fromkeys(
        ("archived_at", "accessed_at", "superseded_at", "read_at", "due_at"),
        lambda value: sound_time(value) if value else _text(value),
    ),
}


def _report(names: Sequence[str], row: Row, read: Row) -> None:
    """Log whose row it is, unless its bytes were nothing but text."""
    pairs = zip(row, read, strict=True)
    if all(value in (shown, str(shown).encode()) for value, shown in pairs):
        return
    owned = dict(zip(names, read, strict=True))
    owner, command = next(((owned[x], y) for x, y in _COMMANDS if owned.get(x)), ("a row", ""))
    if owner not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(owner)
        fix = ("; to remove it: runner", command, owner) if command else ()
        log.warning(
            "another program wrote to %s what cannot be read%s", owner, " ".join(map(str, fix))
        )

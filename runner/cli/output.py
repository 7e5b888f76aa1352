"""Text for terminals: neutralised, cut to width, in lines and tables; JSON in one shape for each
message of the contract; and questions."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, tzinfo
from operator import attrgetter
from typing import Any, Final, Generic, TextIO, TypeVar

import typer
from google.protobuf.message import Message
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from wire import zones
from wire.errors import Code, WireError
from wire.text import HIDDEN
from wire.v1 import control_pb2, gateway_pb2

_BIDI_OVERRIDES = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
    **dict.fromkeys(_BIDI_OVERRIDES, 0xFFFD),
    **dict.fromkeys(range(0xD800, 0xE000), 0xFFFD),
    **{code: code - 0xE0000 for code in range(0xE0020, 0xE007F)},  # invisible letters
}
_HIDDEN: Final = re.compile(f"[{HIDDEN}]")
_PIPE_CELLS: Final = 2_000
_TABLE_CELLS: Final = 120
_ROOMY_CELLS: Final = 500
_HEAD_CELLS: Final = 21
_INDENT: Final = (0, 0, 0, 2)
_zone: tzinfo | None = None
_T = TypeVar("_T")
_GENERATED: Final = re.compile(r"session-([0-9a-f]{8})-[0-9a-f-]{27}")

_NOTE_TEXT: Final = "note_id? text tags version created_at updated_at source? type? key? origin?"
HIT: Final = f"{_NOTE_TEXT} score matched_by? older_than?"
"""A search result; `note_id` is null for a passage of a conversation."""
SIMILAR: Final = "note_id text score"
_ELSEWHERE: Final = (
    "score matched_by meaning words older_than superseded superseded_by superseded_reason "
    "superseded_at"
)


def note_details() -> Iterator[str]:
    """The other fields of a note as keys of a shape."""
    others = {name.removesuffix("?") for name in f"{_NOTE_TEXT} {_ELSEWHERE}".split()}
    for field in gateway_pb2.Note.DESCRIPTOR.fields:
        if field.name not in others:
            yield f"{field.name}?" if field.type == field.TYPE_STRING else field.name


SHAPES: Final[Mapping[type[Message], str]] = {
    gateway_pb2.Note: f"{_NOTE_TEXT} {' '.join(note_details())}",
    gateway_pb2.NoteOrigin: "actor? channel? session_id? turn_id? link? material",
    gateway_pb2.Change: (
        "note_id version change text tags at key? type? current superseded_by? origin"
    ),
    gateway_pb2.NearPair: "older newer similarity? may_contradict",
    gateway_pb2.ReviewMemoryReply: "similar=near stale warnings",
    gateway_pb2.Session: "session_id title channel created_at updated_at turns archived_at?",
    gateway_pb2.HistoryEvent: "sequence turn_id role text created_at incomplete?",
    gateway_pb2.MemoryReceipt: (
        "turn_id action outcome note_id version searchable durable asked_by at=created_at"
    ),
    gateway_pb2.UsageSum: (
        "requests input_tokens cached_tokens output_tokens cost_usd unpriced_requests "
        "uncertain_requests"
    ),
    gateway_pb2.Budget: "setting used limit resets_at?",
    control_pb2.StatusReply: (
        "workspace tier pid started_at version provider notices guests boundary? memory? kernel?"
    ),
    control_pb2.GuestStatus: (
        "role state pid restarts reason since details resident_bytes last_end?"
    ),
    control_pb2.BoundaryReport: "passed checked_at checks",
    control_pb2.BoundaryCheck: "name passed details",
}
"""The keys of each message in JSON, in order, as `as_json` takes them. A shape may get new keys and
never loses one; docs/guide/memory-for-integrators.md lists them."""


def plain_console(**settings: Any) -> Console:
    """A console that prints text as it is: `[red]` and `:smile:` have no meaning.

    Without a terminal each row of a table is one line, as `grep` needs it.
    """
    console = Console(highlight=False, markup=False, emoji=False, **settings)
    if not (console.is_terminal or "width" in settings or os.environ.get("COLUMNS")):
        console.width = _PIPE_CELLS
    return console


def say(text: str) -> None:
    """Print prose on standard error; a terminal breaks it between words."""
    plain_console(stderr=True).print(text)


def without_padding(console: Console, table: RenderableType) -> str:
    """`table` as `console` would print it, without the blanks at the ends of lines."""
    with console.capture() as captured:
        console.print(table)
    return "\n".join(row.rstrip() for row in captured.get().splitlines())


def print_table(shown: "Table | Rows") -> None:
    """Print a table on standard output.

    Through a pipe each row is one line with a tab between cells, for `cut` and `awk`; where
    `COLUMNS` is set, it is as wide as that, with blanks between columns.
    """
    console = plain_console()
    if console.is_terminal:
        console.print(shown)
    elif os.environ.get("COLUMNS"):
        typer.echo(without_padding(console, shown))
    else:
        table = shown if isinstance(shown, Table) else shown.table()
        rows = zip(*(map(_bare, column.cells) for column in table.columns), strict=True)
        headings = [[_bare(column.header) for column in table.columns]]
        shown_rows = [*(headings if table.show_header else []), *rows]
        typer.echo("\n".join("\t".join(row) for row in shown_rows))


def _bare(cell: RenderableType) -> str:
    return " ".join((cell.plain if isinstance(cell, Text) else str(cell)).split())


def json_line(value: object) -> str:
    """`value` as JSON on one line, with what is never seen escaped."""
    return _HIDDEN.sub(lambda found: _escaped(found[0]), json.dumps(value, ensure_ascii=False))


def print_json(value: object) -> None:
    typer.echo(json_line(value))


def discard(stream: TextIO) -> None:
    """Discard what is still buffered for a reader that is gone, and everything after it.

    Otherwise the interpreter would complain when it ends.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@dataclass(frozen=True)
class Shape(Generic[_T]):
    """What a command shows of each thing that it lists, declared once for people and programs.

    Attributes:
        columns: The headings of the table, each with what makes a cell. Two may be without words,
            such as " " and "".
        keys: The keys in JSON, as `as_json` takes them.
    """

    columns: Mapping[str, Callable[[_T], str | Text]]
    keys: str = ""

    def table(self, items: Iterable[_T]) -> Table:
        return table_of(*self.columns, rows=map(self.row, items))

    def row(self, item: _T) -> list[str | Text]:
        return [cell(item) for cell in self.columns.values()]

    def as_json(self, item: _T) -> dict[str, Any]:
        return as_json(item, self.keys)

    def line(self, item: _T, *, json: bool) -> str:
        """One item on a line of its own."""
        return json_line(self.as_json(item)) if json else "  ".join(map(str, self.row(item)))

    def show(self, items: Iterable[_T], *, json: bool, none: str = "") -> None:
        """Print the items, or `none` if there are none; always a list with `json`."""
        listed = list(items)
        if json:
            print_json(list(map(self.as_json, listed)))
        elif listed or not none:
            print_table(self.table(listed))
        else:
            typer.echo(none)


class Rows:
    """Rows of cells, the last of which is a long text.

    Shown as a table if a third of the width is left for the text; on a narrow terminal each text
    has its own lines. Nothing is cut off.
    """

    def __init__(self, shape: Shape[Any], items: Iterable[Any]) -> None:
        self._shape = shape
        self._items = items

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < _TABLE_CELLS:
            for *head, text in map(self._shape.row, self._items):
                yield Text("  ").join(Text.assemble(cell) for cell in head if cell)
                yield Padding(text, _INDENT, expand=False)
            return
        yield self.table(_HEAD_CELLS if options.max_width < _ROOMY_CELLS else None)

    def table(self, most: int | None = None) -> Table:
        """All rows as one table, in which no column but the last is wider than `most` cells."""
        table = self._shape.table(self._items)
        for column in table.columns[:-1]:
            column.max_width = most
        return table


def print_as_they_come(texts: AsyncIterator[str]) -> None:
    """Print each text on a line of its own at once, until Ctrl-C or until nobody reads."""

    async def print_all() -> None:
        async for text in texts:
            typer.echo(text)
            sys.stdout.flush()

    try:
        asyncio.run(print_all())
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:  # the reader of `| head` is gone
        discard(sys.stdout)


def neutralise(text: str) -> str:
    """`text` without anything that a terminal would obey.

    Control characters other than newline and tab, characters that reorder text, and lone surrogates
    become visible, and whatever else is never seen is named by its code point. Invisible "tag"
    letters, which a model can read, become the letters they stand for. A CRLF becomes a newline.
    Text comes in pieces, so joiners and the selectors of emoji stay.
    """
    seen = text.replace("\r\n", "\n").translate(_VISIBLE)
    return _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", seen)


def _escaped(char: str) -> str:
    """The character as JSON escapes it, also DEL."""
    return json.dumps(char)[1:-1] if ord(char) > 0xFF else f"\\u{ord(char):04x}"


def one_line(text: str) -> str:
    """`text` on a single line, neutralised, with each run of white space as one space."""
    return neutralise(" ".join(text.split()))


def clip(text: str, width: int) -> str:
    """`text` cut to `width` terminal cells, with an ellipsis at the cut."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def failure_lines(brief: str, resolution: str, details: str = "") -> str:
    """What went wrong and, each on a line of its own, what there is of the reason and the fix."""
    fix = f"fix: {resolution}" if resolution else ""
    return "\n  ".join(one_line(each) for each in (f"✗ {brief}", details, fix) if each)


def brief_session(session_id: str) -> str:
    """A session's id, cut to a beginning that commands accept."""
    return one_line(_GENERATED.sub(r"\1", session_id))


def session_shape(current: str = "", *, brief: bool = False) -> Shape[gateway_pb2.Session]:
    """Sessions. `*` marks the `current` one; `brief` ids are beginnings that commands accept."""

    columns: dict[str, Callable[[gateway_pb2.Session], str | Text]] = {
        " ": lambda session: "*" if session.session_id == current else "",
        "session": lambda session: (
            brief_session(session.session_id) if brief else one_line(session.session_id)
        ),
        "title": lambda session: one_line(session.title),
        "turns": lambda session: str(session.turns),
        "last used": lambda session: to_the_second(session.updated_at),
        "": lambda session: "archived" if session.archived_at else "",
    }
    if not current:
        del columns[" "]
    return Shape(columns)


def table_of(*headings: str, rows: Iterable[Sequence[str | Text]] = ()) -> Table:
    """A table without lines. Long cells are folded."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, no_wrap=heading == "session", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def fact_table(facts: Mapping[str, str]) -> Table:
    """A table of names and values, neutralised."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(Text(one_line(name)), Text(one_line(value)))
    return table


def status_table(
    hello: gateway_pb2.HelloReply, host: control_pb2.StatusReply, session_id: str
) -> Table:
    """What the chat runs on: user, tier, model, session and the host's processes."""
    facts = {
        "user": hello.user_id,
        "tier": hello.tier,
        "model": model_name(hello),
        "session": session_id or "none yet; the first turn opens one",
        "workspace": host.workspace,
        "host": f"pid {host.pid}, since {to_the_second(host.started_at)}",
    }
    for guest in host.guests:
        text = f"{guest.state}, pid {guest.pid}" if guest.pid else guest.state
        if guest.restarts:
            text += f", {guest.restarts} restarts"
        facts[guest.role] = f"{text}: {guest.reason}" if guest.reason else text
    return fact_table(facts)


def model_name(hello: gateway_pb2.HelloReply) -> str:
    """`provider model`, or just `offline` if no provider is configured."""
    return one_line(" ".join(dict.fromkeys((hello.provider, hello.model))))


def show_times_in(time_zone: str) -> None:
    """Show all further times in the zone of this name, instead of that of this machine."""
    global _zone
    _zone = zones.zone(time_zone)


def today() -> date:
    """The user's day."""
    return datetime.now(_zone).date()


def to_the_second(timestamp: str) -> str:
    """An RFC 3339 timestamp for people: in the user's time zone, which it names."""
    moment = _local(timestamp)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}" if moment else timestamp


def lately(timestamp: str) -> str:
    """An RFC 3339 timestamp of the last days in a few cells: the time, before today the day too."""
    if (moment := _local(timestamp)) is None:
        return timestamp
    today = moment.date() == datetime.now(moment.tzinfo).date()
    return f"{moment:%H:%M}" if today else f"{moment:%d %b %H:%M}"


def local_day(timestamp: str) -> str:
    """The day of an RFC 3339 timestamp in the user's time zone."""
    moment = _local(timestamp)
    return f"{moment:%Y-%m-%d}" if moment else timestamp


def _local(timestamp: str) -> datetime | None:
    try:
        return datetime.fromisoformat(timestamp).astimezone(_zone)
    except (ValueError, OverflowError):
        return None


def confirm(question: str, *, what: str, command: str) -> None:
    """Ask on the terminal whether to do `what`, such as "forget these notes"; return only if the
    answer is yes. `command` does it without asking.

    Raises `WireError`: FAILED_PRECONDITION without a terminal, CANCELLED for anything but a yes.
    """
    if not sys.stdin.isatty():
        raise WireError(
            Code.FAILED_PRECONDITION,
            f"nobody can be asked whether to {what}",
            details="standard input is not a terminal",
            resolution=command,
        )
    try:
        agreed = typer.confirm(question, err=True)
    except typer.Abort:
        typer.echo(err=True)
        agreed = False
    if not agreed:
        raise WireError(Code.CANCELLED, "nothing was changed")


def as_json(item: Any, keys: str = "") -> dict[str, Any]:
    """A message or an object of a dataclass as JSON, with `keys` or those of its type.

    Keys are separated by blanks. `?` marks one that is null if empty; `key=field` is for a field
    with another name, which may be one of a field: `at=origin.at`.
    """
    if not isinstance(item, Message):
        fields = asdict(item)
        return {key: fields[key] for key in keys.split()} if keys else fields
    if isinstance(item, gateway_pb2.MemoryStatisticsReply):
        return _statistics(item)
    values: dict[str, Any] = {}
    for name in (keys or SHAPES[type(item)]).split():
        key, _, field = name.removesuffix("?").partition("=")
        optional = name.endswith("?")
        value = attrgetter(field or key)(item)
        if isinstance(value, Message):
            values[key] = as_json(value) if item.HasField(key) or not optional else None
        elif isinstance(value, str | int | float):
            values[key] = None if optional and not value else value
        else:
            values[key] = [as_json(each) if isinstance(each, Message) else each for each in value]
    if isinstance(item, gateway_pb2.Note) and not keys:
        values["superseded"] = _superseded(item)
    return values


def event_as_json(event: gateway_pb2.TurnEvent) -> dict[str, Any]:
    """A turn's event: `event` says which, `turn_id` and `index` where, and then come all of its
    fields under their names in the contract."""
    name = event.WhichOneof("event")
    head = {"event": name, "turn_id": event.turn_id, "index": event.index}
    return head if name is None else head | fields(getattr(event, name))


def fields(message: Message) -> dict[str, Any]:
    """All fields of a message, under their names in the contract."""
    values: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if isinstance(value, Message):
            values[field.name] = _nested(value) if message.HasField(field.name) else None
        elif isinstance(value, str | int | float):
            values[field.name] = value
        else:
            values[field.name] = [_nested(x) if isinstance(x, Message) else x for x in value]
    return values


def _nested(message: Message) -> dict[str, Any]:
    return as_json(message) if type(message) in SHAPES else fields(message)


def _superseded(note: gateway_pb2.Note) -> dict[str, Any] | None:
    if not note.superseded:
        return None
    return {
        "by": note.superseded_by or None,
        "reason": note.superseded_reason or None,
        "at": note.superseded_at or None,
    }


def _statistics(found: gateway_pb2.MemoryStatisticsReply) -> dict[str, Any]:
    """Every field under its name in the contract, numbers as numbers; `vectors` by model;
    `replica_synced_at` null if there is no replica."""
    vectors = {each.model: each.vectors for each in found.vectors}
    replica = {"replica_synced_at": found.replica_synced_at or None}
    return fields(found) | {"vectors": vectors} | replica

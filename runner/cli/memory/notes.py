"""`runner memory search|list|show|review`: finding and reading notes."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal, TypeVar

import typer
from rich.console import Console
from rich.text import Text
from wire.limits import TOP_K_MAX
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent, find_note
from runner.cli.memory.output import brief, marks, note_rows, origin_in_words, whole
from runner.cli.options import AsJson, Options
from runner.cli.output import (
    HIT,
    as_json,
    fact_table,
    local_day,
    note_details,
    one_line,
    plain_console,
    print_json,
    print_table,
    to_the_second,
)

LIMIT_MAX: Final = 100_000
_IN_WORDS: Final = ("access_count", "accessed_at", "scope_session", "embedded")
"""Details that are told in words of their own."""

Actor = Literal["user", "agent", "automatic", "import"]
NoteId = Annotated[
    str, typer.Argument(metavar="ID", help="A note, or how its id begins if that is unique.")
]
From = Annotated[
    Actor | None, typer.Option("--from", help="Only what these wrote.", show_default=False)
]
FromMaterial = Annotated[
    bool,
    typer.Option(
        "--from-material", help="Only what comes from files, pages or tools, unvouched for."
    ),
]
_T = TypeVar("_T")


def search(
    context: typer.Context,
    query: Annotated[list[str], typer.Argument(help="What to look for, in plain words.")],
    limit: Annotated[int, typer.Option(min=1, max=TOP_K_MAX, help="How many at most.")] = 10,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Only with this tag; give it again for several.", show_default=False),
    ] = None,
    conversations: Annotated[
        bool, typer.Option("--conversations", help="Also what was said in conversations.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Find notes by meaning and by words, the best first."""
    request = gateway_pb2.SearchNotesRequest(
        query=" ".join(query), top_k=limit, tags=tag, include_conversation=conversations
    )
    reply = ask_agent(context.obj, lambda agent: agent.search_notes(request))
    warn(reply.warnings)
    if json:
        hits = [as_json(note, HIT) for note in reply.notes]
        print_json({"notes": hits, "warnings": list(reply.warnings)})
    elif reply.notes:
        print_table(note_rows(reply.notes, scores=True))
    else:
        typer.echo("nothing found")


def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All, however many.")] = False,
    type_: Annotated[str, typer.Option("--type", help="Only of this type, such as decision.")] = "",
    actor: From = None,
    from_material: FromMaterial = False,
    tag: Annotated[str, typer.Option(help="Only with this tag.")] = "",
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also notes that count no more.")
    ] = False,
    json: AsJson = False,
) -> None:
    """List notes, the newest first."""
    request = gateway_pb2.ListNotesRequest(
        include_superseded=superseded,
        type=type_,
        actor=actor or "",
        material_only=from_material,
        tag=tag,
    )
    most = None if everything else limit
    notes, more = ask_agent(context.obj, lambda agent: first_of(agent.notes(request), most))
    if json:
        print_json({"notes": list(map(as_json, notes)), "more": more})
    elif notes:
        print_table(note_rows(notes))
        say_more(more, limit)
    else:
        typer.echo("no notes")


async def first_of(items: AsyncGenerator[_T, None], limit: int | None) -> tuple[list[_T], bool]:
    """The first `limit` of `items` (None: all), and whether there are more."""
    found: list[_T] = []
    async with aclosing(items):
        async for item in items:
            if len(found) == limit:
                return found, True
            found.append(item)
    return found, False


def say_more(more: bool, limit: int) -> None:
    """Tell the user that a list continues."""
    if more:
        typer.echo(f"these are the first {limit:,}; --limit shows more", err=True)


def warn(warnings: Sequence[str]) -> None:
    """Print warnings about an answer on standard error."""
    for warning in warnings:
        typer.echo(f"warning: {one_line(warning)}", err=True)


def show(context: typer.Context, note: NoteId, json: AsJson = False) -> None:
    """Show all of a note: what it says, where it comes from, what became of it."""
    options: Options = context.obj
    found = ask_agent(options, lambda agent: find_note(agent, note))
    if json:
        print_json(as_json(found))
        return
    facts = _in_words(found, options)
    print_table(fact_table({name: value for name, value in facts.items() if value}))
    console = plain_console()
    console.print()
    console.print(whole(found.text), soft_wrap=True)


def review(
    context: typer.Context,
    stale_days: Annotated[
        int,
        typer.Option(min=1, max=36_500, help="Nobody has changed or recalled it for so long."),
    ] = 180,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many of each kind.")] = 50,
    json: AsJson = False,
) -> None:
    """List notes that say nearly the same, may contradict each other, or went stale."""
    options: Options = context.obj
    reply = ask_agent(options, lambda agent: agent.review_memory(stale_days, limit))
    warn(reply.warnings)
    if json:
        print_json(as_json(reply))
        return
    console = plain_console()
    for pair in reply.near:
        _print_pair(console, pair, options)
    for note in reply.stale:
        _print_stale(console, note, options)
    if not reply.near and not reply.stale:
        typer.echo("nothing to review: no near-duplicates, no stale notes")


def _in_words(note: gateway_pb2.Note, options: Options) -> dict[str, str]:
    version = f"{note.version}, of {to_the_second(note.updated_at)}"
    if note.version > 1:
        version += (
            f"; earlier ones since {to_the_second(note.created_at)}: "
            f"{options.command('memory', 'history', note.note_id)}"
        )
    recalled = "never"
    if note.access_count:
        times = "once" if note.access_count == 1 else f"{note.access_count:,} times"
        recalled = f"{times}, last {to_the_second(note.accessed_at)}"
    return {
        "note": note.note_id,
        "superseded": _superseded(note),
        "type": note.type.replace("_", " "),
        **_details(note),
        "key": note.key,
        "tags": ", ".join(note.tags),
        "version": version,
        "origin": origin_in_words(note.origin),
        "link": note.origin.link,
        "seen by": f"session {note.scope_session} only" if note.scope_session else "",
        "recalled": recalled,
        "found by": "meaning and words" if note.embedded else "words only; it has no vectors yet",
    }


def _details(note: gateway_pb2.Note) -> dict[str, str]:
    """What else is known about a note, under the names of the contract."""
    names = [name.removesuffix("?") for name in note_details()]
    values = {name: getattr(note, name) for name in names if name not in _IN_WORDS}
    return {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in values.items()
    }


def _superseded(note: gateway_pb2.Note) -> str:
    if not note.superseded:
        return ""
    how = f"by {note.superseded_by}" if note.superseded_by else "without a replacement"
    if note.superseded_at:
        how += f", {to_the_second(note.superseded_at)}"
    return f"{how}: {note.superseded_reason}" if note.superseded_reason else how


def _print_pair(console: Console, pair: gateway_pb2.NearPair, options: Options) -> None:
    how = f"{pair.similarity:.0%} alike" if pair.similarity else "alike by their words"
    older, newer = pair.older.note_id, pair.newer.note_id
    fixes = {
        "only the newer holds": ("forget", older),
        "only the older holds": ("forget", newer),
        "both in one": ("edit", newer),
    }
    head = f"{how}, may contradict" if pair.may_contradict else how
    _print_found(console, head, {"older": pair.older, "newer": pair.newer}, fixes, options)


def _print_stale(console: Console, note: gateway_pb2.Note, options: Options) -> None:
    last = one_line(local_day(note.accessed_at or note.updated_at))
    done = "recalled" if note.accessed_at else "written, and never recalled,"
    fixes = {"it still holds": ("edit", note.note_id), "it does not": ("forget", note.note_id)}
    _print_found(console, f"last {done} {last}", {"note": note}, fixes, options)


def _print_found(
    console: Console,
    head: str,
    notes: dict[str, gateway_pb2.Note],
    fixes: dict[str, tuple[str, str]],
    options: Options,
) -> None:
    console.print(Text(head, style="bold"), soft_wrap=True)
    for name, note in notes.items():
        line = Text(f"  {name}  {one_line(local_day(note.updated_at))}  {brief(note.text)}")
        if found := marks(note):
            line.append(f"  [{', '.join(found)}]", style="yellow")
        console.print(line, soft_wrap=True)
    width = max(map(len, fixes))
    for when, (verb, note_id) in fixes.items():
        command = one_line(options.command("memory", verb, note_id))
        console.print(Text(f"  {when:<{width}}  {command}"), soft_wrap=True)
    console.print()

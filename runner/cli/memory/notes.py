"""`runner memory search|list|show|review`: finding and reading notes."""

import difflib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Annotated, Final, Literal, TypeVar

import typer
from rich.console import Console
from rich.text import Text
from wire.limits import TOP_K_MAX
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent, find_note
from runner.cli.memory.output import (
    CHANGES,
    HITS,
    NOTES,
    brief,
    change_in_words,
    marks,
    origin_in_words,
    whole,
)
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import (
    Rows,
    as_json,
    confirm,
    fact_table,
    local_day,
    neutralise,
    note_details,
    one_line,
    plain_console,
    print_json,
    print_table,
    to_the_second,
)
from runner.cli.usage import first_day
from runner.client.gateway import GatewayClient

LIMIT_MAX: Final = 100_000
_IN_WORDS: Final = ("access_count", "accessed_at", "scope_session", "embedded", "due_at")
"""Details that are told in words of their own."""

Actor = Literal["user", "agent", "automatic", "import"]
NoteId = Annotated[
    str, typer.Argument(metavar="ID", help="A note, or how its id begins if that is unique.")
]
From = Annotated[Actor | None, typer.Option("--from", help="Only what these wrote.")]
FromMaterial = Annotated[
    bool,
    typer.Option(
        "--from-material", help="Only what comes from files, pages or tools, unconfirmed."
    ),
]
Until = Annotated[str, typer.Option(help="Until this day, and on it.")]
_T = TypeVar("_T")


def search(
    context: typer.Context,
    query: Annotated[
        list[str] | None, typer.Argument(help="What to look for, in plain words.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=TOP_K_MAX, help="How many at most.")] = 10,
    tag: Annotated[
        list[str] | None, typer.Option(help="Only with this tag; give it again for several.")
    ] = None,
    conversations: Annotated[
        bool, typer.Option("--conversations", help="Also what was said in conversations.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            help="From this day on, such as 2026-11-22, 7d or yesterday; all: at any time, "
            "whatever the words say."
        ),
    ] = "",
    until: Until = "",
    cursor: Annotated[str, typer.Option(help="What follows the results that named it.")] = "",
    json: AsJson = False,
) -> None:
    """Find notes by meaning and by words, the best first.

    A time among the words, such as "yesterday" or "last March", limits the search.
    """
    options: Options = context.obj
    given = {"--tag": tag, "--since": [since], "--until": [until]}
    chosen = [
        word
        for name, values in given.items()
        for each in values or ()
        if each
        for word in (name, each)
    ]
    if not query:
        instead = options.command("memory", "list", *chosen)
        raise typer.BadParameter(f"a search needs words; a list needs none: {instead}")
    request = gateway_pb2.SearchNotesRequest(
        query=" ".join(query),
        top_k=limit,
        tags=tag,
        include_conversation=conversations,
        since=_day(since),
        until=_day(until),
        read_time=not (since or until),
        cursor=cursor,
    )
    reply = ask_agent(options, lambda agent: agent.search_notes(request))
    if reply.period:
        typer.echo(f"{reply.period}; --since all searches any time", err=True)
    warn(reply.warnings)
    if json:
        hits = list(map(HITS.as_json, reply.notes))
        shown = {"notes": hits, "period": reply.period, "warnings": list(reply.warnings)}
        print_json(shown | {"next_cursor": reply.next_cursor})
    elif reply.notes:
        print_table(Rows(HITS, reply.notes))
        if reply.next_cursor:
            also = ["--conversations"] if conversations else []
            words = (*query, *chosen, *also, f"--limit={limit}", f"--cursor={reply.next_cursor}")
            typer.echo(f"there is more: {options.command('memory', 'search', *words)}", err=True)
    else:
        typer.echo("nothing found")


def _day(value: str) -> str:
    """The day that `7d` and such name; empty for `all`; words are for the agent to read."""
    with suppress(typer.BadParameter):
        return first_day(value) if value else ""
    return value


def list_(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")] = 50,
    everything: Annotated[bool, typer.Option("--all", help="All, however many.")] = False,
    type_: Annotated[str, typer.Option("--type", help="Only of this type, such as decision.")] = "",
    actor: From = None,
    from_material: FromMaterial = False,
    tag: Annotated[str, typer.Option(help="Only with this tag.")] = "",
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Include superseded notes.")
    ] = False,
    since: Annotated[
        str, typer.Option(help="Written from this day on, such as 2026-11-22, 7d or yesterday.")
    ] = "",
    until: Until = "",
    due: Annotated[bool, typer.Option("--due", help="Only reminders.")] = False,
    json: AsJson = False,
) -> None:
    """List notes, the newest first."""
    request = gateway_pb2.ListNotesRequest(
        include_superseded=superseded,
        type=type_,
        actor=actor or "",
        material_only=from_material,
        tag=tag,
        since=_day(since),
        until=_day(until),
        with_due=due,
    )
    most = None if everything else limit
    notes, more = ask_agent(context.obj, lambda agent: first_of(agent.notes(request), most))
    if json:
        print_json({"notes": list(map(as_json, notes)), "more": more})
    elif notes:
        print_table(Rows(NOTES, notes))
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
    if more:
        typer.echo(f"these are the first {limit:,}; --limit shows more", err=True)


def warn(warnings: Sequence[str]) -> None:
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
        "due": to_the_second(note.due_at) if note.due_at else "",
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


_SUPERSEDE: Final = "supersede"
_UNDO: Final = "undo"
_DIFF_STYLES: Final = {"+": "green", "-": "red"}


def history(
    context: typer.Context,
    note: Annotated[
        str, typer.Argument(metavar="ID", help="Only of this note, with what was changed.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="How many at most.")] = 50,
    actor: From = None,
    from_material: FromMaterial = False,
    session: Annotated[str, typer.Option(help="Only what was written in this session.")] = "",
    brief_: Annotated[
        bool, typer.Option("--brief", help="Of one note, too, a line for each change.")
    ] = False,
    json: AsJson = False,
) -> None:
    """List what was written, superseded and taken back, the latest first."""
    request = gateway_pb2.ListChangesRequest(
        actor=actor or "", material_only=from_material, session_id=session
    )

    async def latest(agent: GatewayClient) -> list[gateway_pb2.Change]:
        if note:
            request.note_id = (await find_note(agent, note)).note_id
        return (await first_of(agent.changes(request), limit + 1))[0]

    found = ask_agent(context.obj, latest)
    changes, earlier = found[:limit], found[limit:]
    if json:
        print_json({"changes": list(map(as_json, changes)), "more": bool(earlier)})
    elif not changes:
        typer.echo("nothing was changed")
    else:
        if note and not brief_:
            _print_versions(plain_console(), changes, earlier)
        else:
            print_table(Rows(CHANGES, changes))
        say_more(bool(earlier), limit)


def undo(
    context: typer.Context,
    note: NoteId,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Take the last change of a note back; again, the one before it. Asks first.

    Of a note's first version that means to forget it.
    """
    options: Options = context.obj

    async def with_changes(
        agent: GatewayClient,
    ) -> tuple[gateway_pb2.Note, list[gateway_pb2.Change]]:
        found = await find_note(agent, note)
        request = gateway_pb2.ListChangesRequest(note_id=found.note_id)
        return found, (await first_of(agent.changes(request), None))[0]

    found, changes = ask_agent(options, with_changes)
    forgets = not found.superseded and restored_by_undo(changes) == 0
    if not yes:
        typer.echo(f"{one_line(found.note_id)}  {brief(found.text)}", err=True)
        confirm(
            _question(found, changes),
            what="take this change back",
            command=options.command("memory", "undo", found.note_id, "--yes"),
        )
    reply = ask_agent(
        options,
        lambda agent: agent.undo_change(found.note_id, found.version, may_forget=forgets),
    )
    if json:
        now = as_json(reply.note) if reply.HasField("note") else None
        print_json({"note_id": found.note_id, "done": reply.done, "note": now})
    else:
        typer.echo(_done(found, reply))


def restored_by_undo(changes: Sequence[gateway_pb2.Change]) -> int | None:
    """The version that an undo restores: 0 if there is none before the first, None if unknown.

    `changes` are those of one note, latest first. An undo continues where the last one ended: two
    undos go back two versions, and what was undone never returns.
    """
    says: dict[int, int] = {}
    now: int | None = None
    for change in reversed(changes):
        if change.change == _SUPERSEDE:
            continue
        if change.change != _UNDO:
            now = change.version
        elif now is not None:
            now = says.get(now - 1, now - 1)
        if now is not None:
            says[change.version] = now
    return None if now is None else says.get(now - 1, now - 1)


def _question(note: gateway_pb2.Note, changes: Sequence[gateway_pb2.Change]) -> str:
    if note.superseded:
        return "This note was superseded. Make it active again?"
    target = restored_by_undo(changes)
    if target == 0:
        return "There is no version before this one. Forget the note? This cannot be undone"
    texts = {each.version: each.text for each in changes if each.change != _SUPERSEDE}
    if target not in texts:
        return f"Take version {note.version} back?"
    return f"Bring back what version {target} said?\n{brief(texts[target])}\n"


def _done(before: gateway_pb2.Note, reply: gateway_pb2.UndoChangeReply) -> str:
    note_id = one_line(before.note_id)
    if reply.done == "forgotten":
        return f"{note_id} is forgotten"
    if reply.done == "current_again":
        return f"{note_id} counts again"
    again = " and is superseded again" if reply.note.superseded else ""
    return f"{note_id} has version {reply.note.version} now{again}: {brief(reply.note.text)}"


def _print_versions(
    console: Console,
    changes: Sequence[gateway_pb2.Change],
    earlier: Sequence[gateway_pb2.Change],
) -> None:
    """Print what each change changed; the whole text if the version before is not listed."""
    versions = {each.version: each for each in (*changes, *earlier) if each.change != _SUPERSEDE}
    for change in changes:
        head = Text(f"{change_in_words(change)}  {one_line(to_the_second(change.at))}  ", "bold")
        console.print(head.append(_how(change), "not bold"), soft_wrap=True)
        before = versions.get(change.version - 1)
        if change.change == _SUPERSEDE or before is None:
            console.print(whole(change.text), soft_wrap=True)
        else:
            _print_difference(console, before, change)
        console.print()


def _how(change: gateway_pb2.Change) -> str:
    if change.change == _SUPERSEDE:
        return f"by {one_line(change.superseded_by)}" if change.superseded_by else ""
    words = origin_in_words(change.origin)
    return f"{words}\nfrom {one_line(change.origin.link)}" if change.origin.link else words


def _print_difference(
    console: Console, before: gateway_pb2.Change, after: gateway_pb2.Change
) -> None:
    if list(before.tags) != list(after.tags):
        tags = (one_line(", ".join(each.tags)) or "none" for each in (before, after))
        console.print(Text("tags: " + " → ".join(tags)), soft_wrap=True)
    elif before.text == after.text:
        console.print(Text("(the same text)"))
    old, new = (neutralise(each.text).splitlines() for each in (before, after))
    for line in list(difflib.unified_diff(old, new, n=1, lineterm=""))[2:]:
        console.print(Text(line, _DIFF_STYLES.get(line[0], "dim")), soft_wrap=True)

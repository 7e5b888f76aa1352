"""`runner memory history|undo`: what was written, and undoing it."""

import difflib
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent, find_note
from runner.cli.memory.notes import LIMIT_MAX, From, FromMaterial, NoteId, first_of, say_more
from runner.cli.memory.output import brief, change_in_words, change_rows, origin_in_words, whole
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import (
    as_json,
    confirm,
    neutralise,
    one_line,
    plain_console,
    print_json,
    print_table,
    to_the_second,
)
from runner.client.gateway import GatewayClient

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
            print_table(change_rows(changes))
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
        return "It is superseded. Let it count again?"
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
    """Print each change and what it changed; the whole text if the previous version is not
    listed."""
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

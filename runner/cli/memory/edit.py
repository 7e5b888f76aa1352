"""`runner memory save|edit|forget`: writing notes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer
from wire.errors import Code, WireError
from wire.limits import NOTE_MAX_CHARS
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent, find_note, set_time
from runner.cli.files import decoded, edited, written
from runner.cli.memory.notes import NoteId, warn
from runner.cli.memory.output import HITS, brief
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import (
    SIMILAR,
    Rows,
    as_json,
    confirm,
    one_line,
    print_json,
    print_table,
    to_the_second,
)
from runner.client.gateway import GatewayClient

PIPE: Final = "-"
_READ_MAX_BYTES: Final = 4 * NOTE_MAX_CHARS


def text_of(given: str | None, *, before: str, command: str) -> str:
    """The text of a note, without line breaks at its end: `given` itself, standard input for "-",
    or, if None, from an editor that opens with `before`.

    `command` is the one without an editor, for errors. Raises `WireError` if there is no text.
    """
    if given is None:
        text = _edited(before, command)
    elif given == PIPE:
        text = _piped()
    else:
        text = given
    if before and text == before:
        return before
    text = text.rstrip("\r\n")
    if not text.strip():
        raise WireError(
            Code.INVALID_ARGUMENT, "there is no text: nothing was changed", resolution=command
        )
    return text


@contextmanager
def kept_if_refused(text: str) -> Iterator[None]:
    """If the body fails, write `text`, if any, into a file, and say where it is."""
    try:
        yield
    except WireError as error:
        if not text:
            raise
        kept = f"your text is in {_kept(text)}"
        error.resolution = "; ".join(filter(None, (error.resolution, kept)))
        raise
    except BaseException:
        if text:
            typer.echo(f"your text is in {_kept(text)}", err=True)
        raise


def _kept(text: str) -> Path:
    return written(text, name="note-not-saved-", suffix=".txt")


def _edited(before: str, command: str) -> str:
    if not sys.stdin.isatty():
        raise WireError(
            Code.INVALID_ARGUMENT,
            "no text was given",
            details="standard input is not a terminal, so there is no editor to open",
            resolution=f"{command}; - takes it from standard input",
        )
    return edited(before, name="note-", suffix=".txt", otherwise=command)


def _piped() -> str:
    data = sys.stdin.buffer.read(_READ_MAX_BYTES + 1)
    if len(data) > _READ_MAX_BYTES:
        raise WireError(
            Code.INVALID_ARGUMENT,
            "standard input holds more than a note can: nothing was changed",
            details=f"a note has at most {NOTE_MAX_CHARS:,} characters",
            resolution="save it as several notes, or as a file in the workspace",
        )
    return decoded(data, "standard input")


Text = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT|-", help="What it shall say; - is the pipe; without it your editor opens."
    ),
]
Tags = Annotated[list[str] | None, typer.Option(help="A label; give it again for several.")]


def save(
    context: typer.Context,
    text: Text = None,
    tag: Tags = None,
    link: Annotated[str, typer.Option(help="Where it comes from: a page, a file.")] = "",
    json: AsJson = False,
) -> None:
    """Keep something for all conversations."""
    options: Options = context.obj
    content = text_of(text, before="", command=options.command("memory", "save", "TEXT"))
    with kept_if_refused(content if text in (None, PIPE) else ""):
        reply = ask_agent(options, lambda agent: agent.save_note(content, tag or [], link))
        if not (reply.note_id and reply.message):
            raise WireError(
                Code.INTERNAL, "the agent did not say that it is saved", details=reply.message
            )
    if json:
        print_json(
            {
                "note_id": reply.note_id,
                "message": "\n".join([reply.message, *reply.warnings]),
                "searchable": reply.searchable,
                "similar": [as_json(note, SIMILAR) for note in reply.similar],
            }
        )
        return
    typer.echo(one_line(reply.message))
    warn(reply.warnings)
    if reply.similar:
        typer.echo("similar notes, of which one may be out of date now:")
        print_table(Rows(HITS, reply.similar))


def edit(
    context: typer.Context,
    note: NoteId,
    text: Text = None,
    tag: Tags = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Take all tags off.")] = False,
    json: AsJson = False,
) -> None:
    """Change a note; what it said stays in its history.

    --tag replaces its tags; with tags and without TEXT, its text stays.
    """
    if tag and no_tags:
        raise typer.BadParameter("--tag gives tags and --no-tags takes them: choose one")
    options: Options = context.obj
    before = ask_agent(options, lambda agent: find_note(agent, note))
    retag = bool(tag) or no_tags
    content = before.text
    if text is not None or not retag:
        command = options.command("memory", "edit", before.note_id, "TEXT")
        content = text_of(text, before=before.text, command=command)
    tags = list(tag or []) if retag else list(before.tags)
    changed = content != before.text or sorted(tags) != sorted(before.tags)
    after = before
    if changed:
        request = gateway_pb2.EditNoteRequest(
            note_id=before.note_id,
            text=content,
            tags=tags,
            replace_tags=retag,
            expected_version=before.version,
        )
        with kept_if_refused(content if content != before.text else ""):
            after = ask_agent(options, lambda agent: agent.edit_note(request))
    if json:
        print_json({"changed": changed, "note": as_json(after)})
    elif changed:
        typer.echo(f"{one_line(after.note_id)} has version {after.version} now")
    else:
        typer.echo("nothing changed")


def remind(
    context: typer.Context,
    when: Annotated[
        str, typer.Argument(help='Such as "2026-12-04 09:00", "friday 9:00", "in 20 minutes".')
    ],
    text: Annotated[str, typer.Argument(help="What of; else --note says it.")] = "",
    note: Annotated[str, typer.Option(metavar="ID", help="Of a note that is there.")] = "",
    json: AsJson = False,
) -> None:
    """Be reminded of something at a time, or of a note at another time than before."""

    async def ask(agent: GatewayClient) -> gateway_pb2.Note:
        note_id = (await find_note(agent, note)).note_id if note else ""
        return await agent.set_reminder(when, note_id=note_id, text=text)

    found = set_time(context.obj, ask)
    if json:
        print_json(as_json(found))
    else:
        typer.echo(f"{one_line(found.note_id)} is due {to_the_second(found.due_at)}")


def done(
    context: typer.Context,
    note: Annotated[str, typer.Argument(metavar="ID", help="A reminder, or how its id begins.")],
) -> None:
    """End a reminder. Its note is superseded, not erased."""

    async def ask(agent: GatewayClient) -> gateway_pb2.Note:
        return await agent.set_reminder("", note_id=(await find_note(agent, note)).note_id)

    typer.echo(f"{one_line(ask_agent(context.obj, ask).note_id)} is done")


def forget(
    context: typer.Context,
    notes: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Notes, or how their ids begin.")
    ],
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Erase notes with all that they ever said."""
    options: Options = context.obj
    forgotten: list[str] = []

    async def each_once(agent: GatewayClient) -> list[gateway_pb2.Note]:
        found = [await find_note(agent, note) for note in notes]
        return list({note.note_id: note for note in found}.values())

    async def forget_all(agent: GatewayClient) -> None:
        for note in chosen:
            await agent.delete_note(note.note_id)
            forgotten.append(note.note_id)

    chosen = ask_agent(options, each_once)
    if not yes:
        _ask(options, chosen)
    try:
        ask_agent(options, forget_all)
    finally:
        if json:
            print_json({"forgotten": forgotten})
        else:
            for note_id in forgotten:
                typer.echo(f"{one_line(note_id)} is forgotten")


def _ask(options: Options, notes: list[gateway_pb2.Note]) -> None:
    for note in notes:
        typer.echo(f"{one_line(note.note_id)}  {brief(note.text)}", err=True)
    ids = [note.note_id for note in notes]
    what = "this note" if len(ids) == 1 else f"these {len(ids)} notes"
    confirm(
        f"Forget {what}? This cannot be undone",
        what=f"forget {what}",
        command=options.command("memory", "forget", *ids, "--yes"),
    )

"""`runner memory save|edit|forget`: writing notes."""

import asyncio
from typing import Annotated

import typer
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.asking import confirm
from runner.cli.memory_agent import gateway_of
from runner.cli.memory_json import note_json, saved_json
from runner.cli.memory_notes import AsJson, NoteId, warn
from runner.cli.memory_tables import brief, note_rows
from runner.cli.note_ids import find_note
from runner.cli.note_text import PIPE, kept_if_refused, text_of
from runner.cli.options import Options
from runner.cli.render import json_line, one_line, print_table

Text = Annotated[
    str | None,
    typer.Argument(
        metavar="TEXT|-",
        help="What it shall say; - is the pipe; without it your editor opens.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(help="A label; give it again for several.", show_default=False),
]


def save(
    context: typer.Context,
    text: Text = None,
    tag: Tags = None,
    link: Annotated[str, typer.Option(help="Where it comes from: a page, a file.")] = "",
    as_json: AsJson = False,
) -> None:
    """Keep something for all conversations."""
    options: Options = context.obj
    content = text_of(text, before="", command=options.command("memory", "save", "TEXT"))

    async def saved() -> gateway_pb2.SaveNoteReply:
        async with gateway_of(options) as gateway:
            return await gateway.save_note(content, tag or [], link)

    with kept_if_refused(content if text in (None, PIPE) else ""):
        reply = asyncio.run(saved())
        if not (reply.note_id and reply.message):
            raise WireError(
                Code.INTERNAL, "the agent did not say that it is saved", details=reply.message
            )
    if as_json:
        typer.echo(json_line(saved_json(reply)))
        return
    said, *warnings = reply.message.splitlines()
    typer.echo(one_line(said))
    warn(warnings)
    if reply.similar:
        typer.echo("similar notes, of which one may be out of date now:")
        print_table(note_rows(reply.similar, scores=True))


def edit(
    context: typer.Context,
    note: NoteId,
    text: Text = None,
    tag: Tags = None,
    no_tags: Annotated[bool, typer.Option("--no-tags", help="Take all tags off.")] = False,
    as_json: AsJson = False,
) -> None:
    """Change a note; what it said stays in its history.

    --tag replaces its tags; with tags and without TEXT, its text stays.
    """
    if tag and no_tags:
        raise typer.BadParameter("--tag gives tags and --no-tags takes them: choose one")
    options: Options = context.obj
    before = asyncio.run(_found(options, [note]))[0]
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
            after = asyncio.run(_edited(options, request))
    if as_json:
        typer.echo(json_line({"changed": changed, "note": note_json(after)}))
    elif changed:
        typer.echo(f"{one_line(after.note_id)} has version {after.version} now")
    else:
        typer.echo("nothing changed")


def forget(
    context: typer.Context,
    notes: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Notes, or how their ids begin.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase notes with all that they ever said."""
    options: Options = context.obj
    found = asyncio.run(_found(options, notes))
    if not yes:
        _ask(options, found)
    forgotten: list[str] = []
    try:
        asyncio.run(_forget(options, found, forgotten))
    finally:
        if as_json:
            typer.echo(json_line({"forgotten": forgotten}))
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


async def _found(options: Options, given: list[str]) -> list[gateway_pb2.Note]:
    """Each of the notes once."""
    async with gateway_of(options) as gateway:
        notes = [await find_note(gateway, each) for each in given]
    return list({note.note_id: note for note in notes}.values())


async def _edited(options: Options, request: gateway_pb2.EditNoteRequest) -> gateway_pb2.Note:
    async with gateway_of(options) as gateway:
        return await gateway.edit_note(request)


async def _forget(options: Options, notes: list[gateway_pb2.Note], done: list[str]) -> None:
    async with gateway_of(options) as gateway:
        for note in notes:
            await gateway.delete_note(note.note_id)
            done.append(note.note_id)

"""`runner memory search|list`: finding notes."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated, Final, Literal, TypeVar

import typer
from wire.limits import TOP_K_MAX
from wire.v1 import gateway_pb2

from runner.cli.memory_agent import gateway_of
from runner.cli.memory_json import hit_json, note_json
from runner.cli.memory_tables import note_rows
from runner.cli.options import Options
from runner.cli.render import json_line, one_line, print_table

LIMIT_MAX: Final = 100_000

Actor = Literal["user", "agent", "automatic", "import"]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
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
    as_json: AsJson = False,
) -> None:
    """Find notes by meaning and by words, the best first."""
    request = gateway_pb2.SearchNotesRequest(
        query=" ".join(query), top_k=limit, tags=tag, include_conversation=conversations
    )

    async def found() -> gateway_pb2.SearchNotesReply:
        async with gateway_of(context.obj) as gateway:
            return await gateway.search_notes(request)

    reply = asyncio.run(found())
    warn(reply.warnings)
    if as_json:
        notes = [hit_json(note) for note in reply.notes]
        typer.echo(json_line({"notes": notes, "warnings": list(reply.warnings)}))
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
    as_json: AsJson = False,
) -> None:
    """List notes, the newest first."""
    request = gateway_pb2.ListNotesRequest(
        include_superseded=superseded,
        type=type_,
        actor=actor or "",
        material_only=from_material,
        tag=tag,
    )
    notes, more = asyncio.run(_listed(context.obj, request, None if everything else limit))
    if as_json:
        typer.echo(json_line({"notes": [note_json(note) for note in notes], "more": more}))
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
    """Tell a person that a list goes on."""
    if more:
        typer.echo(f"these are the first {limit:,}; --limit shows more", err=True)


def warn(warnings: Sequence[str]) -> None:
    """Say on standard error what an answer lacks."""
    for warning in warnings:
        typer.echo(f"warning: {one_line(warning)}", err=True)


async def _listed(
    options: Options, request: gateway_pb2.ListNotesRequest, limit: int | None
) -> tuple[list[gateway_pb2.Note], bool]:
    async with gateway_of(options) as gateway:
        return await first_of(gateway.notes(request), limit)

"""`runner sessions`: the conversations of a user, as a whole."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text
from wire.v1 import gateway_pb2

from runner.cli.chat.receipts import ModelText, by_event, receipt_json, receipt_line
from runner.cli.ids import LISTED_MAX, resolve
from runner.cli.memory.agent import gateway_of
from runner.cli.options import Options
from runner.cli.output import (
    confirm,
    json_line,
    neutralise,
    one_line,
    plain_console,
    print_table,
    to_the_second,
)

sessions = typer.Typer(help="List, name, put away and forget conversations.")

SessionId = Annotated[
    str, typer.Argument(metavar="ID", help="A session, or how its id begins if that is unique.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@sessions.command("list")
def list_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the conversations, the latest used first."""

    async def found() -> list[gateway_pb2.Session]:
        async with gateway_of(context.obj) as gateway:
            return await gateway.list_sessions(LISTED_MAX, include_archived=everything)

    listed = asyncio.run(found())
    if as_json:
        typer.echo(json_line([_session_json(each) for each in listed]))
    elif listed:
        print_table(_table(listed))
    else:
        typer.echo("no sessions" if everything else "no sessions; --all shows archived ones too")


@sessions.command()
def show(
    context: typer.Context,
    session: SessionId,
    limit: Annotated[int, typer.Option(min=1, max=LISTED_MAX, help="How many events.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show the end of a conversation."""

    async def found() -> gateway_pb2.SessionHistory:
        async with gateway_of(context.obj) as gateway:
            return await gateway.get_session(await resolve(gateway, session), limit)

    history = asyncio.run(found())
    if as_json:
        content = _session_json(history.session) | {
            "events": list(map(_event_json, history.events)),
            "receipts": [receipt_json(each) for each in history.receipts],
        }
        typer.echo(json_line(content))
        return
    console = plain_console()
    print_table(_table([history.session]))
    for event, receipts in by_event(history):
        if event.text.strip():  # else a model's step that only calls tools: their results follow
            said = Text(f"\n{event.role}  {to_the_second(event.created_at)}\n", style="bold")
            text = ModelText().marked(neutralise(event.text))
            console.print(said.append(text, style="not bold"), soft_wrap=True)
        for receipt in receipts:
            console.print(Text(receipt_line(receipt), style="green"), soft_wrap=True)


@sessions.command()
def rename(context: typer.Context, session: SessionId, title: str) -> None:
    """Give a conversation another title."""

    async def renamed() -> gateway_pb2.Session:
        async with gateway_of(context.obj) as gateway:
            return await gateway.rename_session(await resolve(gateway, session), title)

    done = asyncio.run(renamed())
    typer.echo(f"{one_line(done.session_id)}: {one_line(done.title)}")


@sessions.command()
def archive(context: typer.Context, session: SessionId) -> None:
    """Put a conversation away: it is not listed any more, and still searched."""
    typer.echo(f"{_set_archived(context.obj, session, archived=True)} is archived")


@sessions.command()
def unarchive(context: typer.Context, session: SessionId) -> None:
    """List a conversation again; so does going on in it."""
    typer.echo(f"{_set_archived(context.obj, session, archived=False)} is not archived")


@sessions.command()
def forget(
    context: typer.Context,
    session: SessionId,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Erase a conversation with all that was said in it. Notes saved in it stay."""
    options: Options = context.obj
    found = asyncio.run(_named(options, session))
    if not yes:
        called = f" ({one_line(found.title)})" if found.title else ""
        confirm(
            f"Forget {one_line(found.session_id)}{called}, {found.turns} turns? "
            "This cannot be undone",
            what="forget this session",
            command=options.command("sessions", "forget", found.session_id, "--yes"),
        )
    asyncio.run(_forget(options, found.session_id))
    typer.echo(f"{one_line(found.session_id)} is forgotten")


async def _named(options: Options, session: str) -> gateway_pb2.Session:
    async with gateway_of(options) as gateway:
        return (await gateway.get_session(await resolve(gateway, session), 1)).session


async def _forget(options: Options, session_id: str) -> None:
    async with gateway_of(options) as gateway:
        await gateway.forget_session(session_id)


def _set_archived(options: Options, session: str, *, archived: bool) -> str:
    async def done() -> gateway_pb2.Session:
        async with gateway_of(options) as gateway:
            return await gateway.archive_session(await resolve(gateway, session), archived=archived)

    return one_line(asyncio.run(done()).session_id)


def _table(listed: Sequence[gateway_pb2.Session]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("session", "title", "turns", "last used", ""):
        table.add_column(heading, no_wrap=heading == "session", overflow="fold")
    for session in listed:
        table.add_row(
            one_line(session.session_id),
            one_line(session.title),
            str(session.turns),
            to_the_second(session.updated_at),
            "archived" if session.archived_at else "",
        )
    return table


def _session_json(session: gateway_pb2.Session) -> dict[str, Any]:
    return {
        "session_id": session.session_id,
        "title": session.title,
        "channel": session.channel,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "turns": session.turns,
        "archived_at": session.archived_at or None,
    }


def _event_json(event: gateway_pb2.HistoryEvent) -> dict[str, Any]:
    return {
        "sequence": event.sequence,
        "turn_id": event.turn_id,
        "role": event.role,
        "text": event.text,
        "created_at": event.created_at,
    }

"""`runner memory`: what an agent remembers, note by note and as a whole."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import typer
from rich.table import Table
from wire.v1 import gateway_pb2

from runner.cli.memory import admin, edit, history, notes, transfer
from runner.cli.memory.agent import agent_of
from runner.cli.memory.output import replica_age_s, statistics_json
from runner.cli.options import Options
from runner.cli.output import json_line, print_table
from runner.client.memory import memory_statistics, reembed_memory
from runner.host.logs import printable

memory = typer.Typer(
    help="Find, write, correct and forget what an agent remembers; back it up and move it."
)


def stats(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show how much the agent remembers, where, and how much of it has vectors."""
    found = asyncio.run(_statistics(context.obj))
    if as_json:
        typer.echo(json_line(statistics_json(found)))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in _in_words(found).items():
        table.add_row(name, printable(value))
    print_table(table)


def reembed(context: typer.Context) -> None:
    """Make all vectors anew, in the background: for a model that changed under its name."""
    passages = asyncio.run(_reembed(context.obj))
    typer.echo(f"{passages:,} passages get new vectors; `runner status` shows how far that is")


_PANELS: Final[Mapping[str, Mapping[str, Callable[..., None]]]] = {
    "Notes": {
        "search": notes.search,
        "list": notes.list_,
        "show": notes.show,
        "save": edit.save,
        "edit": edit.edit,
        "forget": edit.forget,
    },
    "What was changed, and what should be": {
        "history": history.history,
        "undo": history.undo,
        "review": notes.review,
    },
    "The memory as a whole": {
        "stats": stats,
        "export": transfer.export,
        "import": transfer.import_,
        "backup": admin.backup,
        "restore": admin.restore,
        "reembed": reembed,
        "rekey": admin.rekey,
        "move": admin.move,
        "token": admin.token,
    },
}
for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        memory.command(_name, rich_help_panel=_panel)(_command)


async def _statistics(options: Options) -> gateway_pb2.MemoryStatisticsReply:
    async with agent_of(options) as agent:
        return await memory_statistics(agent)


async def _reembed(options: Options) -> int:
    async with agent_of(options) as agent:
        return await reembed_memory(agent)


def _in_words(found: gateway_pb2.MemoryStatisticsReply) -> dict[str, str]:
    where = f"{found.store or 'local'}, {found.state or 'ready'}"
    passages = f"{found.passages:,}"
    if found.passages:
        passages += f", {found.passages_embedded / found.passages:.0%} with a vector"
    words = {
        "store": where,
        "notes": f"{found.notes:,}, and {found.note_versions:,} earlier versions",
        "sessions": f"{found.sessions:,}, of which {found.archived_sessions:,} are archived",
        "events": f"{found.conversation_events:,}",
        "passages": passages,
        "model": found.embedding_model or "not known yet",
        "embedder": found.embedder,
        "size": f"{found.database_bytes / 1e6:.1f} MB",
        "encrypted": "yes" if found.encrypted else "no",
        "schema": f"version {found.schema_version}",
    }
    if len(found.vectors) > 1:
        each = (f"{one.model or 'set aside'} {one.vectors:,}" for one in found.vectors)
        words["vectors"] = "of several models: " + ", ".join(each)
    if found.replica_synced_at:
        words["replica"] = f"as it was {replica_age_s(found):.0f} s ago"
    return words

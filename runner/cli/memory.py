"""`runner memory`: what an agent remembers, note by note and as a whole."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import typer
from rich.table import Table
from wire.v1 import gateway_pb2

from runner.cli import (
    memory_care,
    memory_changes,
    memory_edit,
    memory_notes,
    memory_show,
    memory_transfer,
)
from runner.cli.memory_agent import agent_of
from runner.cli.memory_words import replica_age_s, statistics_json
from runner.cli.options import Options
from runner.cli.render import json_line, print_table
from runner.logs import printable
from runner.memory_calls import memory_statistics, reembed_memory

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
        "search": memory_notes.search,
        "list": memory_notes.list_,
        "show": memory_show.show,
        "save": memory_edit.save,
        "edit": memory_edit.edit,
        "forget": memory_edit.forget,
    },
    "What was changed, and what should be": {
        "history": memory_changes.history,
        "undo": memory_changes.undo,
        "review": memory_show.review,
    },
    "The memory as a whole": {
        "stats": stats,
        "export": memory_transfer.export,
        "import": memory_transfer.import_,
        "backup": memory_care.backup,
        "restore": memory_care.restore,
        "reembed": reembed,
        "rekey": memory_care.rekey,
        "move": memory_care.move,
        "token": memory_care.token,
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

"""`runner memory`: what an agent remembers, as a whole."""

import asyncio
import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from wire.v1 import gateway_pb2

from runner.cli import memory_care, memory_transfer
from runner.cli.memory_agent import agent_of
from runner.cli.memory_words import replica_age_s, statistics_json
from runner.cli.options import Options
from runner.logs import printable
from runner.memory_calls import memory_statistics, reembed_memory

memory = typer.Typer(help="Look at, export, import, back up and move what an agent remembers.")


@memory.command()
def stats(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show how much the agent remembers, where, and how much of it has vectors."""
    found = asyncio.run(_statistics(context.obj))
    if as_json:
        typer.echo(json.dumps(statistics_json(found), ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, value in _in_words(found).items():
        table.add_row(name, printable(value))
    Console(highlight=False).print(table)


@memory.command()
def reembed(context: typer.Context) -> None:
    """Make all vectors anew, in the background: for a model that changed under its name."""
    passages = asyncio.run(_reembed(context.obj))
    typer.echo(f"{passages:,} passages get new vectors; `runner status` shows how far that is")


memory_transfer.register(memory)
memory_care.register(memory)


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

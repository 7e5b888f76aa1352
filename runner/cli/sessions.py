"""`runner sessions`: list, show, rename, archive and forget conversations."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, TypeVar

import typer
from rich.text import Text
from wire.errors import WireError
from wire.v1 import gateway_pb2

from runner.cli.agent import SESSIONS_LISTED_MAX, ask_agent, find_session
from runner.cli.chat.answer import ModelText
from runner.cli.chat.calls import by_event, files_line, receipt_line
from runner.cli.command_tree import session_ids
from runner.cli.options import AsJson, Options, Yes
from runner.cli.output import (
    as_json,
    confirm,
    fields,
    neutralise,
    one_line,
    plain_console,
    print_json,
    session_shape,
    to_the_second,
)
from runner.client.gateway import GatewayClient

sessions = typer.Typer()

_T = TypeVar("_T")

SessionId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A session: its id, how that begins, or its title.",
        autocompletion=session_ids,
    ),
]


@sessions.command("list")
def list_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
    json: AsJson = False,
) -> None:
    """List the conversations, the latest used first."""
    listed = ask_agent(
        context.obj,
        lambda agent: agent.list_sessions(SESSIONS_LISTED_MAX, include_archived=everything),
    )
    none = "no sessions" if everything else "no sessions; --all shows archived ones too"
    session_shape().show(listed, json=json, none=none)


@sessions.command()
def show(
    context: typer.Context,
    session: SessionId,
    limit: Annotated[
        int, typer.Option(min=1, max=SESSIONS_LISTED_MAX, help="How many events.")
    ] = 50,
    json: AsJson = False,
) -> None:
    """Show the end of a conversation."""
    history, runs = _history(context.obj, session, limit)
    if json:
        print_json(
            as_json(history.session)
            | {
                "events": list(map(as_json, history.events)),
                "receipts": list(map(as_json, history.receipts)),
                "files": list(map(fields, history.files)),
                "runs": list(map(as_json, runs)),
            }
        )
        return
    console = plain_console()
    session_shape().show([history.session], json=False)
    for event, receipts, files in by_event(history):
        if event.text.strip():  # empty if the model only calls tools; their results follow
            said = Text(f"\n{event.role}  {to_the_second(event.created_at)}\n", style="bold")
            text = ModelText().marked(neutralise(event.text))
            if event.incomplete:
                text += f"\n(incomplete: {one_line(event.incomplete)})"
            console.print(said.append(text, style="not bold"), soft_wrap=True)
        told = [files_line(files)] if files is not None else []
        for line in (*filter(None, told), *map(receipt_line, receipts)):
            console.print(Text(line, style="green"), soft_wrap=True)
    for run in runs:
        console.print(Text(f"schedule: {one_line(run.told)}", style="green"), soft_wrap=True)


@sessions.command()
def rename(context: typer.Context, session: SessionId, title: str) -> None:
    """Give a conversation another title."""
    done = _ask(context.obj, session, lambda agent, found: agent.rename_session(found, title))
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
def forget(context: typer.Context, session: SessionId, yes: Yes = False) -> None:
    """Erase a conversation with all that was said in it. Notes saved in it stay."""
    options: Options = context.obj
    found = _ask(options, session, lambda agent, found: agent.get_session(found, 1)).session
    if not yes:
        title = f" ({one_line(found.title)})" if found.title else ""
        confirm(
            f"Forget {one_line(found.session_id)}{title}, {found.turns} turns? "
            "This cannot be undone",
            what="forget this session",
            command=options.command("sessions", "forget", found.session_id, "--yes"),
        )
    ask_agent(options, lambda agent: agent.forget_session(found.session_id))
    typer.echo(f"{one_line(found.session_id)} is forgotten")


def _history(
    options: Options, session: str, limit: int
) -> tuple[gateway_pb2.SessionHistory, list[gateway_pb2.ScheduleRun]]:
    """A conversation, and the runs of schedules that are turns of it."""

    async def ask(
        agent: GatewayClient, found: str
    ) -> tuple[gateway_pb2.SessionHistory, list[gateway_pb2.ScheduleRun]]:
        history = await agent.get_session(found, limit)
        runs = []
        for turn in reversed(await agent.list_turns(found)):
            request = gateway_pb2.ListScheduleRunsRequest(
                schedule=turn.schedule_id, before=f"{turn.slot}~", limit=2
            )
            with suppress(WireError):  # the schedule may be deleted
                of_it = await agent.schedule_runs(request) if turn.schedule_id else ()
                runs += [each for each in of_it if each.turn_id == turn.turn_id]
        return history, runs

    return _ask(options, session, ask)


def _set_archived(options: Options, session: str, *, archived: bool) -> str:
    done = _ask(
        options, session, lambda agent, found: agent.archive_session(found, archived=archived)
    )
    return one_line(done.session_id)


def _ask(
    options: Options, session: str, question: Callable[[GatewayClient, str], Awaitable[_T]]
) -> _T:
    """The agent's answer to a question about the session that `session` names."""

    async def answer(agent: GatewayClient) -> _T:
        return await question(agent, await find_session(agent, session))

    return ask_agent(options, answer)

"""The command `runner`: its options, its commands, and how errors are shown.

Exit codes: 0 success, 1 an error (what, why and the fix on standard error), 2 a wrong command line,
3 `status` of a host that does not run, 130 ended by Ctrl-C.
"""

import asyncio
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from wire.errors import Code, WireError
from wire.providers import NameOrDemo

from runner.cli.command_tree import (
    Root,
    Shell,
    complete,
    group,
    script,
    session_ids,
    to_complete,
    user_names,
    with_full_help,
)
from runner.cli.options import (
    AsJson,
    Hide,
    Lift,
    Options,
    With,
    for_the_same,
    options_first,
    program,
    warn_unconfined,
)
from runner.config.tiers import TierName
from runner.config.user_id import DEFAULT_USER_ID
from runner.errors import HostError
from runner.logs import printable

if TYPE_CHECKING:
    from runner.config.models import Config

# Each command imports what it needs when it runs, so that --version and --help are fast.

app = typer.Typer(
    name="runner",
    cls=Root,
    help="Run and talk to an agent that remembers.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_GROUPS: Final = {
    "users": ("operation.users", "List the users of this machine, and remove one with all data."),
    "config": ("setup.config", "Show, check and edit the settings."),
    "images": (
        "operation.images",
        "Build, save, load, list and prune the images of the container tiers.",
    ),
    "sessions": ("sessions", "List, name, put away and forget conversations."),
    "credentials": (
        "operation.credentials",
        "Give a running agent the key of a model's provider, and see where keys are from.",
    ),
    "tools": (
        "tools",
        "Add tools that others have made: MCP servers, by a preset or a pasted block.",
    ),
    "projects": ("projects", "Open and close directories of yours to the agent."),
    "skills": ("skills", "Let the agent use what others have written for kinds of tasks."),
    "schedules": ("schedules", "Let the agent begin work by itself, at times that you choose."),
    "memory": (
        "memory.group",
        "Find, write, correct and forget what an agent remembers; back it up and move it.",
    ),
    "access": ("operation.access", "Manage access for people without this account."),
    "approvals": ("approvals", "List and withdraw what you allowed for more than one call."),
    "audit": (
        "operation.audit",
        "Show every call of a tool, and check that nobody has changed the record.",
    ),
    "egress": (
        "operation.egress",
        "Show, try and change what may leave the guests, and see what has left.",
    ),
}
"""The module of each group, which has a `typer.Typer` of its name, and its help."""
for _name, (_module, _help) in _GROUPS.items():
    app.add_typer(group(f"runner.cli.{_module}:{_name}", _help), name=_name)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="Read the settings from this file.")] = None,
    user: Annotated[
        str, typer.Option(help="Whose agent.", autocompletion=user_names)
    ] = DEFAULT_USER_ID,
    tier: Annotated[TierName | None, typer.Option(help="How guests are confined.")] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Run in the process tier, without a container around the agent."
        ),
    ] = False,
    workspace_root: Annotated[
        str | None, typer.Option(help="The directory of all workspaces.")
    ] = None,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        typer.Option(help="How much is logged."),
    ] = None,
    connect: Annotated[
        Path | None,
        typer.Option(help="Reach the agent of another account or machine with this access file."),
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed_version

        typer.echo(f"oxydra {installed_version('oxydra')}")
        raise typer.Exit
    if insecure and tier not in (None, "process"):
        raise typer.BadParameter(f"--insecure asks for the process tier, --tier for {tier}")
    if connect is not None and user != DEFAULT_USER_ID:
        raise typer.BadParameter("--connect names the user already; leave out --user")
    context.obj = Options(config, user, tier, insecure, workspace_root, log_level, connect)
    if context.invoked_subcommand is None:
        start(context)


@app.command()
def completion(
    shell: Annotated[Shell, typer.Argument(help="Which shell.")],
) -> None:
    """Print what makes a shell complete commands, options, users and sessions."""
    typer.echo(script(shell))


@app.command()
def upgrade(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Compare what runs with what is installed.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Say what runs in another version than the installed one, and what to do. Changes nothing."""
    from runner.cli.setup.upgrade import upgrade as compare

    raise typer.Exit(compare(context.obj, check=check, as_json=json))


@app.command()
def init(
    context: typer.Context,
    provider: Annotated[NameOrDemo | None, typer.Option(help="Who answers.")] = None,
    model: Annotated[str | None, typer.Option(help="The provider's name of the model.")] = None,
    key_env: Annotated[
        str | None, typer.Option(help="The name of the variable that holds the key.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option(help="Another address that speaks the provider's protocol.")
    ] = None,
    no_test: Annotated[
        bool, typer.Option("--no-test", help="Do not ask the model to call a tool first.")
    ] = False,
) -> None:
    """Choose the model that answers, try it, put it into the configuration file, and talk."""
    from runner.cli.setup.init import init as set_up

    given = {"provider": provider, "model": model, "api_key_env": key_env, "base_url": base_url}
    if (talking := set_up(context.obj, given, test=not no_test)) is not None:
        from runner.cli.chat.chat import chat as converse

        raise typer.Exit(asyncio.run(converse(talking, _config_for_talking(talking))))


@app.command()
def start(
    context: typer.Context,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when the agent is ready.")
    ] = False,
    everybody: Annotated[
        bool, typer.Option("--all", help="Start the agents of all users.")
    ] = False,
    notify_fd: Annotated[int, typer.Option(hidden=True)] = -1,
    nursery_fd: Annotated[int, typer.Option(hidden=True)] = -1,
    woken: Annotated[bool, typer.Option("--woken", hidden=True)] = False,
) -> None:
    """Start the agent. Ctrl-C ends it."""
    from runner.cli.operation import launching, lifecycle
    from runner.host.awake import stay

    options: Options = context.obj
    if nursery_fd >= 0:
        raise typer.Exit(launching.run_nursery(options, nursery_fd, lifecycle.run_detached))
    if notify_fd >= 0:
        raise typer.Exit(lifecycle.run_detached(options, notify_fd, woken=woken))
    config = options.load_for_hosting()
    warn_unconfined(config, options)
    stay(config, options.user_id)
    if everybody:
        raise typer.Exit(asyncio.run(lifecycle.start_all(options, detach=detach)))
    if detach:
        lifecycle.tell(options, launching.launch(options))
        raise typer.Exit
    raise typer.Exit(asyncio.run(lifecycle.run_in_foreground(options, config)))


@app.command()
def stop(
    context: typer.Context,
    everybody: Annotated[bool, typer.Option("--all", help="End the agents of all users.")] = False,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="And do not let it be started for what is due.")
    ] = False,
) -> None:
    """End the agent and all that belongs to it. No error if nothing runs."""
    from runner.cli.operation import lifecycle

    if everybody:
        raise typer.Exit(asyncio.run(lifecycle.stop_all(context.obj, for_good=for_good)))
    asyncio.run(lifecycle.stop(context.obj, for_good=for_good))


@app.command()
def restart(
    context: typer.Context,
    role: Annotated[
        str, typer.Option(help="Only this guest: agent, shell, egress or shell-egress.")
    ] = "",
    everybody: Annotated[
        bool, typer.Option("--all", help="Restart those of all users who run.")
    ] = False,
) -> None:
    """Restart guests in place, with the settings that hold now."""
    from runner.cli.agent import ask_host

    if everybody:
        from runner.cli.operation.lifecycle import restart_all

        raise typer.Exit(asyncio.run(restart_all(context.obj, role)))

    ask_host(context.obj, lambda host: host.restart(role))
    typer.echo("restarted")


@app.command()
def status(
    context: typer.Context,
    json: AsJson = False,
) -> None:
    """Show what runs and how it is. Exit code 1: a guest does not run; 3: nothing runs."""
    from runner.cli.operation.status import show_status

    raise typer.Exit(asyncio.run(show_status(context.obj, json=json)))


@app.command()
def doctor(
    context: typer.Context,
    boundary: Annotated[
        bool, typer.Option("--boundary", help="Probe what the running shell guest can reach.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check this machine and the settings, and say how to mend what is wrong."""
    from runner.cli.operation.doctor import show_boundary, show_examination

    if boundary:
        raise typer.Exit(asyncio.run(show_boundary(context.obj, json=json)))
    raise typer.Exit(show_examination(context.obj, json=json))


@app.command()
def logs(
    context: typer.Context,
    role: Annotated[
        Literal["agent", "shell", "egress", "shell-egress", "embedder", "host"],
        typer.Option(help="Whose log."),
    ] = "agent",
    tail: Annotated[int, typer.Option(min=0, help="How many of the last lines.")] = 100,
    since: Annotated[
        str,
        typer.Option(
            help="Only what is newer: 90s, 15m, 2h, 3d or a time such as 2026-11-20T08:00."
        ),
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on as lines are written.")] = False,
    json: Annotated[bool, typer.Option("--json", help="JSON lines.")] = False,
) -> None:
    """Show a log."""
    from runner.cli.operation.logs import show_log

    show_log(context.obj, role, tail, since=since, follow=follow, as_json=json)


@app.command()
def serve(
    context: typer.Context,
    with_link: Annotated[
        bool, typer.Option("--open", help="Show a link that lets you in, once.")
    ] = False,
    everybody: Annotated[
        bool, typer.Option("--all", help="Start the agents of all users, too.")
    ] = False,
) -> None:
    """Serve the web console of all users over HTTP, until Ctrl-C."""
    from runner.cli.servers import serve_http

    raise typer.Exit(serve_http(context.obj, with_link=with_link, everybody=everybody))


_SESSION_HELP = "Go on with this session (its id, a beginning of it, or its title), or begin it."
Session = Annotated[str | None, typer.Option(help=_SESSION_HELP, autocompletion=session_ids)]
Model = Annotated[
    str,
    typer.Option(help="Which model answers: PROVIDER:MODEL, or one of the configured provider."),
]
Last = Annotated[bool, typer.Option("--last", help="Go on with the session that was used last.")]


@app.command()
def usage(
    context: typer.Context,
    by: Annotated[
        Literal["day", "session", "model", "kind"], typer.Option(help="What is summed.")
    ] = "day",
    since: Annotated[
        str, typer.Option(help="From this day on: 2026-11-22, 7d for a week, or all.")
    ] = "30d",
    everybody: Annotated[
        bool, typer.Option("--all", help="All users whose agents run, a line for each.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show what requests to the model took in tokens and money, and what is left of budgets."""
    from runner.cli.usage import show_usage

    show_usage(context.obj, by, since, everybody=everybody, json=json)


@app.command()
def turns(
    context: typer.Context,
    session: Annotated[
        str, typer.Option(help="Those of one session, by its id.", autocompletion=session_ids)
    ] = "",
    json: AsJson = False,
) -> None:
    """Show what runs and what has run lately, with sub-agents and what each took."""
    from runner.cli.turns import show_turns

    show_turns(context.obj, session, json=json)


@app.command()
def notices(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Those that were read, too.")] = False,
    read: Annotated[bool, typer.Option("--read", help="Mark as read what is shown.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print unread ones, and then each that comes.")
    ] = False,
    surface: Annotated[
        str, typer.Option(help="What follows them: each surface is told all of them.")
    ] = "terminal",
    test: Annotated[
        bool, typer.Option("--test", help="Send one to each address of [notices].")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show what you are told outside of turns: reminders, questions, budgets, what has failed."""
    from runner.cli.notices import follow_notices, show_notices, test_notices

    if test:
        raise typer.Exit(not test_notices(context.obj, json=json))
    if follow:
        follow_notices(context.obj, surface, json=json)
    else:
        show_notices(context.obj, everything=everything, read=read, json=json)


@app.command()
def chat(
    context: typer.Context,
    session: Session = None,
    last: Last = False,
    model: Model = "",
    directories: With = None,
    hide: Hide = None,
    lift: Lift = None,
) -> None:
    """Talk to the agent; starts it where it does not run."""
    from runner.cli.chat.chat import chat as converse
    from runner.cli.projects import folders_of

    _one_of(session, last)
    folders = folders_of(directories, hide, lift)
    options: Options = context.obj
    config = _config_for_talking(options)
    if config is not None and options.nothing_is_chosen():
        from runner.cli.setup.init import ask_first

        ask_first(options)
        config = options.load()
    raise typer.Exit(
        asyncio.run(
            converse(options, config, session=session, last=last, model=model, folders=folders)
        )
    )


@app.command()
def ask(
    context: typer.Context,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="What to ask. What a pipe brings is added.")
    ],
    session: Session = None,
    last: Last = False,
    model: Model = "",
    directories: With = None,
    hide: Hide = None,
    lift: Lift = None,
    json: Annotated[
        bool, typer.Option("--json", help="Every event of the turn as a line of JSON.")
    ] = False,
    attach: Annotated[
        list[Path] | None,
        typer.Option(
            "--attach", metavar="FILE", help="A file that the question is about; again for more."
        ),
    ] = None,
) -> None:
    """Ask one question: the answer goes to standard output, everything else to standard error."""
    from runner.cli.chat.ask import ask as ask_once
    from runner.cli.projects import folders_of

    _one_of(session, last)
    folders = folders_of(directories, hide, lift)
    options: Options = context.obj
    config = _config_for_talking(options)
    raise typer.Exit(
        asyncio.run(
            ask_once(
                options,
                config,
                question,
                session=session,
                last=last,
                model=model,
                as_json=json,
                folders=folders,
                files=attach or (),
            )
        )
    )


@app.command()
def mcp(context: typer.Context) -> None:
    """Serve memory, files and shell to an MCP client that starts this command."""
    from runner.cli.servers import serve_mcp

    asyncio.run(serve_mcp(context.obj))


@app.command("acp")
def editor(
    context: typer.Context,
    with_folder: Annotated[
        Literal["rw", "ro"] | None,
        typer.Option(
            "--with-folder",
            help="Let the agent work in the folder that the editor has open, or only read it.",
        ),
    ] = None,
) -> None:
    """Serve the agent to an editor that starts this command, by the Agent Client Protocol."""
    from runner.cli.servers import serve_editor

    asyncio.run(serve_editor(context.obj, with_folder))


def _one_of(session: str | None, last: bool) -> None:
    if session is not None and last:
        raise typer.BadParameter("--last means the session that was used last: leave out --session")


def _config_for_talking(options: Options) -> "Config | None":
    """The settings, which a host that does not run yet has to be able to start with; None where an
    access file leads to a host of somebody else."""
    from runner.cli.agent import host_runs

    if options.connect is not None:
        return None
    config = options.load()
    if not asyncio.run(host_runs(config, options.user_id)):
        config = options.load_for_hosting()
        warn_unconfined(config, options)
    return config


with_full_help(app)


def main() -> None:
    """Run the command line and exit. Errors are sentences, never tracebacks."""
    os.umask(0o077)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own log would go to the terminal
    sys.stdin = sys.stdin or Path(os.devnull).open()  # noqa: SIM115 - closed: nothing comes
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 - nobody reads
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what a terminal cannot show becomes a "?"
    if to_complete():
        sys.exit(complete(app))
    words: list[str] = []
    try:
        words = options_first(_words())
        code = app(words, prog_name=program(), standalone_mode=False)
    except typer.TyperException as error:
        if message := error.format_message():  # empty if the help of a bare group was shown
            message = message.replace("Value error, ", "")  # pydantic's, for a choice
            _complain(f"{message}\n  fix: {_help_for(error)}")
        code = getattr(error, "exit_code", 2)
    except SystemExit:  # typer and rich, when the reader of `| head` is gone
        from runner.cli.output import discard

        discard(sys.stdout)
        code = 0
    except WireError as error:
        error.resolution = for_the_same(error.resolution, words)
        _complain(str(error))
        code = 1
    except OSError as error:
        _complain(str(HostError(Code.INTERNAL, error.strerror or "failed", details=str(error))))
        code = 1
    except KeyboardInterrupt:
        code = 130
    sys.exit(code or 0)


def _words() -> list[str]:
    """The words of the command line. Raises `typer.BadParameter` for bytes that are not UTF-8."""
    for word in sys.argv[1:]:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise typer.BadParameter(f"this is not UTF-8 text: {os.fsencode(word)!r}") from None
    return sys.argv[1:]


def _help_for(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path if context else program()} --help"


def _complain(text: str) -> None:
    print(printable(text), file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()

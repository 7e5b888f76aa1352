"""`runner egress show|test|allow|deny|log|reload`."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer
from wire.egress import hosts
from wire.egress.policy import Attempt, Verdict, spelled
from wire.egress.presets import PRESETS
from wire.egress.rules import DEFAULT_PORTS
from wire.errors import Code
from wire.settings import EgressRoleSettings
from wire.v1 import egress_pb2

from runner.cli.agent import ask_host
from runner.cli.operation.egress.current import Current, Role
from runner.cli.operation.egress.log import show_log
from runner.cli.operation.egress.tables import (
    count_rows,
    credential_rows,
    json_of,
    limit_rows,
    lines,
)
from runner.cli.options import AsJson, Options
from runner.cli.output import one_line, print_json, print_table, table_of
from runner.config.user_id import DEFAULT_USER_ID
from runner.egress.log import Requests, Wanted
from runner.errors import HostError

egress = typer.Typer(name="egress")

_PRESET: Final = "preset "
_PORTS: Final = {"http": 80, "https": 443}
_WHO: Final = {"agent": "the agent's tools", "shell": "commands"}

OfRole = Annotated[Role, typer.Option("--role", help="Who wants out: commands, or the agent.")]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="RULE",
        help='A host, a rule such as "GET https://example.org/public/*", or: preset NAME.',
    ),
]
InSession = Annotated[
    str, typer.Option("--session", help="Only in this session.", show_default=False)
]
Withdraw = Annotated[bool, typer.Option("--withdraw", help="Take back what was said so before.")]


@egress.command()
def show(
    context: typer.Context,
    presets: Annotated[
        bool, typer.Option("--presets", help="Show what each preset opens, rule by rule.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Show what may leave, on whose word, and how much. Works without a running host, too."""
    current = Current.read(context.obj)
    if json:
        print_json(json_of(current, expanded=presets))
        return
    for line in _states(current):
        typer.echo(line)
    rows = [
        (line.role, line.decision, *map(one_line, (line.what, line.source, line.remark)))
        for line in lines(current, expanded=presets)
    ]
    print_table(table_of("role", "decision", "what", "from", "", rows=rows))
    typer.echo()
    if current.configuration.credentials:
        keys = credential_rows(current)
        print_table(table_of("key of commands", "for", "by", "in", rows=keys))
        typer.echo()
    limited = "limit of each role", "", "agent today", "shell today"
    print_table(table_of(*limited, rows=limit_rows(current)))
    if current.counters is not None and current.counters.counts:
        typer.echo()
        headings = "role", "host", "requests", "refused", "sent", "received"
        print_table(table_of(*headings, rows=count_rows(current.counters)))


@egress.command("test")
def try_(
    context: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where somebody would go.")],
    role: OfRole = "shell",
    method: Annotated[str, typer.Option(help="How, where that can be read.")] = "GET",
    session: InSession = "",
    json: AsJson = False,
) -> None:
    """Say whether it may go out, and which rule says so. Nothing is sent. Exit code 1: it may not,
    or a person is asked first."""
    options: Options = context.obj
    current = Current.read(options)
    encrypted, host, port, path = _parts(url)
    scheme = current.scheme(role, host, port, encrypted=encrypted)
    readable = scheme != "tunnel"
    attempt = Attempt(
        scheme, host, port, method.upper() if readable else "", path if readable else ""
    )
    verdict = current.decide(role, attempt, session or "any")
    if json:
        print_json({"url": url, "role": role, "readable": readable, **vars(verdict)})
    else:
        for line in _said(attempt, verdict, role, options):
            typer.echo(line)
    if verdict.decision != "allow":
        raise typer.Exit(1)


@egress.command()
def allow(
    context: typer.Context,
    rule: Words,
    role: OfRole = "shell",
    session: InSession = "",
    withdraw: Withdraw = False,
) -> None:
    """Allow something at once and until the host ends. What is denied stays denied."""
    _grant(context.obj, rule, role, session, denied=False, withdraw=withdraw)


@egress.command()
def deny(
    context: typer.Context,
    rule: Words,
    role: OfRole = "shell",
    session: InSession = "",
    withdraw: Withdraw = False,
) -> None:
    """Deny something at once and until the host ends, whatever allows it."""
    _grant(context.obj, rule, role, session, denied=True, withdraw=withdraw)


@egress.command()
def log(
    context: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with each as it ends or is refused.")
    ] = False,
    role: Annotated[
        Role | None, typer.Option(help="Only of this guest.", show_default=False)
    ] = None,
    host: Annotated[
        str, typer.Option(help="Only to this host and those below it.", show_default=False)
    ] = "",
    session: Annotated[str, typer.Option(help="Only from this session.", show_default=False)] = "",
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many at most.")] = 50,
    json: AsJson = False,
) -> None:
    """Show what left and what was refused, the newest last."""
    options: Options = context.obj
    wanted = Wanted(role or "", host, session, refused=refused)
    requests = Requests.locate(options.load(), options.user_id)
    show_log(requests, wanted, limit=limit, follow=follow, as_json=json)


@egress.command()
def reload(context: typer.Context) -> None:
    """Take up the settings of egress that are in the file now, without restarting anything."""
    for notice in ask_host(context.obj, lambda host: host.reload_egress()):
        typer.echo(one_line(notice))
    typer.echo("what [egress] says now holds from the next request on")


def _grant(
    options: Options,
    words: Sequence[str],
    role: Role,
    session: str,
    *,
    denied: bool,
    withdraw: bool,
) -> None:
    text = " ".join(words)
    try:
        rule = spelled(text)
    except ValueError as error:
        raise _no_rule(text, str(error)) from None
    grant = egress_pb2.EgressGrant(rule=rule, denied=denied, session_id=session)
    changed = ask_host(options, lambda host: host.grant_egress(role, grant, withdraw=withdraw))
    verb = "denied to" if denied else "allowed to"
    where = f"in session {session}" if session else "in all sessions"
    if withdraw:
        said = "is no longer" if changed else "was not"
        typer.echo(f"{rule} {said} {verb} {_WHO[role]} {where} by a grant")
        return
    typer.echo(f"{rule} is {verb} {_WHO[role]} {where} until the host ends")
    settings = options.load().for_user(options.user_id).egress
    own = settings.agent if role == "agent" else settings.shell
    typer.echo("to keep it, in runner.toml, then: runner egress reload")
    prefix = "" if options.user_id == DEFAULT_USER_ID else f"users.{options.user_id}."
    typer.echo(f"  [{prefix}egress.{role}]\n  {_setting(own, rule, denied=denied)}")


def _setting(own: EgressRoleSettings, rule: str, *, denied: bool) -> str:
    """The line of the file that adds `rule` to what is there."""
    if denied:
        name, there = "deny", own.deny
    elif rule.startswith(_PRESET):
        name, there, rule = "presets", own.presets, rule.removeprefix(_PRESET)
    else:
        name, there = "allow", own.allow
    values = ", ".join(f'"{each}"' for each in dict.fromkeys((*there, rule)))
    return f"{name} = [{values}]"


def _states(current: Current) -> Iterator[str]:
    """How the guests are."""
    found = [each for each in (current.guest, current.shell_guest) if each is not None]
    if not found:
        yield "no host runs; the settings say:"
    for guest in found:
        yield f"{guest.role} {guest.state}" + (
            f": {one_line(guest.reason)}" if guest.reason else ""
        )
    if current.counters is not None:
        yield f"{current.counters.open:,} open now"


def _parts(url: str) -> tuple[bool, str, int, str]:
    """Whether it is encrypted, and host, port and path; without a scheme, HTTPS is meant."""
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
        if parts.scheme not in _PORTS or "@" in parts.netloc or not parts.hostname:
            raise ValueError(
                "accepted: http:// or https://, a host, and a port and a path if need be"
            )
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"{url[:80]!r} is no URL that egress could let out",
            details=str(error),
            resolution="runner egress test https://example.org/",
        ) from None
    return parts.scheme == "https", parts.hostname, port, parts.path or "/"


def _said(attempt: Attempt, verdict: Verdict, role: Role, options: Options) -> Iterator[str]:
    """The verdict in words, and how to change it."""
    if verdict.decision == "allow":
        yield f"allowed: {' '.join(filter(None, (f'the rule {verdict.rule}', verdict.reason)))}"
    elif verdict.decision == "ask":
        yield f"a person is asked: allow {verdict.asks_for} for this session?"
    else:
        yield f"denied: {one_line(verdict.reason)}"
    if attempt.scheme == "tunnel":
        yield "it is a tunnel: method and path cannot be read there"
    if verdict.decision != "allow" and (opened := verdict.asks_for or _openable(attempt, verdict)):
        chosen = ("--role", role) if role == "agent" else ()
        yield f"  fix: {options.command('egress', 'allow', *chosen, *opened.split())}"


def _openable(attempt: Attempt, verdict: Verdict) -> str:
    """The rule that would open what no rule decided; empty where a rule has, or none could."""
    try:
        host = hosts.canonical(attempt.host)
    except ValueError:
        return ""
    if verdict.rule or hosts.is_address(host) or "no rule allows" not in verdict.reason:
        return ""
    return hosts.shown(host, 0 if attempt.port == DEFAULT_PORTS[attempt.scheme] else attempt.port)


def _no_rule(text: str, why: str) -> HostError:
    return HostError(
        Code.INVALID_ARGUMENT,
        f"{text[:80]!r} is no rule: {why}",
        details=f"presets are {', '.join(PRESETS)}",
        resolution="runner egress allow files.example.org, or: runner egress allow preset pypi",
    )

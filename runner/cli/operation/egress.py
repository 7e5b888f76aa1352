"""`runner egress show|test|allow|deny|log|reload`."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import typer
from wire.egress import hosts
from wire.egress.policy import Attempt, Verdict, rules_of, spelled
from wire.egress.rules import DEFAULT_PORTS, PRESETS
from wire.errors import Code
from wire.settings import EgressRoleSettings
from wire.v1 import egress_pb2

from runner.cli.agent import ask_host
from runner.cli.operation.egress_policy import Current, Role
from runner.cli.options import AsJson, Options
from runner.cli.output import (
    Shape,
    as_json,
    one_line,
    print_as_they_come,
    print_json,
    print_table,
    table_of,
    to_the_second,
)
from runner.config.user_id import DEFAULT_USER_ID
from runner.egress.log import Request, Requests, Wanted
from runner.errors import HostError

egress = typer.Typer(name="egress")

_PRESET: Final = "preset "
_PORTS: Final = {"http": 80, "https": 443}
_SETTINGS: Final = "settings"
_ELSE: Final = "everything else"
_IDLE: Final = (
    "never allows anything: HTTPS is read only for commands, and to hosts in egress.inspect"
)
_WHO: Final = {"agent": "the agent's tools", "shell": "commands"}

OfRole = Annotated[Role, typer.Option("--role", help="Who wants out: commands, or the agent.")]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="RULE",
        help='A host, a rule such as "GET https://example.org/public/*", or: preset NAME.',
    ),
]
InSession = Annotated[str, typer.Option("--session", help="Only in this session.")]
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
    RULES.show(lines(current, expanded=presets), json=False)
    options: Options = context.obj
    servers = options.load().for_user(options.user_id).mcp.servers.values()
    if any(each.has_guest for each in servers):
        told = "MCP servers in guests of their own have rules of their own: runner tools list"
        typer.echo(options.mended(told))
    typer.echo()
    if current.configuration.credentials:
        KEYS.show(current.configuration.credentials, json=False)
        typer.echo()
    limited = "limit of each role", "", "agent today", "shell today"
    print_table(table_of(*limited, rows=limit_rows(current)))
    if current.counters is not None and current.counters.counts:
        typer.echo()
        counts = sorted(current.counters.counts, key=lambda count: (count.role, count.host))
        COUNTS.show(counts, json=False)


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


def _granting(*, denied: bool) -> Callable[..., None]:
    def grant(
        context: typer.Context,
        rule: Words,
        role: OfRole = "shell",
        session: InSession = "",
        withdraw: Withdraw = False,
    ) -> None:
        options: Options = context.obj
        text = " ".join(rule)
        try:
            given = spelled(text)
        except ValueError as error:
            raise HostError(
                Code.INVALID_ARGUMENT,
                f"{text[:80]!r} is not a rule: {error}",
                details=f"presets are {', '.join(PRESETS)}",
                resolution="runner egress allow files.example.org, or: runner egress allow "
                "preset pypi",
            ) from None
        wanted = egress_pb2.EgressGrant(rule=given, denied=denied, session_id=session)
        changed = ask_host(options, lambda host: host.grant_egress(role, wanted, withdraw=withdraw))
        verb = "denied to" if denied else "allowed to"
        where = f"in session {session}" if session else "in all sessions"
        if withdraw:
            said = "is no longer" if changed else "was not"
            typer.echo(f"{given} {said} {verb} {_WHO[role]} {where} by a grant")
            return
        typer.echo(f"{given} is {verb} {_WHO[role]} {where} until the host ends")
        settings = options.load().for_user(options.user_id).egress
        own = settings.agent if role == "agent" else settings.shell
        typer.echo(options.mended("to keep it, in runner.toml, then: runner egress reload"))
        prefix = "" if options.user_id == DEFAULT_USER_ID else f"users.{options.user_id}."
        typer.echo(f"  [{prefix}egress.{role}]\n  {_setting(own, given, denied=denied)}")

    return grant


egress.command(
    "allow", help="Allow something at once and until the host ends. What is denied stays denied."
)(_granting(denied=False))
egress.command("deny", help="Deny something at once and until the host ends, whatever allows it.")(
    _granting(denied=True)
)


@egress.command()
def log(
    context: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with each as it ends or is refused.")
    ] = False,
    role: Annotated[
        Literal["agent", "shell", "runner"] | None,
        typer.Option(help="Only of this guest, or the runner's notices."),
    ] = None,
    host: Annotated[str, typer.Option(help="Only to this host and those below it.")] = "",
    session: Annotated[str, typer.Option(help="Only from this session.")] = "",
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many at most.")] = 50,
    json: AsJson = False,
) -> None:
    """Show what left and what was refused, the newest last."""
    options: Options = context.obj
    wanted = Wanted(role or "", host, session, refused=refused)
    requests = Requests.locate(options.load(), options.user_id)
    newest = list(reversed(requests.list(wanted, limit=limit)))
    if json:
        for request in newest:
            typer.echo(REQUESTS.line(request, json=True))
    elif newest or not follow:
        REQUESTS.show(newest, json=False, none="no such request is recorded")
    if follow:
        sys.stdout.flush()
        later = requests.follow(wanted)
        print_as_they_come(REQUESTS.line(request, json=json) async for request in later)


@egress.command()
def reload(context: typer.Context) -> None:
    """Take up the settings of egress that are in the file now, without restarting anything."""
    for notice in ask_host(context.obj, lambda host: host.reload_egress()):
        typer.echo(one_line(notice))
    typer.echo("egress settings reloaded; they apply to new requests")


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
    found = [each for each in (current.guest, current.shell_guest) if each is not None]
    if not found:
        yield "no host runs; the settings say:"
    for guest in found:
        why = f": {one_line(guest.reason)}" if guest.reason else ""
        yield f"{guest.role} {guest.state}{why}"
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
            f"{url[:80]!r} is not a URL that egress can forward",
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


ROLES: tuple[Role, ...] = ("agent", "shell")


@dataclass(frozen=True)
class PolicyLine:
    """What is allowed, denied or asked about, on whose word, and why it comes to nothing if so."""

    role: str
    decision: str
    what: str
    source: str
    remark: str = ""


RULES: Final = Shape[PolicyLine](
    {
        "role": lambda line: line.role,
        "decision": lambda line: line.decision,
        "what": lambda line: one_line(line.what),
        "from": lambda line: one_line(line.source),
        "": lambda line: one_line(line.remark),
    }
)
KEYS: Final = Shape[egress_pb2.EgressCredential](
    {
        "key of commands": lambda each: each.name,
        "for": lambda each: ", ".join(each.hosts),
        "by": lambda each: ", ".join(each.methods) or "any method",
        "in": lambda each: each.place,
    },
    "name hosts methods place",
)
COUNTS: Final = Shape[egress_pb2.EgressCount](
    {
        "role": lambda each: each.role,
        "host": lambda each: one_line(each.host),
        "requests": lambda each: f"{each.requests:,}",
        "refused": lambda each: f"{each.refused:,}",
        "sent": lambda each: amount(each.sent),
        "received": lambda each: amount(each.received),
    },
    "role host requests refused sent received",
)
REQUESTS: Final = Shape[Request](
    {
        "at": lambda request: to_the_second(request.at),
        "role": lambda request: request.role,
        "outcome": lambda request: request.outcome,
        "method": lambda request: request.method,
        "where": lambda request: one_line(_where(request)),
        "status": lambda request: str(request.status or ""),
        "sent": lambda request: amount(request.sent),
        "received": lambda request: amount(request.received),
        "why": lambda request: one_line(request.reason or request.rule),
    }
)


def lines(current: Current, *, expanded: bool = False) -> Iterator[PolicyLine]:
    """What each role may reach; `expanded` shows the rules of presets in their place."""
    for upstream in current.configuration.upstreams:
        decision = "missing" if upstream.missing else "allow"
        what = f"{upstream.name} at {upstream.url}"
        yield PolicyLine("agent", decision, what, _SETTINGS, upstream.missing)
    for rule in current.configuration.runner.allow:
        yield PolicyLine("runner", "allow", rule, "notices.urls_env")
    for role in ROLES:
        yield from _of_role(role, current, expanded=expanded)


def _of_role(role: Role, current: Current, *, expanded: bool) -> Iterator[PolicyLine]:
    policy = current.policy(role)
    for text in policy.deny:
        yield PolicyLine(role, "deny", text, _SETTINGS)
    for text in (*(f"preset {name}" for name in policy.presets), *policy.allow):
        idle = any(current.is_idle(role, rule) for rule in rules_of(text))
        for what in _opened(text, expanded=expanded):
            yield PolicyLine(role, "allow", what, _SETTINGS, _IDLE if idle else "")
    for grant in policy.grants:
        source = f"session {grant.session_id}" if grant.session_id else "until the host ends"
        for what in _opened(grant.rule, expanded=expanded):
            yield PolicyLine(role, "deny" if grant.denied else "allow", what, source)
    yield PolicyLine(role, "ask" if policy.ask else "deny", _ELSE, _SETTINGS)


def _opened(text: str, *, expanded: bool) -> tuple[str, ...]:
    if expanded and text.startswith("preset "):
        return tuple(f"{rule} ({text})" for rule in rules_of(text))
    return (text,)


def limit_rows(current: Current) -> Iterator[tuple[str, ...]]:
    """Each limit in words, how much it is, and what each role has taken of it today."""
    most = current.configuration.limits

    def used(unit: Literal["requests", "bytes"], shown: Callable[[int], str]) -> list[str]:
        return [
            shown(sum(getattr(each, unit) for each in current.today if each.role == role))
            for role in ROLES
        ]

    requests, moved = used("requests", "{:,}".format), used("bytes", amount)
    for what, shown, count, taken in (
        ("connections at once", "{:,}".format, most.connections, None),
        ("requests a turn", "{:,}".format, most.turn_requests, None),
        ("requests to one host a day", "{:,}".format, most.host_day_requests, None),
        ("requests a day", "{:,}".format, most.day_requests, requests),
        ("data a turn", amount, most.turn_bytes, None),
        ("data with one host a day", amount, most.host_day_bytes, None),
        ("data a day", amount, most.day_bytes, moved),
    ):
        yield what, shown(count) if count else "no limit", *(taken or ("", ""))


def amount(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def json_of(current: Current, *, expanded: bool) -> dict[str, Any]:
    """All of it. The guests are null where no host runs, `hosts` where neither answers; they are
    counted since its start, and `today` also before that."""
    limits = current.configuration.limits
    counters = current.counters
    return {
        "guest": None if current.guest is None else as_json(current.guest),
        "shell_guest": None if current.shell_guest is None else as_json(current.shell_guest),
        "rules": [RULES.as_json(line) for line in lines(current, expanded=expanded)],
        "credentials": list(map(KEYS.as_json, current.configuration.credentials)),
        "limits": {field.name: getattr(limits, field.name) for field in limits.DESCRIPTOR.fields},
        "today": [as_json(each, "role host requests bytes") for each in current.today],
        "open": None if counters is None else counters.open,
        "hosts": None if counters is None else list(map(COUNTS.as_json, counters.counts)),
    }


def _where(request: Request) -> str:
    where = request.place
    return f"{request.upstream}: {where}" if request.upstream else where

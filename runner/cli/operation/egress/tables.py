"""What may leave, as tables and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from wire.egress.policy import rules_of
from wire.v1 import egress_pb2

from runner.cli.operation.egress.current import Current, Role
from runner.cli.output import as_json, one_line

ROLES: tuple[Role, ...] = ("agent", "shell")
_SETTINGS = "settings"
_ELSE = "everything else"
_IDLE = "never allows anything: HTTPS is read only for commands, and to hosts in egress.inspect"


@dataclass(frozen=True)
class Line:
    """One thing that is allowed, denied or asked about, and on whose word. `remark` says why it
    comes to nothing, if it does."""

    role: str
    decision: str
    what: str
    source: str
    remark: str = ""


def lines(current: Current, *, expanded: bool = False) -> Iterator[Line]:
    """What each role may reach; `expanded` shows the rules of presets in their place."""
    for upstream in current.configuration.upstreams:
        decision = "missing" if upstream.missing else "allow"
        what = f"{upstream.name} at {upstream.url}"
        yield Line("agent", decision, what, _SETTINGS, upstream.missing)
    for role in ROLES:
        yield from _of_role(role, current, expanded=expanded)


def _of_role(role: Role, current: Current, *, expanded: bool) -> Iterator[Line]:
    policy = current.policy(role)
    for text in policy.deny:
        yield Line(role, "deny", text, _SETTINGS)
    for text in (*(f"preset {name}" for name in policy.presets), *policy.allow):
        idle = any(current.is_idle(role, rule) for rule in rules_of(text))
        for what in _opened(text, expanded=expanded):
            yield Line(role, "allow", what, _SETTINGS, _IDLE if idle else "")
    for grant in policy.grants:
        source = f"session {grant.session_id}" if grant.session_id else "until the host ends"
        for what in _opened(grant.rule, expanded=expanded):
            yield Line(role, "deny" if grant.denied else "allow", what, source)
    yield Line(role, "ask" if policy.ask else "deny", _ELSE, _SETTINGS)


def _opened(text: str, *, expanded: bool) -> tuple[str, ...]:
    if expanded and text.startswith("preset "):
        return tuple(f"{rule} ({text})" for rule in rules_of(text))
    return (text,)


def credential_rows(current: Current) -> Iterator[tuple[str, ...]]:
    """The keys that commands have placeholders of, and what those become keys in."""
    for each in current.configuration.credentials:
        methods = ", ".join(each.methods) or "any method"
        yield each.name, ", ".join(each.hosts), methods, each.place


def limit_rows(current: Current) -> Iterator[tuple[str, ...]]:
    """Each limit in words, how much it is, and what each role has taken of it today."""
    most = current.configuration.limits
    requests = [f"{_today(current, role, 'requests'):,}" for role in ROLES]
    moved = [amount(_today(current, role, "bytes")) for role in ROLES]
    for what, count, used in (
        ("connections at once", most.connections, ()),
        ("requests a turn", most.turn_requests, ()),
        ("requests to one host a day", most.host_day_requests, ()),
        ("requests a day", most.day_requests, requests),
    ):
        yield what, f"{count:,}" if count else "no limit", *(used or ("", ""))
    for what, count, used in (
        ("data a turn", most.turn_bytes, ()),
        ("data with one host a day", most.host_day_bytes, ()),
        ("data a day", most.day_bytes, moved),
    ):
        yield what, amount(count) if count else "no limit", *(used or ("", ""))


def _today(current: Current, role: Role, unit: Literal["requests", "bytes"]) -> int:
    return sum(getattr(each, unit) for each in current.today if each.role == role)


def count_rows(counters: egress_pb2.EgressCountersReply) -> Iterator[tuple[str, ...]]:
    """What the guest has let out and refused since its start."""
    for each in sorted(counters.counts, key=lambda count: (count.role, count.host)):
        figures = (
            f"{each.requests:,}",
            f"{each.refused:,}",
            amount(each.sent),
            amount(each.received),
        )
        yield each.role, one_line(each.host), *figures


def amount(count: int) -> str:
    """So many bytes, for people."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def json_of(current: Current, *, expanded: bool) -> dict[str, Any]:
    """All of it. The guests are null where no host runs, `hosts` where neither answers; they are
    counted since its start, and `today` also before that."""
    limits = current.configuration.limits
    counters = current.counters
    count = "role host requests refused sent received"
    return {
        "guest": None if current.guest is None else as_json(current.guest),
        "shell_guest": None if current.shell_guest is None else as_json(current.shell_guest),
        "rules": [asdict(line) for line in lines(current, expanded=expanded)],
        "credentials": [
            as_json(each, "name hosts methods place") for each in current.configuration.credentials
        ],
        "limits": {field.name: getattr(limits, field.name) for field in limits.DESCRIPTOR.fields},
        "today": [as_json(each, "role host requests bytes") for each in current.today],
        "open": None if counters is None else counters.open,
        "hosts": None if counters is None else [as_json(each, count) for each in counters.counts],
    }

"""What an agent proposes to open to commands: checked, put to a person, and opened.

The agent says hosts and a reason. All else that a person reads is from the record and the rules,
and only what no rule decided and egress has refused in this session can be opened.
"""

import asyncio
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from wire.egress.policy import Attempt, Policy, Scheme, Verdict, attempt_by, preset_with, rules_of
from wire.egress.rules import DEFAULT_PORTS, PURPOSES, Rule
from wire.errors import Code
from wire.limits import ALWAYS, PROPOSED_HOSTS_MAX
from wire.text import visible_name
from wire.v1.egress_pb2 import EgressGrant
from wire.v1.gateway_pb2 import AskRequest, CallReportReply, EgressProposal

from runner.audit.log import LogLocation
from runner.config.loading import load_settings, own_file
from runner.config.models import Config
from runner.egress.log import Request, Requests, Wanted
from runner.egress.watcher import TOOL, why_not
from runner.errors import HostError
from runner.host.guests import Guests
from runner.workspace.configuration_file import Changes, change_file

LOOKED_AT_MAX: Final = 10_000
"""How many of the latest requests are searched for refusals."""
_NAME: Final = re.compile(
    r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
"""Of a host: neither a pattern nor an address."""
_OFFERS: Final = ("what this opens", ALWAYS)
_SAID_CHARS: Final = 300
_unfit = partial(HostError, Code.FAILED_PRECONDITION)


async def advise(
    place: LogLocation,
    guests: Callable[[], Guests],
    keep: Callable[[Sequence[str]], object],
    proposal: EgressProposal,
) -> CallReportReply:
    """Ask a person, and open what they allow; answers what is open now. `place` is the record's,
    `keep` writes rules into the settings. Raises `WireError` for what is not opened."""
    turn: dict[str, Any] = {"session_id": proposal.session_id, "turn_id": proposal.turn_id}
    now = guests().egress.agents.launcher.configuration(reads=False).shell
    decide = partial(Policy.of(now).decide, **turn)
    refused = await asyncio.to_thread(_refused, place, proposal)
    shown = {rule: _told(rule, refused[rule], decide) for rule in refused}
    shown["the agent says"] = visible_name(proposal.reason[:_SAID_CHARS])
    card = AskRequest(tool=TOOL, arguments_json=json.dumps(shown), offers=_OFFERS, **turn)
    card.question = f"allow commands {' and '.join(refused)} for this turn?"
    reply = await guests().ask(card)
    if not reply.approved:
        raise HostError(Code.PERMISSION_DENIED, f"nothing is opened: {why_not(reply)}")
    if reply.granted == ALWAYS:
        await asyncio.to_thread(keep, list(refused))
    scope = {_OFFERS[0]: ("session_id",), ALWAYS: ()}.get(reply.granted, tuple(turn))
    within = {name: turn[name] for name in scope}
    await guests().egress.grant("shell", *(EgressGrant(rule=rule, **within) for rule in refused))
    how = ("always", "for this session", "for this turn")[len(scope)]
    told = f"opened {how}: {', '.join(refused)}; run the command again"
    return CallReportReply(call_id=proposal.call_id, told=told)


def keep_rules(
    config: Config, user_id: str, environ: Mapping[str, str], rules: Sequence[str]
) -> None:
    """Allow this user's commands these rules in the configuration file. Raises `WireError`."""
    load = partial(load_settings, environ=environ)
    own = load(config.file).config.for_user(user_id).egress.shell
    opened = [*own.allow, *(str(each) for rule in rules for each in rules_of(rule))]
    path = (config.file or own_file()).resolve()
    changes: Changes = {("users", user_id, "egress", "shell", "allow"): opened}
    change_file(path, changes, lambda text: load(path, draft=text))


def _refused(place: LogLocation, proposal: EgressProposal) -> dict[str, list[Request]]:
    """What commands of a session were refused of the wanted hosts for want of a rule, by the rule
    that opens it, newest first. Raises `HostError` for a host that was not refused."""
    fits = Wanted("shell", session_id=proposal.session_id, refused=True).fits
    latest = itertools.islice(Requests(place).newest(), LOOKED_AT_MAX)
    named = (r for r in latest if r.scheme in DEFAULT_PORTS and _NAME.fullmatch(r.host))
    refusals = [each for each in named if fits(each) and not each.rule]
    found: dict[str, list[Request]] = {}
    for text in dict.fromkeys(proposal.hosts[:PROPOSED_HOSTS_MAX]):
        of_host = [r for r in refusals if text.lower() in (r.host, f"{r.host}:{r.port}")]
        if not of_host:
            raise _unfit(
                f"no command of this session was refused {visible_name(text[:80])} for want of a "
                "rule; propose only names of hosts that egress has refused, after it has"
            )
        for each in of_host:
            found.setdefault(_opening(each), []).append(each)
    return found


def _opening(request: Request) -> str:
    """The narrowest rule that opens what was refused. Nobody reads the methods in a tunnel."""
    port = 0 if request.port == DEFAULT_PORTS[request.scheme] else request.port
    if request.scheme == "tunnel":
        preset = preset_with(Attempt("tunnel", request.host, request.port), request.host)
        return preset or str(Rule((), "https", request.host, port, ""))
    methods = tuple(sorted({"GET", "HEAD", request.method}))
    return str(Rule(methods, request.scheme, request.host, port, ""))


def _told(opening: str, requests: Sequence[Request], decide: Callable[[Attempt], Verdict]) -> str:
    """What a person reads of a rule. Raises `HostError` for one that would change nothing."""
    of, scheme = requests[0], cast(Scheme, requests[0].scheme)
    verdict = decide(Attempt(scheme, of.host, of.port, of.method, of.path))
    if verdict.decision == "allow":
        raise _unfit(f"{opening} is open already; run the command again")
    if verdict.rule:
        raise _unfit(f"{opening} cannot be opened: {verdict.reason}")
    refused = {each.host for each in requests}
    tried = (replace(attempt_by(each), scheme=scheme) for each in rules_of(opening))
    new = [each.host for each in tried if decide(each).decision != "allow"]
    new = [each + " (not refused yet)" * (each not in refused) for each in new]
    since = datetime.fromisoformat(requests[-1].at).astimezone()
    return (
        f"{PURPOSES.get(opening, 'opens')}: {', '.join(map(str, rules_of(opening)))}"
        f"{', all methods' * (opening[0] in 'hp')}\n"
        f"refused {len(requests)}× since {since:%Y-%m-%d %H:%M}\nnew: {', '.join(new)}"
    )

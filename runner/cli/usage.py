"""`runner usage`: what requests to models took, and what is left of budgets."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from typing import Any, Final

import typer
from rich.table import Table
from wire.errors import WireError
from wire.text import dollars
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent, connect
from runner.cli.options import Options
from runner.cli.output import (
    SHAPES,
    as_json,
    one_line,
    print_json,
    print_table,
    table_of,
    to_the_second,
    today,
)
from runner.client.gateway import GatewayClient
from runner.config.users import known_users

_DAYS: Final = re.compile(r"(\d{1,5})d")
_AMOUNTS: Final = ("requests", "input", "cached", "output", "cost")
_MONEY: Final = "_usd"


def show_usage(options: Options, by: str, since: str, *, everybody: bool, json: bool) -> None:
    """Print what requests took since a day, by day, session, model or kind.

    With `everybody`, of each user whose agent runs. Raises `typer.BadParameter` for a bad `since`.
    """
    first = first_day(since)
    if everybody:
        _show_everybody(options, first, json=json)
        return
    request = gateway_pb2.GetUsageRequest(by=by, since=first)
    reply = ask_agent(options, lambda agent: agent.usage(request))
    if json:
        print_json({"by": by, "since": first or None, **_as_json(reply, by)})
    elif reply.sums:
        rows = [(_name(each, by), *_amounts(each)) for each in reply.sums]
        if len(rows) > 1:
            rows.append(("all", *_amounts(reply.total)))
        print_table(table_of(by, *_AMOUNTS, rows=rows))
        for remark in remarks(reply.total):
            typer.echo(remark)
        _print_budgets(reply.budgets)
    else:
        typer.echo(f"no requests to a model since {first}" if first else "no requests to a model")
        _print_budgets(reply.budgets)


async def overview(agent: GatewayClient, session_id: str) -> tuple[Table, list[str]]:
    """What the session, the day and the month took and the budgets, and remarks on it."""
    day = today()
    reply = await agent.usage(gateway_pb2.GetUsageRequest(since=day.isoformat()))
    first = day.replace(day=1).isoformat()
    month = await agent.usage(gateway_pb2.GetUsageRequest(since=first))
    rows = [("today", *_amounts(reply.total)), ("this month", *_amounts(month.total))]
    if session_id:
        reply = await agent.usage(gateway_pb2.GetUsageRequest(session_id=session_id))
        rows.insert(0, ("this session", *_amounts(reply.total)))
    notes = [*remarks(month.total), *map(_budget_line, reply.budgets)]
    return table_of("", *_AMOUNTS, rows=rows), notes


def turn_line(completed: gateway_pb2.TurnCompleted) -> str:
    """What a turn took, in a few words; empty for the built-in model."""
    if not completed.input_tokens and not completed.output_tokens:
        return ""
    cached = f" ({completed.cached_tokens:,} cached)" if completed.cached_tokens else ""
    cost = f", {dollars(completed.cost_usd)}" if completed.cost_usd else ""
    return f"{completed.input_tokens:,} tokens in{cached}, {completed.output_tokens:,} out{cost}"


def remarks(total: gateway_pb2.UsageSum) -> list[str]:
    found = []
    if total.unpriced_requests:
        found.append(
            f"{total.unpriced_requests:,} requests are of models without a known price: set "
            "[agent.prices] in runner.toml"
        )
    if total.uncertain_requests:
        found.append(
            f"{total.uncertain_requests:,} requests are estimated, or counted with the most that "
            "they could take: their provider reported nothing, or their end was not seen"
        )
    return found


def first_day(since: str, option: str = "--since") -> str:
    """The day that `2026-11-22` or `7d` names; empty for `all`."""
    if since == "all":
        return ""
    with suppress(ValueError, OverflowError):
        if days := _DAYS.fullmatch(since):
            return (today() - timedelta(days=int(days[1]) - 1)).isoformat()
        return date.fromisoformat(since).isoformat()
    raise typer.BadParameter(
        f"{option}: {since!r} is not accepted; write a day such as 2026-11-22, 7d or all"
    )


def _show_everybody(options: Options, first: str, *, json: bool) -> None:
    found = asyncio.run(_of_everybody(options, first))
    if json:
        print_json(
            [
                {"user_id": user_id, "running": reply is not None}
                | (_as_json(reply, "day") if reply else {})
                for user_id, reply in found
            ]
        )
        return
    rows = [
        (user_id, *(_amounts(reply.total) if reply else ("not running", "", "", "", "")))
        for user_id, reply in found
    ]
    print_table(table_of("user", *_AMOUNTS, rows=rows))


async def _of_everybody(
    options: Options, first: str
) -> list[tuple[str, gateway_pb2.GetUsageReply | None]]:
    """What each user took; None for a user whose agent does not run."""
    found = []
    for user_id in known_users(options.load()):
        reply = None
        with suppress(WireError):
            async with await connect(replace(options, user_id=user_id)) as agent:
                reply = await agent.usage(gateway_pb2.GetUsageRequest(since=first))
        found.append((user_id, reply))
    return found


def _as_json(reply: gateway_pb2.GetUsageReply, by: str) -> dict[str, Any]:
    keys = f"{by}=key? {'title? ' if by == 'session' else ''}{SHAPES[gateway_pb2.UsageSum]}"
    sums = [as_json(each, keys) for each in reply.sums]
    budgets = list(map(as_json, reply.budgets))
    return {"sums": sums, "total": as_json(reply.total), "budgets": budgets}


def _name(each: gateway_pb2.UsageSum, by: str) -> str:
    if by != "session":
        return one_line(each.key)
    return one_line(f"{each.key} {each.title}") if each.key else "(forgotten)"


def _amounts(each: gateway_pb2.UsageSum) -> tuple[str, str, str, str, str]:
    cost = dollars(each.cost_usd)
    if each.unpriced_requests:
        cost = "not known" if each.unpriced_requests == each.requests else f"{cost} and more"
    counts = (each.requests, each.input_tokens, each.cached_tokens, each.output_tokens)
    requests, input_, cached, output = (f"{count:,}" for count in counts)
    return requests, input_, cached, output, cost


def _print_budgets(budgets: Sequence[gateway_pb2.Budget]) -> None:
    for each in budgets:
        typer.echo(_budget_line(each))


def _budget_line(each: gateway_pb2.Budget) -> str:
    money = each.setting.endswith(_MONEY)
    used, limit = (
        dollars(amount) if money else f"{amount:,.0f}" for amount in (each.used, each.limit)
    )
    line = f"{each.setting}: {used} of {limit} used"
    if each.resets_at:
        line += f"; begins anew on {to_the_second(each.resets_at)}"
    return line

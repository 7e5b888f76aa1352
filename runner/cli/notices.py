"""`runner notices`: what a person is told when no turn tells it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from rich.text import Text
from wire.errors import Code, WireError
from wire.v1 import control_pb2, gateway_pb2

from runner.cli.agent import ask_agent, ask_host, connecting
from runner.cli.options import Options
from runner.cli.output import Shape, lately, one_line, print_as_they_come
from runner.client.following import Connection
from runner.client.gateway import GatewayClient

CHAT: Final = "chat"
"""The surface that the greeting and the prompt of the chat are."""
NOTICES_MAX: Final = 100
_GREETED_MAX: Final = 3
_AWAY_S: Final = 2.0

NOTICES: Final = Shape[gateway_pb2.StoredNotice](
    {
        "when": lambda notice: lately(notice.created_at),
        "kind": lambda notice: one_line(notice.kind),
        "what": lambda notice: Text(one_line(notice.text), style="dim" if notice.read_at else ""),
    },
    "number kind text session_id turn_id note_id created_at read_at?",
)


def notice_line(notice: gateway_pb2.StoredNotice) -> str:
    return f"✉ {one_line(notice.kind)}: {one_line(notice.text)}"


async def greeting_of(agent: GatewayClient) -> list[str]:
    """The lines with which the chat tells, once, what is unread."""
    reply = await agent.notices(_GREETED_MAX, surface=CHAT)
    if not reply.notices:
        return []
    await agent.mark_notices(CHAT, reply.notices[0].number)
    more = reply.unread - len(reply.notices)
    hint = f"{more} more unread: /notices" if more else "/notices shows what is unread"
    return [*map(notice_line, reversed(reply.notices)), hint]


def show_notices(options: Options, *, everything: bool, read: bool, json: bool) -> None:
    """Print the notices that are unread, or the newest ones; `read` marks them."""

    async def ask(agent: GatewayClient) -> list[gateway_pb2.StoredNotice]:
        found = list((await agent.notices(NOTICES_MAX, unread=not everything)).notices)
        if read and found:
            await agent.mark_notices(read_up_to=found[0].number)
        return found

    NOTICES.show(
        ask_agent(options, ask),
        json=json,
        none="there is none" if everything else "nothing is unread",
    )


SENT: Final = Shape[control_pb2.NoticeSent](
    {
        "to": lambda sent: sent.to,
        "": lambda sent: one_line(sent.problem) or "sent",
    },
    "to problem",
)


def test_notices(options: Options, *, json: bool) -> bool:
    """Send one message to each address of the settings; whether all were sent."""
    sent = ask_host(options, lambda host: host.test_notices())
    SENT.show(sent, json=json)
    return not any(each.problem for each in sent)


def follow_notices(options: Options, surface: str, *, json: bool) -> None:
    """Print notices as they come, until Ctrl-C; also those of an agent that was started again."""

    async def lines() -> AsyncGenerator[str, None]:
        async with Connection(connecting(options)) as connection:
            while True:
                try:
                    async with aclosing(connection.client.follow_notices(surface)) as notices:
                        async for notice in notices:
                            yield NOTICES.line(notice, json=json)
                except WireError as error:
                    if error.code is not Code.UNAVAILABLE:
                        raise
                await asyncio.sleep(_AWAY_S)
                await connection.open()

    print_as_they_come(lines())

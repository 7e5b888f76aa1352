"""What is unread goes to the addresses of its user, each a surface of the outbox of its own.

A message is sent before it counts as told: at least once, and twice if the host ends between. All
that is new goes into one message, and each pause after one is longer than the last while there is
more: a thousand notices in an hour are a dozen messages.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import grpc
from wire.egress.forwarder import EgressAddress, Forwarder
from wire.endpoint import Endpoint
from wire.errors import WireError
from wire.identity import Peer
from wire.text import shortened, visible_name
from wire.v1 import control_pb2, gateway_pb2

from runner.client.gateway import GatewayClient
from runner.notices.addresses import Address
from runner.notices.sending import send

log = logging.getLogger(__name__)

PAUSE_FIRST_S: Final = 15.0
PAUSE_MAX_S: Final = 900.0
_PAGE: Final = 100
_SHOWN: Final = 5
_SHOWN_CHARS: Final = 300


@dataclass(repr=False, eq=False)
class Delivery:
    """The deliveries of one user. `agent` gives the connection to the agent, and `egress` the
    agent's egress as the runner calls it; both raise `WireError` while there is none."""

    user_id: str
    agent: Callable[[], Awaitable[grpc.aio.Channel]]
    egress: Callable[[], Awaitable[Peer]]

    def __post_init__(self) -> None:
        self._ca_pem = ""
        self._problems: dict[Address, str] = {}
        self._tasks: dict[Address, asyncio.Task[None]] = {}

    async def serve(self, addresses: Iterable[Address], ca_pem: str = "") -> None:
        """Deliver to these addresses, and to no other one any more; `ca_pem` is trusted, too."""
        await self.close()
        self._ca_pem = ca_pem
        self._tasks = {each: asyncio.create_task(self._deliver(each)) for each in addresses}

    async def close(self) -> None:
        """Deliver nothing any more. Idempotent."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
        self._problems.clear()

    def problems(self) -> list[str]:
        """To which addresses nothing gets through, and why."""
        return [
            f"notices do not reach {address.variable}: {why}"
            for address, why in self._problems.items()
        ]

    async def test(self) -> list[control_pb2.NoticeSent]:
        """Send one message to each address; what became of it."""
        addresses = list(self._tasks)
        text = "This is a test: what your agent has to tell you comes here."
        found = await asyncio.gather(*(self._send(each, "a test", text) for each in addresses))
        return [
            control_pb2.NoticeSent(to=address.variable, problem=why)
            for address, why in zip(addresses, found, strict=True)
        ]

    async def _deliver(self, address: Address) -> None:
        pause = 0.0
        while True:
            try:
                agent = GatewayClient(await self.agent(), "host")
                page = await agent.notices(_PAGE, surface=address.surface)
                if not page.notices:
                    pause = 0.0
                    async with aclosing(agent.follow_notices(address.surface)) as news:
                        await anext(news)
                    continue
                if not await self._send(address, *message(page)):
                    await agent.mark_notices(address.surface, page.notices[0].number)
            except (WireError, StopAsyncIteration) as error:
                log.info("notices wait for the agent: %s", error)
            except Exception:
                log.exception("unexpected failure of a delivery of notices")
            pause = min(max(2 * pause, PAUSE_FIRST_S), PAUSE_MAX_S)
            await asyncio.sleep(pause)

    async def _send(self, address: Address, what: str, text: str) -> str:
        """Returns why it was not sent; empty if it was."""
        refused: list[str] = []
        try:
            egress = await self.egress()
            forwarder = Forwarder(egress.identity)
            place = Endpoint.of_target(egress.endpoint, egress.launch_id)
            forwarder.egress = EgressAddress(place, egress.token, egress.name)
            port = forwarder.open("", "", refused.append)
            try:
                title = f"Oxydra ({self.user_id}): {what}"
                why = await send(address.url, title, text, proxy=port.url, ca_pem=self._ca_pem)
            finally:
                port.close()
        except WireError as error:
            why = error.brief
        except OSError as error:
            why = error.strerror or str(error)
        if not why:
            self._problems.pop(address, None)
            return ""
        why = refused[-1] if refused else why
        log.warning("notices do not reach %s: %s", address.variable, why)
        if address in self._tasks:
            self._problems[address] = why
        return why


def message(page: gateway_pb2.ListNoticesReply) -> tuple[str, str]:
    """What a message says of these notices, which are the newest first: in a few words, and all."""
    newest = page.notices[:_SHOWN]
    lines = [
        f"{visible_name(each.kind)}: {shortened(each.text, _SHOWN_CHARS)}"
        for each in reversed(newest)
    ]
    count = len(page.notices)
    if more := count - len(newest):
        lines.append(f"{more}{'+' if page.before else ''} more: runner notices")
    return f"{count} notice{'' if count == 1 else 's'}", "\n".join(lines)

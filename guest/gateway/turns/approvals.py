"""Calls that wait for a person, and calls of a client's tools that wait for the client.

Any client of the user may decide on a call; the first one does.
"""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from wire.errors import Code
from wire.limits import ALWAYS
from wire.v1 import gateway_pb2 as pb

from guest.agent.turn import Answer, Emit
from guest.errors import GuestError
from guest.memory.models import at, now
from guest.tools.arguments import asked_text
from guest.tools.base import Offer
from guest.tools.grants import Grants, session

OPEN_MAX: Final = 256
"""How many calls may wait at once."""


@dataclass(eq=False)
class Approval:
    """A call that waits. `request` is what a person is shown, `decided` what came of it, and what
    those who follow are shown then. `offers` is what they can allow besides."""

    request: pb.ApprovalRequested
    offers: tuple[Offer, ...] = ()
    decided: "asyncio.Future[pb.ApprovalDecided]" = field(default_factory=asyncio.Future)


class Approvals:
    """The open approvals of one user; each is refused after `wait_s` seconds without an answer.
    What a person allows for a session is kept in `grants`."""

    def __init__(self, wait_s: float, grants: Grants | None = None) -> None:
        self.grants: Final = grants or Grants()
        self._open: dict[str, Approval] = {}
        self.wait_s: Final = wait_s
        self.on_ask: Callable[[Approval], None] = lambda _: None

    def ask(self, request: pb.ApprovalRequested, offers: tuple[Offer, ...] = ()) -> Approval:
        """Begin to wait for a decision; completes `request`, which says what a tool asks, and for
        whom. Raises RESOURCE_EXHAUSTED where `OPEN_MAX` wait."""
        if len(self._open) >= OPEN_MAX:
            raise GuestError(
                Code.RESOURCE_EXHAUSTED,
                f"{OPEN_MAX} calls wait for a person already",
                resolution="decide on some of them, or cancel their turns",
            )
        expires = datetime.now(UTC) + timedelta(seconds=self.wait_s)
        request.approval_id = f"approval-{uuid.uuid4()}"
        request.text = asked_text(request.tool, request.arguments_json, request.question)
        request.requested_at, request.expires_at = now(), at(expires)
        request.offers.extend(each.text for each in offers)
        approval = self._open[request.approval_id] = Approval(request, offers)
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(self.wait_s, self._settle, approval, "expiry")
        approval.decided.add_done_callback(lambda _: expiry.cancel())
        self.on_ask(approval)
        return approval

    async def decide(self, request: pb.DecideRequest) -> bool:
        """Decide for a person; false if nobody waits for this any more. With an `offer` they allow
        that one of the offers, from 1 on; it is kept before the call runs, unless it is the
        runner's to keep.

        Raises `GuestError`: INVALID_ARGUMENT for what is not offered, or else as `Grants.give`.
        """
        approved, channel, offer = request.approved, request.channel, request.offer
        approval = self._open.get(request.approval_id)
        if approval is None:
            return False
        offered = [each for each in approval.offers if not request.limited or each.text != ALWAYS]
        if offer and not (approved and offer <= len(offered)):
            raise GuestError(
                Code.INVALID_ARGUMENT,
                f"bad offer: {offer}" if approved else "who refuses a call allows nothing",
                details=f"of this call {len(offered)} are offered",
            )
        if now() >= approval.request.expires_at:  # timers stand while a machine sleeps
            self._settle(approval, "expiry")
            return False
        granted = ""
        if offer:
            chosen = offered[offer - 1]
            granted = chosen.text
        if offer and chosen.mark:
            scope = session(approval.request.session_id)
            given = await self.grants.give(scope, [chosen], channel=channel)
            if approval.decided.done():  # meanwhile
                await self.grants.withdraw(given[0].grant_id, channel)
                return False
        self._settle(approval, "person", approved=approved, channel=channel, granted=granted)
        return True

    def withdraw(self, approval: Approval) -> None:
        """Nobody waits for this approval any more. Changes nothing once it is decided."""
        self._settle(approval, "cancelled")

    def list(self) -> list[pb.ApprovalRequested]:
        """What waits, oldest first."""
        return [approval.request for approval in self._open.values()]

    def _settle(self, approval: Approval, by: str, **decided: Any) -> None:
        approval_id = approval.request.approval_id
        self._open.pop(approval_id, None)
        if not approval.decided.done():
            how = pb.ApprovalDecided(approval_id=approval_id, by=by, **decided)
            approval.decided.set_result(how)


class ClientCalls:
    """The calls of all turns that wait; each for `wait_s` seconds at most."""

    def __init__(self, wait_s: float) -> None:
        self._open: dict[tuple[str, str], asyncio.Future[Answer]] = {}
        self.wait_s: Final = wait_s

    async def ask(self, turn_id: str, call: pb.ClientCall, emit: Emit) -> Answer | None:
        """Tell the client of a call, and wait for its answer; None if there is none in time."""
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        place = (turn_id, call.call_id)
        self._open[place] = waiting
        call.expires_at = at(datetime.now(UTC) + timedelta(seconds=self.wait_s))
        try:
            await emit(call)
            async with asyncio.timeout(self.wait_s):
                return await waiting
        except TimeoutError:
            return None
        finally:
            del self._open[place]

    def answer(self, turn_id: str, call_id: str, answer: Answer) -> bool:
        """Answer a call; false if nobody waits for that any more."""
        waiting = self._open.get((turn_id, call_id))
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

"""One conversation with the agent: sessions, turns, approvals, and lost connections."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Self

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.agent import session_to_use
from runner.cli.chat.answer import ModelText
from runner.cli.chat.calls import Calls, call_begun, call_line, folded, question
from runner.cli.chat.receipts import by_event, receipt_line, show_receipts
from runner.cli.chat.screen import Screen, Style
from runner.cli.output import clip, failure_lines, one_line
from runner.cli.usage import turn_line
from runner.client.gateway import GatewayClient, GatewayLost, new_turn_id

Connect = Callable[[], Awaitable[GatewayClient]]
"""Connects to the current launch. Raises `WireError`, UNAVAILABLE while there is none."""

RECONNECT_WITHIN_S = 60.0
_RECONNECT_EVERY_S = 0.25
_INTERRUPTED = (
    "✗ the agent went away in mid-turn: the turn was interrupted and has no answer\n"
    "  fix: what it had saved by then is kept; send the turn again if you still want it"
)
_NOT_KNOWN = "? what memory did in this turn is not known here; `runner memory history` lists it"
_NOT_STORED = "? no change of memory is stored for this turn"
_THINKING = "thinking"
_ANSWERING = "answering"
_SHOWN_EVENTS = 6
_SHOWN_EVENT_CHARS = 300


class AgentGoneError(WireError):
    """The agent did not come back, so the conversation is over."""


class Conversation:
    """What every surface does with the gateway.

    Turns run one at a time; `cancel` may be called while one runs. The first turn opens a new
    session, so that only looking around creates none. If the agent is gone, the conversation waits
    `reconnect_within_s` seconds for it. `mended` makes fixes name whose agent they are for.

    Attributes:
        session_id: The current session; empty before the first turn.
        last_message: What the user said last in the current session; empty if nothing.
        calls: The tool calls of the last turn.
        model: The model that turns ask for; empty: the configured one.
    """

    def __init__(
        self,
        connect: Connect,
        screen: Screen,
        reconnect_within_s: float = RECONNECT_WITHIN_S,
        *,
        mended: Callable[[str], str] = str,
    ) -> None:
        self._connect = connect
        self._screen = screen
        self._reconnect_within_s = reconnect_within_s
        self._mended = mended
        self._client: GatewayClient | None = None
        self._turn_id = ""
        self._began = False
        self.session_id = ""
        self.last_message = ""
        self.model = ""
        self.calls = Calls()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client(self) -> GatewayClient:
        """The current connection. There is one while the conversation is entered."""
        assert self._client is not None
        return self._client

    async def open(self) -> None:
        """Connect to the agent, and wait for one that is restarting."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._reconnect_within_s
        while True:
            try:
                client = await self._connect()
                break
            except WireError as error:
                if error.code is not Code.UNAVAILABLE or loop.time() > deadline:
                    raise
                await asyncio.sleep(_RECONNECT_EVERY_S)
        await self.close()
        self._client = client

    async def close(self) -> None:
        """Close the connection. Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def new_session(self, title: str) -> gateway_pb2.Session:
        """Create a session and make it the current one."""
        session = await self.client.create_session(title=title)
        self.session_id = session.session_id
        self.last_message = ""
        return session

    async def resume_or_create(self, given: str | None, *, last: bool = False) -> None:
        """Make the session that is meant the current one, and show its end if it has one; see
        `session_to_use`."""
        self.session_id = await session_to_use(self.client, given, last=last)
        await self.switch(self.session_id)

    async def switch(self, session_id: str) -> None:
        """Continue an existing session. Raises NOT_FOUND."""
        history = await self.client.get_session(session_id, _SHOWN_EVENTS)
        self.session_id = history.session.session_id
        said = [event.text for event in history.events if event.role == "user"]
        self.last_message = said[-1] if said else ""
        for event, receipts in by_event(history):
            await self._show_past(event)
            for receipt in receipts:
                await self._screen.status(receipt_line(receipt))

    async def ensure_connected(self) -> None:
        """Reconnect if the launch behind the connection is gone.

        Raises `AgentGoneError` if none comes back in time.
        """
        try:
            await self.client.refresh_hello()
        except GatewayLost:
            await self._reconnect()

    async def retry(self) -> bool:
        """Go on with the last answer if it is incomplete, else ask the last question again. Returns
        and raises like `turn`."""
        return await self.turn("", retry=True)

    async def turn(self, text: str, *, retry: bool = False) -> bool:
        """Run one turn and show it. False if it failed, broke off, was cut short or cancelled.

        Raises `AgentGoneError` if the agent does not come back.
        """
        await self.ensure_connected()
        try:
            return await self._run(text, retry=retry)
        except GatewayLost:
            await self._screen.line(_INTERRUPTED, Style.FAILURE)
            await self._reconnect()
            await self._show_stored_receipts()
        except WireError as error:
            await self._screen.line(self.failure(error.brief, error.resolution), Style.FAILURE)
            if self._began:
                await self._show_stored_receipts()
            else:
                await show_receipts(self._screen, ())
        except asyncio.CancelledError:
            await self._screen.line(_NOT_KNOWN, Style.FAILURE)
            raise
        finally:
            self._turn_id = ""
            await self._screen.activity("")
        return False

    def failure(self, brief: str, resolution: str) -> str:
        """What went wrong, and the fix for this user."""
        return failure_lines(brief, self._mended(resolution))

    async def cancel(self) -> bool:
        """Cancel the running turn. False if none runs."""
        return bool(self._turn_id) and await self.client.cancel_turn(self._turn_id)

    async def _run(self, text: str, *, retry: bool) -> bool:
        if not self.session_id:
            await self.new_session("")
        self.last_message = text or self.last_message
        self._turn_id = new_turn_id()
        streamed = self._began = False
        self.calls = Calls()
        await self._screen.activity(_THINKING)
        turn = self.client.run_turn(self.session_id, text, self._turn_id, self.model, retry=retry)
        async with aclosing(turn) as events:
            async for event in events:
                self._began = True
                if event.HasField("completed") and not streamed:
                    await self._screen.stream(event.completed.text)
                streamed |= event.HasField("text")
                await self._show(event)
        return event.HasField("completed")

    async def _show(self, event: gateway_pb2.TurnEvent) -> None:
        if event.HasField("text"):
            await self._screen.activity(_ANSWERING)
            await self._screen.stream(event.text.text)
        elif event.HasField("notice"):
            await self._screen.status(one_line(event.notice.text))
        elif event.HasField("tool_started"):
            self.calls.begin(event.tool_started)
            await self._screen.activity(call_begun(event.tool_started))
        elif event.HasField("tool_finished"):
            await self._show_call(event.tool_finished)
        elif event.HasField("approval"):
            approval = event.approval
            approved = await self._screen.ask(question(approval, self._screen.width))
            if not await self.client.answer_approval(approval.approval_id, approved):
                await self._screen.line("nobody waits for this answer any more", Style.NOTICE)
        elif event.HasField("failed"):
            failed = event.failed
            message = "cancelled" if failed.code == Code.CANCELLED else failed.message
            await self._screen.line(self.failure(message, failed.resolution), Style.FAILURE)
            await show_receipts(self._screen, failed.receipts)
        elif event.HasField("incomplete"):
            ended = event.incomplete
            await self._screen.line(self.failure(ended.message, ended.resolution), Style.FAILURE)
            await show_receipts(self._screen, ended.so_far.receipts)
            await self._show_cost(ended.so_far)
        elif event.HasField("completed"):
            await show_receipts(self._screen, event.completed.receipts)
            await self._show_cost(event.completed)

    async def _show_cost(self, ended: gateway_pb2.TurnCompleted) -> None:
        if took := turn_line(ended):
            await self._screen.status(took)

    async def _show_call(self, finished: gateway_pb2.ToolCallFinished) -> None:
        width = self._screen.width
        style = Style.TOOL if finished.ok else Style.FAILURE
        await self._screen.line(call_line(self.calls.end(finished), width), style)
        if output := folded(finished.output, width):
            await self._screen.aside(output)
        await self._screen.activity(_THINKING)

    async def _show_past(self, event: gateway_pb2.HistoryEvent) -> None:
        text = clip(one_line(event.text), _SHOWN_EVENT_CHARS)
        if event.role == "user":
            await self._screen.status(f"> {text}")
        elif event.role == "assistant" and text:
            await self._screen.status(ModelText().marked(text))
            if event.incomplete:
                await self._screen.status("(incomplete; /retry goes on with it)")

    async def _show_stored_receipts(self) -> None:
        """Show what the store knows of the last turn, which ended without an outcome."""
        try:
            history = await self.client.get_session(self.session_id, _SHOWN_EVENTS)
        except WireError:
            await self._screen.line(_NOT_KNOWN, Style.FAILURE)
            return
        stored = [each for each in history.receipts if each.turn_id == self._turn_id]
        if stored:
            await show_receipts(self._screen, stored)
        else:
            await self._screen.line(_NOT_STORED, Style.FAILURE)

    async def _reconnect(self) -> None:
        await self._screen.status("the agent went away; waiting for it to come back ...")
        try:
            await self.open()
        except WireError as error:
            raise AgentGoneError(
                error.code,
                f"the agent did not come back: {error.brief}",
                details=error.details,
                resolution=error.resolution,
            ) from error
        await self._screen.status("connected again")

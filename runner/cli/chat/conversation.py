"""One conversation with the agent: sessions, turns, approvals, and lost connections."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Self

from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.cli.chat.calls import (
    by_event,
    call_begun,
    call_line,
    folded,
    question,
    show_files,
    show_past,
    show_receipts,
)
from runner.cli.chat.screen import Screen, Style
from runner.cli.output import failure_lines, one_line
from runner.cli.usage import turn_line
from runner.client.following import (
    RECONNECT_EVERY_S,
    RECONNECT_WITHIN_S,
    Connect,
    Connection,
    followed,
    started,
)
from runner.client.gateway import GatewayClient, GatewayLost, new_turn_id, wording
from runner.client.turn import ToolCall, TurnSoFar, files_of

INTERRUPT = "interrupted by the person"
"""Why a task is cancelled by Ctrl-C: not only the talk ends, but also the turn."""
GOES_ON = "the turn goes on without this chat; what comes of it: runner chat --session {session}"
_ENDS = (
    "the turn ends with this chat, which runs the agent; `runner start --detach` keeps it running"
)
_NOT_KNOWN = "? what memory did in this turn is not known here; `runner memory history` lists it"
_NOT_STORED = "? no change of memory is stored for this turn"
_MAY_HAVE_BEGUN = frozenset({Code.TIMEOUT, Code.INTERNAL, Code.UNAVAILABLE})
_THINKING = "thinking"
_ANSWERING = "answering"
_RETRY = "/retry goes on with it"
_SHOWN_EVENTS = 100
_SHOWN_TURNS = 5
_FORGET_WITHIN_S = 5.0
_ERASED = "✓ erased: {turns} of the temporary conversation; nothing of it was ever stored"
_OVER = "✓ erased before: the temporary conversation was over; nothing of it was ever stored"
_NOT_ERASED = "? the temporary conversation was not ended ({why}); the agent ends it within an hour"
_WAS_OVER = (
    "the temporary conversation is over and erased: its agent has ended, or nothing was said for "
    "an hour. This message was not sent"
)


class AgentGoneError(WireError):
    """The agent did not come back, so the conversation is over."""


class Conversation:
    """What every surface does with the gateway.

    Turns run one at a time; `cancel` may be called while one runs. The first turn opens a new
    session, so that only looking around creates none. If the agent is gone, the conversation waits
    `reconnect_within_s` seconds for it. `mended` makes fixes name whose agent they are for.
    `agent_stays` says whether the agent outlives the chat.

    Attributes:
        session_id: The current session; empty before the first turn.
        last_message: What the user said last in the current session; empty if nothing.
        last_turn: What is known of the last turn.
        model: The model that turns ask for; empty: the configured one.
        temporary: Whether nothing is kept of the current session.
        undone: The turns whose changes of memory were undone here.
    """

    def __init__(
        self,
        connect: Connect,
        screen: Screen,
        reconnect_within_s: float = RECONNECT_WITHIN_S,
        *,
        mended: Callable[[str], str] = str,
        agent_stays: bool = True,
    ) -> None:
        self._connection = Connection(connect, reconnect_within_s)
        self._screen = screen
        self.mended = mended
        self._agent_stays = agent_stays
        self._turn_id = ""
        self.project = ""
        """In which new sessions work."""
        self._reconnected = False
        self._questions: dict[str, asyncio.Task[None]] = {}
        self.session_id = ""
        self.last_message = ""
        self.model = ""
        self.temporary = False
        self.undone: set[str] = set()
        self._before = ""
        self.attachments: list[str] = []
        """The files that go with the next message, by their paths for tools."""
        self.last_turn = TurnSoFar()

    async def __aenter__(self) -> Self:
        await self._connection.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def client(self) -> GatewayClient:
        """The current connection. There is one while the conversation is entered."""
        return self._connection.client

    async def close(self) -> None:
        """End a temporary conversation, and close the connection. Idempotent."""
        await self.end_temporary()
        await self._connection.close()

    async def begin_temporary(self) -> None:
        """Begin a conversation that nothing is kept of, and make it the current one."""
        await self.ensure_connected()
        await self.end_temporary()
        session = await self.client.create_session(temporary=True, project=self.project)
        self._before, self.temporary = self.session_id, True
        self.session_id, self.last_message = session.session_id, ""

    async def end_temporary(self) -> None:
        """Erase the current conversation if it is temporary, go back to the one before, and say
        what came of it."""
        if not self.temporary:
            return
        ended, self.session_id, self.temporary = self.session_id, self._before, False
        self.last_message = ""
        try:
            async with asyncio.timeout(_FORGET_WITHIN_S):
                turns = (await self.client.get_session(ended, 1)).session.turns
                await self.client.forget_session(ended)
            told = _ERASED.format(turns=f"{turns} turn{'' if turns == 1 else 's'}")
        except (WireError, TimeoutError) as error:
            if isinstance(error, WireError) and error.code is Code.NOT_FOUND:
                await self._screen.line(_OVER, Style.RECEIPT)
                return
            why = error.brief if isinstance(error, WireError) else "no answer"
            await self._screen.line(_NOT_ERASED.format(why=one_line(why)), Style.FAILURE)
            return
        await self._screen.line(told, Style.RECEIPT)

    async def new_session(self, title: str) -> gateway_pb2.Session:
        """Create a session and make it the current one; a temporary one ends."""
        await self.end_temporary()
        session = await self.client.create_session(title=title, project=self.project)
        self.session_id = session.session_id
        self.last_message = ""
        return session

    async def switch(self, session_id: str) -> None:
        """Continue an existing session, of which `attach` shows the running turn; a temporary one
        ends. Shows the last turns as they looked. Raises NOT_FOUND."""
        history = await self.client.get_session(session_id, _SHOWN_EVENTS)
        await self.end_temporary()
        self.session_id = history.session.session_id
        running = {turn.turn_id for turn in await self._running()}
        said = [event.text for event in history.events if event.role == "user"]
        self.last_message = said[-1] if said else ""
        turns = list(dict.fromkeys(event.turn_id for event in history.events))
        if history.before and len(turns) > 1:
            del turns[0]  # its beginning is missing
        shown = turns[-_SHOWN_TURNS:]
        past = self._screen.past
        if (earlier := history.session.turns - len(shown)) > 0:
            await past.line(
                f"… {earlier:,} earlier turn{'' if earlier == 1 else 's'}", Style.NOTICE
            )
        for event, receipts, files in by_event(history):
            if event.turn_id not in shown or (event.turn_id in running and event.role != "user"):
                continue
            if event.role == "user" and event.turn_id != shown[0]:
                await past.line("")
            for receipt in history.receipts:
                if receipt.turn_id == event.turn_id:
                    past.receipted(receipt.note_id)
            await show_past(past, event)
            await show_files(past, files)
            if receipts:
                await show_receipts(past, receipts)
        if shown:
            await past.line("")

    async def ensure_connected(self) -> None:
        """Reconnect if the launch behind the connection is gone.

        Raises `AgentGoneError` if none comes back in time.
        """
        try:
            await self.client.refresh_hello()
        except GatewayLost:
            await self._reconnect()

    async def turn(self, text: str, *, retry: bool = False) -> bool:
        """Run one turn and show it; with `retry` go on with the last answer if it is incomplete,
        else ask the last question again. False if it failed, broke off, was cut short or cancelled.

        Raises `AgentGoneError` if the agent does not come back.
        """
        await self.ensure_connected()
        if self.temporary:
            await self._require_temporary()
        if not self.session_id:
            await self.new_session("")
        self.last_message = text or self.last_message
        turn_id = new_turn_id()
        request = gateway_pb2.StartTurnRequest(
            session_id=self.session_id,
            text=text,
            turn_id=turn_id,
            model=self.model,
            retry=retry,
            attachments=() if retry else self.attachments,
        )
        if not retry:
            self.attachments = []
        return await self._shown(turn_id, request)

    async def _require_temporary(self) -> None:
        """Raise `WireError` if the temporary conversation is over: what is said in it must not be
        said anywhere else."""
        try:
            await self.client.get_session(self.session_id, 1)
        except WireError as error:
            if error.code is not Code.NOT_FOUND:
                raise
            raise WireError(
                Code.FAILED_PRECONDITION,
                _WAS_OVER,
                resolution="/temporary leaves it; once more begins another",
            ) from None

    async def attach(self) -> bool:
        """Follow the session's running turn, if there is one. Returns and raises like `turn`."""
        for turn in await self._running():
            await self._screen.status("a turn runs in this session:")
            return await self._shown(turn.turn_id)
        return True

    def failure(self, brief: str, resolution: str, details: str = "") -> str:
        """What went wrong, why, and the fix for this user."""
        return failure_lines(brief, self.mended(resolution), details)

    async def cancel(self) -> bool:
        """Cancel the running turn. False if none runs."""
        return bool(self._turn_id) and await self.client.cancel_turn(self._turn_id)

    async def _running(self) -> list[gateway_pb2.Turn]:
        if not self.session_id:
            return []
        return await self.client.list_turns(self.session_id, running_only=True)

    async def _shown(
        self, turn_id: str, request: gateway_pb2.StartTurnRequest | None = None
    ) -> bool:
        """Show a turn to its end: the one that `request` starts, or one that runs."""
        self._turn_id, self.last_turn, self._reconnected = turn_id, TurnSoFar(), False
        begun = request is None
        await self._screen.activity(_THINKING)
        try:
            agent = self.client
            if request is not None:
                agent = await started(agent, request, self._reconnect)
                begun = True
            return await self._follow(agent, turn_id, own=request is not None)
        except AgentGoneError:
            raise
        except WireError as error:
            await self._screen.line(self.failure(error.brief, error.resolution), Style.FAILURE)
            if begun or error.code in _MAY_HAVE_BEGUN:  # else memory cannot have changed
                await self._screen.line(_NOT_KNOWN, Style.FAILURE)
            return False
        except asyncio.CancelledError as error:
            told = self.mended(GOES_ON.format(session=one_line(self.session_id)))
            if INTERRUPT in error.args and await self.client.cancel_turn(turn_id):
                told = "the turn is cancelled"
            elif self.temporary:
                told = "the turn ends with this temporary conversation"
            elif not self._agent_stays:
                told = _ENDS
            await self._screen.line(told, Style.NOTICE)
            raise
        finally:
            self._turn_id = ""
            for asking in self._questions.values():
                asking.cancel()
            self._questions.clear()
            await self._screen.activity("")

    async def _follow(self, agent: GatewayClient, turn_id: str, *, own: bool) -> bool:
        async with aclosing(followed(agent, turn_id, self._reconnect)) as events:
            async for event in events:
                if event.HasField("completed"):
                    whole, said = event.completed.text, self.last_turn.text
                    if not said or (self._reconnected and not said.endswith(whole)):
                        await self._screen.stream(whole)
                await self._show(event, self.last_turn.add(event), own=own)
        return event.HasField("completed")

    async def _show(
        self, event: gateway_pb2.TurnEvent, call: ToolCall | None, *, own: bool
    ) -> None:
        if event.HasField("text"):
            await self._screen.activity(_ANSWERING)
            await self._screen.stream(event.text.text)
        elif event.HasField("notice"):
            await self._screen.status(one_line(event.notice.text))
        elif event.HasField("receipt"):
            self._screen.receipted(event.receipt.note_id)
        elif event.HasField("tool_started"):
            await self._screen.activity(call_begun(event.tool_started))
        elif event.HasField("tool_finished") and call is not None:
            await self._show_call(call)
        elif event.HasField("approval"):
            asking = asyncio.create_task(self._ask(event.approval, own=own))
            self._questions[event.approval.approval_id] = asking
        elif event.HasField("decided"):
            await self._show_decision(event.decided)
        elif event.HasField("failed"):
            failed = event.failed
            message = "cancelled" if failed.code == Code.CANCELLED else failed.message
            shown = self.failure(message, failed.resolution, failed.details)
            await self._screen.line(shown, Style.FAILURE)
            if failed.code == "interrupted" and not failed.receipts:
                await self._screen.line(_NOT_STORED, Style.FAILURE)
            else:
                await self._show_receipts(failed.receipts, files_of(event))
        elif event.HasField("incomplete"):
            ended = event.incomplete
            fix = ended.resolution if ended.reason in ("filtered", "repeated") else _RETRY
            await self._screen.line(self.failure(ended.message, fix), Style.FAILURE)
            await self._show_receipts(ended.so_far.receipts, files_of(event))
            await self._show_cost(ended.so_far)
        elif event.HasField("completed"):
            await self._show_receipts(event.completed.receipts, files_of(event))
            await self._show_cost(event.completed)

    async def _ask(self, approval: gateway_pb2.ApprovalRequested, *, own: bool) -> None:
        """Let the person decide on an approval that is still open."""
        while True:
            try:
                is_open = approval in await self.client.list_approvals()
                if is_open and (own or self._screen.answers):
                    await self._decide(approval)
                elif is_open:
                    asked = one_line(wording(approval).split("\n", 1)[0])
                    await self._screen.status(f"{asked} waits for a person")
                return
            except GatewayLost:  # whoever follows the turn connects again
                await asyncio.sleep(RECONNECT_EVERY_S)
            except WireError as error:
                await self._screen.line(self.failure(error.brief, error.resolution), Style.FAILURE)
                return

    async def _decide(self, approval: gateway_pb2.ApprovalRequested) -> None:
        asked = question(approval, self._screen.width)
        answer = await self._screen.ask(asked, len(approval.offers))
        self._questions.pop(approval.approval_id, None)
        if not await self.client.decide(approval.approval_id, answer):
            await self._screen.line("nobody waits for this answer any more", Style.NOTICE)

    async def _show_decision(self, decided: gateway_pb2.ApprovalDecided) -> None:
        """Close the question of an approval that was not decided here, and say what came of it."""
        if (asking := self._questions.pop(decided.approval_id, None)) is None:
            return
        asking.cancel()
        await asyncio.wait([asking])
        done = "allowed" if decided.approved else "refused"
        granted = f", and in this session: {one_line(decided.granted)}" if decided.granted else ""
        how = {
            "person": f"{done} elsewhere ({one_line(decided.channel)}){granted}",
            "expiry": "refused: nobody has answered in time",
        }
        await self._screen.line(how.get(decided.by, "no longer asked"), Style.NOTICE)

    async def _show_receipts(
        self,
        receipts: Sequence[gateway_pb2.MemoryReceipt],
        files: gateway_pb2.FileChanges | None,
    ) -> None:
        """End a turn with what it changed. A temporary conversation cannot have changed memory."""
        await show_files(self._screen, files)
        if receipts or not self.temporary:
            await show_receipts(self._screen, receipts)

    async def _show_cost(self, ended: gateway_pb2.TurnCompleted) -> None:
        if took := turn_line(ended):
            await self._screen.status(took)

    async def _show_call(self, call: ToolCall) -> None:
        width = self._screen.width
        style = Style.TOOL if call.finished.ok else Style.FAILURE
        await self._screen.line(call_line(call, width), style)
        if output := folded(call.finished.output, width):
            await self._screen.aside(output)
        await self._screen.activity(_THINKING)

    async def _reconnect(self) -> GatewayClient:
        await self._screen.status("the agent went away; waiting for it to come back ...")
        try:
            await self._connection.open()
        except WireError as error:
            raise AgentGoneError(
                error.code,
                f"the agent did not come back: {error.brief}",
                details=error.details,
                resolution=error.resolution,
            ) from error
        await self._screen.status("connected again")
        self._reconnected = True
        return self.client

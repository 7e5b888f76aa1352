"""The registry of turns: one to a session, followed by anybody, cancellable, kept for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from wire.errors import Code, WireError
from wire.limits import ALWAYS
from wire.v1 import gateway_pb2

from guest.agent.turn import AskClient, Emit, Outcome, TurnRequest
from guest.errors import GuestError, StorageError, ToolError
from guest.gateway.turns.approvals import Approvals
from guest.gateway.turns.registry import KEPT_TURNS, RUNNING_MAX, Turn, Turns
from guest.memory.conversations.sessions import InUse
from guest.tools.base import Approve, Arguments, Offer, Safety, Tool, ToolContext, ToolOutput

Body = Callable[[TurnRequest, Emit, Approve | None], Awaitable[Outcome]]


class FakeLoop:
    def __init__(self, body: Body) -> None:
        self.body = body

    async def run(
        self,
        request: TurnRequest,
        emit: Emit,
        approve: Approve | None = None,
        ask_client: AskClient | None = None,
    ) -> Outcome:
        return await self.body(request, emit, approve)

    async def answer_untraced(self, request: TurnRequest, emit: Emit) -> Outcome:
        return await self.body(request, emit, None)


async def done(request: TurnRequest, _: Emit, __: Approve | None) -> Outcome:
    return gateway_pb2.TurnCompleted(text=request.text.upper())


async def forever(_: TurnRequest, emit: Emit, __: Approve | None) -> Outcome:
    await emit(gateway_pb2.TextDelta(text="so far"))
    await asyncio.sleep(60)
    raise AssertionError("unreachable")


class NothingStored:
    """Records of a store that has no turns."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    async def find(self, turn_id: str) -> None:
        return None

    async def latest(self, session_id: str) -> list[Any]:
        return []

    async def note_end(self, context: ToolContext, failed: gateway_pb2.TurnFailed) -> None:
        self.noted.append(failed.code)


class TurnsOfAlice(Turns):
    """Turns that `body` runs."""

    def __init__(
        self, body: Body, approvals: Approvals, records: Any = None, remembered_ids: int = 100
    ) -> None:
        records = records or NothingStored()
        super().__init__(InUse(), records, approvals, remembered_ids=remembered_ids)
        self._loop: Any = FakeLoop(body)

    async def begin(
        self, session: str, text: str, turn_id: str, channel: str, model: str = ""
    ) -> Turn:
        context = ToolContext("alice", session, turn_id, channel, asked=text)
        return await self.start(TurnRequest(context, text, model), self._loop)


def turns_of(
    body: Body, *, wait_s: float = 60.0, records: Any = None, remembered_ids: int = 100
) -> TurnsOfAlice:
    return TurnsOfAlice(body, Approvals(wait_s), records, remembered_ids)


async def read(turn: Turn) -> list[gateway_pb2.TurnEvent]:
    async def all_of() -> list[gateway_pb2.TurnEvent]:
        return [event async for event in turn.events.follow()]

    return await asyncio.wait_for(all_of(), 60)


async def refused(turns: TurnsOfAlice, session: str = "s1", turn_id: str = "") -> WireError:
    with pytest.raises(GuestError) as raised:
        await turns.begin(session, "hi", turn_id, "")
    return raised.value


async def test_a_turn_runs_from_started_to_outcome() -> None:
    turns = turns_of(done)
    turn = await turns.begin("s1", "hi", "", "chat")
    context = turn.request.context
    assert (context.user_id, context.session_id, context.channel) == ("alice", "s1", "chat")
    started, completed = await read(turn)
    assert started.started.session_id == "s1"
    assert completed.completed.text == "HI"
    assert started.turn_id == context.turn_id != ""


async def test_a_turn_id_is_never_used_twice() -> None:
    turns = turns_of(done)
    await read(await turns.begin("s1", "hi", "t1", ""))
    assert (await refused(turns, turn_id="t1")).code is Code.ALREADY_EXISTS
    assert (await refused(turns, "s2", turn_id="t1")).code is Code.ALREADY_EXISTS


async def test_the_memory_of_turn_ids_is_bounded() -> None:
    turns = turns_of(done, remembered_ids=3)
    for number in range(5):
        await read(await turns.begin("s1", "hi", f"t{number}", ""))
    await read(await turns.begin("s1", "hi", "t0", ""))
    assert (await refused(turns, turn_id="t4")).code is Code.ALREADY_EXISTS


async def test_cancelling_before_the_first_step_frees_the_session() -> None:
    turns = turns_of(forever)
    turn = await turns.begin("s1", "hi", "t1", "")
    assert turn.cancel()
    assert (await read(turn))[-1].failed.code == "cancelled"
    assert not turn.cancel()
    assert not turns.cancel("t1")
    assert not turns.cancel("never-was")


async def test_who_left_and_comes_back_waits_for_the_old_turn_to_be_recorded() -> None:
    recorded: list[str] = []

    async def body(request: TurnRequest, _: Emit, __: Approve | None) -> Outcome:
        try:
            await asyncio.sleep(60 if request.text == "first" else 0)
        finally:
            if request.text == "first":
                await asyncio.sleep(0.05)
            recorded.append(request.text)
        return gateway_pb2.TurnCompleted()

    turns = turns_of(body)
    first = await turns.begin("s1", "first", "", "")
    await asyncio.sleep(0)
    first.cancel()
    second = await turns.begin("s1", "second", "", "")
    assert recorded == ["first"]
    await read(second)


async def test_of_two_who_come_back_with_one_turn_id_one_is_refused() -> None:
    async def body(request: TurnRequest, _: Emit, __: Approve | None) -> Outcome:
        if request.text == "first":
            await asyncio.sleep(60)
        return gateway_pb2.TurnCompleted()

    turns = turns_of(body)
    for session in ("s1", "s2"):
        (await turns.begin(session, "first", "", "")).cancel()
    started = await asyncio.gather(
        turns.begin("s1", "second", "t1", ""),
        turns.begin("s2", "second", "t1", ""),
        return_exceptions=True,
    )
    (again,) = (turn for turn in started if isinstance(turn, Turn))
    (error,) = (turn for turn in started if isinstance(turn, WireError))
    assert error.code is Code.ALREADY_EXISTS
    await read(again)


@pytest.mark.parametrize(
    ("failure", "code", "message"),
    [
        (StorageError(Code.DATA_LOSS, "corrupt", resolution="x"), "data_loss", "corrupt"),
        (ZeroDivisionError("a secret"), "internal", "internal error"),
    ],
)
async def test_a_failing_loop_is_an_outcome(failure: Exception, code: str, message: str) -> None:
    async def body(*_: object) -> Outcome:
        raise failure

    turn = await turns_of(body).begin("s1", "hi", "", "")
    failed = (await read(turn))[-1].failed
    assert (failed.code, failed.message) == (code, message)


async def test_closing_interrupts_everything_and_starts_nothing_more() -> None:
    turns = turns_of(forever)
    running = [await turns.begin(f"s{number}", "hi", "", "") for number in range(3)]
    await asyncio.sleep(0)
    await turns.close()
    for turn in running:
        assert (await read(turn))[-1].failed.code == "interrupted"
    assert (await refused(turns)).code is Code.UNAVAILABLE


async def _nothing(_: ToolContext, __: Arguments) -> ToolOutput:
    return ToolOutput({})


RISKY = Tool("shell_exec", "Runs.", Arguments, Safety.PRIVILEGED, 1.0, _nothing)


async def asks(request: TurnRequest, _: Emit, approve: Approve | None) -> Outcome:
    assert approve is not None
    try:
        allowed = await approve(request.context, RISKY, '{"command": "ls"}')
    except ToolError as error:
        return gateway_pb2.TurnCompleted(text=str(error))
    return gateway_pb2.TurnCompleted(text="allowed" if allowed else "refused")


async def asked(turns: TurnsOfAlice) -> tuple[Turn, gateway_pb2.ApprovalRequested]:
    """A turn that waits for an approval."""
    turn = await turns.begin("s1", "hi", "", "web")
    async for event in turn.events.follow():
        if event.HasField("approval"):
            return turn, event.approval
    raise AssertionError("it asked nobody")


async def test_an_approval_is_withdrawn_with_its_turn() -> None:
    approvals = Approvals(60)
    turns = TurnsOfAlice(asks, approvals)
    turn, approval = await asked(turns)
    (listed,) = approvals.list()
    assert listed == approval
    assert (listed.session_id, listed.turn_id) == ("s1", turn.request.context.turn_id)
    assert listed.channel == "web"
    turn.cancel()
    *_, decided, failed = await read(turn)
    assert (decided.decided.by, decided.decided.approved) == ("cancelled", False)
    assert failed.failed.code == "cancelled"
    assert not approvals.list()
    assert not await approvals.decide(
        gateway_pb2.DecideRequest(approval_id=approval.approval_id, approved=True)
    )


async def test_what_is_the_operators_is_taken_by_nobody_else_and_is_no_grant() -> None:
    approvals = Approvals(60)
    offers = (Offer("here", "", ""), Offer(ALWAYS, "", ""))
    for limited in (True, False):
        approval = approvals.ask(
            gateway_pb2.ApprovalRequested(tool="network", arguments_json="{}", session_id="s"),
            offers,
        )
        request = gateway_pb2.DecideRequest(
            approval_id=approval.request.approval_id, approved=True, offer=2, limited=limited
        )
        if limited:
            with pytest.raises(GuestError, match="bad offer: 2"):
                await approvals.decide(request)
            request.offer = 1
        assert await approvals.decide(request)
        assert approval.decided.result().granted == ("here" if limited else ALWAYS)
    assert approvals.grants.list() == []


async def test_of_two_who_decide_at_once_the_first_does_and_all_are_told() -> None:
    approvals = Approvals(60)
    turns = TurnsOfAlice(asks, approvals)
    turn, approval = await asked(turns)
    assert turn.state == "waiting"
    assert await approvals.decide(
        gateway_pb2.DecideRequest(approval_id=approval.approval_id, approved=False, channel="web")
    )
    assert not await approvals.decide(
        gateway_pb2.DecideRequest(approval_id=approval.approval_id, approved=True, channel="cli")
    )
    events = await read(turn)
    assert events[-1].completed.text == "refused"
    (told,) = [event.decided for event in events if event.HasField("decided")]
    assert (told.by, told.channel, told.approved) == ("person", "web", False)
    assert turn.state == "completed"


async def test_an_approval_that_nobody_gives_is_refused_and_says_so() -> None:
    turns = turns_of(asks, wait_s=0.01)
    turn = await turns.begin("s1", "hi", "", "")
    *_, decided, completed = await read(turn)
    assert decided.decided.by == "expiry"
    assert "nobody answered within 0.01 seconds" in completed.completed.text


async def test_nobody_need_follow_and_everybody_may() -> None:
    turns = turns_of(done)
    await turns.begin("s1", "hi", "t1", "")
    await asyncio.sleep(0.01)
    for after in (0, 1, 2, 99):
        events = [event async for event in turns.follow("t1", after)]
        assert [event.index for event in events] == list(range(min(after, 1), 2))
        assert events[-1].completed.text == "HI"


async def test_leaving_cancels_nothing() -> None:
    go_on = asyncio.Event()

    async def body(_: TurnRequest, emit: Emit, __: Approve | None) -> Outcome:
        await emit(gateway_pb2.TextDelta(text="so far"))
        await go_on.wait()
        return gateway_pb2.TurnCompleted(text="all")

    turns = turns_of(body)
    await turns.begin("s1", "hi", "t1", "")

    async def leave_early() -> None:
        async for event in turns.follow("t1", 0):
            if event.HasField("text"):
                return

    await asyncio.wait_for(asyncio.gather(*(leave_early() for _ in range(100))), 60)
    (running,) = await turns.list(running_only=True)
    assert running.state == "running"

    async def rest() -> gateway_pb2.TurnEvent:
        return await anext(aiter(turns.follow("t1", 2)))

    staying = [asyncio.create_task(rest()) for _ in range(100)]
    await asyncio.sleep(0)
    go_on.set()
    last = await asyncio.wait_for(asyncio.gather(*staying), 60)
    assert {event.completed.text for event in last} == {"all"}


async def test_a_turn_that_never_began_is_not_found() -> None:
    with pytest.raises(GuestError) as raised:
        await anext(turns_of(done).follow("never-was", 0))
    assert raised.value.code is Code.NOT_FOUND


async def test_turns_are_listed_newest_first_with_their_states() -> None:
    async def body(request: TurnRequest, _: Emit, __: Approve | None) -> Outcome:
        if request.text == "fail":
            return gateway_pb2.TurnFailed(code="timeout")
        if request.text == "wait":
            await asyncio.sleep(60)
        return gateway_pb2.TurnCompleted()

    records = NothingStored()
    turns = turns_of(body, records=records)
    for number, text in enumerate(["ok", "fail", "wait"]):
        turn = await turns.begin(f"s{number}", text, f"t{number}", "web", "some:model")
        if text != "wait":
            await read(turn)
    states = [(turn.turn_id, turn.state) for turn in await turns.list()]
    assert states == [("t2", "running"), ("t1", "failed"), ("t0", "completed")]
    (failed,) = await turns.list("s1")
    assert (failed.text, failed.channel, failed.model) == ("fail", "web", "some:model")
    assert failed.events == 2
    assert failed.started_at <= failed.ended_at
    assert [turn.turn_id for turn in await turns.list(running_only=True)] == ["t2"]
    assert records.noted == ["timeout"]
    await turns.close()


async def test_what_is_kept_of_ended_turns_is_bounded_and_goes_with_its_session() -> None:
    turns = turns_of(done, remembered_ids=1000)
    for number in range(KEPT_TURNS + 5):
        await read(await turns.begin(f"s{number}", "hi", f"t{number}", ""))
    assert not turns.knows("t4")
    assert turns.knows("t5")
    turns.forget("s5")
    assert not turns.knows("t5")


async def test_so_many_turns_run_and_no_more() -> None:
    turns = turns_of(forever)
    for number in range(RUNNING_MAX):
        await turns.begin(f"s{number}", "hi", "", "")
    assert (await refused(turns, "one-more")).code is Code.RESOURCE_EXHAUSTED
    await turns.close()


async def test_turns_are_listed_while_a_memory_server_is_away() -> None:
    class Away(NothingStored):
        async def latest(self, session_id: str) -> list[Any]:
            raise StorageError(Code.UNAVAILABLE, "away")

    turns = turns_of(done, records=Away())
    await read(await turns.begin("s1", "hi", "t1", ""))
    assert [turn.turn_id for turn in await turns.list()] == ["t1"]

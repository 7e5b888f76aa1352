"""The registry of running turns: one to a session, cancellable anywhere, approvals that expire."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from guest.agent.turn import Emit, Outcome, TurnRequest
from guest.errors import GuestError, StorageError
from guest.gateway.turns import Turn, Turns
from guest.memory.conversations.sessions import InUse
from guest.tools.base import Approve, Arguments, Safety, Tool, ToolContext, ToolOutput

Body = Callable[[TurnRequest, Emit, Approve | None], Awaitable[Outcome]]


class FakeLoop:
    def __init__(self, body: Body) -> None:
        self.body = body

    async def run(
        self, request: TurnRequest, emit: Emit, approve: Approve | None = None
    ) -> Outcome:
        return await self.body(request, emit, approve)


async def done(request: TurnRequest, _: Emit, __: Approve | None) -> Outcome:
    return gateway_pb2.TurnCompleted(text=request.text.upper())


async def forever(_: TurnRequest, emit: Emit, __: Approve | None) -> Outcome:
    await emit(gateway_pb2.TextDelta(text="so far"))
    await asyncio.sleep(60)
    raise AssertionError("unreachable")


async def read(turn: Turn) -> list[gateway_pb2.TurnEvent]:
    async def all_of() -> list[gateway_pb2.TurnEvent]:
        return [event async for event in turn.stream.events()]

    return await asyncio.wait_for(all_of(), 60)


async def refused(turns: Turns, session: str = "s1", turn_id: str = "") -> WireError:
    with pytest.raises(GuestError) as raised:
        await turns.start(session, "hi", turn_id, "")
    return raised.value


async def test_a_turn_runs_from_started_to_outcome() -> None:
    turns = Turns("alice", FakeLoop(done), InUse())
    turn = await turns.start("s1", "hi", "", "chat")
    context = turn.request.context
    assert (context.user_id, context.session_id, context.channel) == ("alice", "s1", "chat")
    started, completed = await read(turn)
    assert started.started.session_id == "s1"
    assert completed.completed.text == "HI"
    assert started.turn_id == context.turn_id != ""


async def test_a_turn_id_is_never_used_twice() -> None:
    turns = Turns("alice", FakeLoop(done), InUse())
    await read(await turns.start("s1", "hi", "t1", ""))
    assert (await refused(turns, turn_id="t1")).code is Code.ALREADY_EXISTS
    assert (await refused(turns, "s2", turn_id="t1")).code is Code.ALREADY_EXISTS


async def test_the_memory_of_turn_ids_is_bounded() -> None:
    turns = Turns("alice", FakeLoop(done), InUse(), remembered_ids=3)
    for number in range(5):
        await read(await turns.start("s1", "hi", f"t{number}", ""))
    await read(await turns.start("s1", "hi", "t0", ""))
    assert (await refused(turns, turn_id="t4")).code is Code.ALREADY_EXISTS


async def test_cancelling_before_the_first_step_frees_the_session() -> None:
    turns = Turns("alice", FakeLoop(forever), InUse())
    turn = await turns.start("s1", "hi", "t1", "")
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

    turns = Turns("alice", FakeLoop(body), InUse())
    first = await turns.start("s1", "first", "", "")
    await asyncio.sleep(0)
    first.cancel()
    second = await turns.start("s1", "second", "", "")
    assert recorded == ["first"]
    await read(second)


async def test_of_two_who_come_back_with_one_turn_id_one_is_refused() -> None:
    async def body(request: TurnRequest, _: Emit, __: Approve | None) -> Outcome:
        if request.text == "first":
            await asyncio.sleep(60)
        return gateway_pb2.TurnCompleted()

    turns = Turns("alice", FakeLoop(body), InUse())
    for session in ("s1", "s2"):
        (await turns.start(session, "first", "", "")).cancel()
    started = await asyncio.gather(
        turns.start("s1", "second", "t1", ""),
        turns.start("s2", "second", "t1", ""),
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

    turn = await Turns("alice", FakeLoop(body), InUse()).start("s1", "hi", "", "")
    failed = (await read(turn))[-1].failed
    assert (failed.code, failed.message) == (code, message)


async def test_closing_cancels_everything_and_starts_nothing_more() -> None:
    turns = Turns("alice", FakeLoop(forever), InUse())
    running = [await turns.start(f"s{number}", "hi", "", "") for number in range(3)]
    await asyncio.sleep(0)
    await turns.close()
    for turn in running:
        assert (await read(turn))[-1].failed.code == "cancelled"
    assert (await refused(turns)).code is Code.UNAVAILABLE


async def _nothing(_: ToolContext, __: Arguments) -> ToolOutput:
    return ToolOutput({})


RISKY = Tool("shell_exec", "Runs.", Arguments, Safety.PRIVILEGED, 1.0, _nothing)


async def test_an_approval_expires_with_its_turn() -> None:
    async def body(request: TurnRequest, _: Emit, approve: Approve | None) -> Outcome:
        assert approve is not None
        await approve(request.context, RISKY, "{}")
        raise AssertionError("unreachable")

    turns = Turns("alice", FakeLoop(body), InUse())
    turn = await turns.start("s1", "hi", "", "")
    events = turn.stream.events()
    await anext(events)
    asked = (await anext(events)).approval
    turn.cancel()
    assert (await anext(events)).failed.code == "cancelled"
    assert not turns.answer(asked.approval_id, approved=True)

"""The wait for the first token: its own limit, a server that loads, one that cannot read a call."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic_ai import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo
from wire.v1 import gateway_pb2

from guest.agent import waiting
from tests.support.agent.turn_fakes import tool
from tests.unit.guest.agent.test_loop import House, Script, calls, later, nothing, prompts

LOADING = ModelHTTPError(503, "m", {"error": {"message": "Loading model", "code": 503}})
MALFORMED = (
    "error parsing tool call: raw='{\"a\": ', err=unexpected end of JSON input",
    "Failed to parse input at pos 12: <tool_call>",
    "invalid tool call arguments",
)


def script(*replies: Any) -> Script:
    """A model that answers so, or fails so."""
    left = list(replies)

    async def answer(_: list[ModelMessage], __: AgentInfo) -> AsyncIterator[Any]:
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, float):
            later(by_s=reply)
            await asyncio.sleep(60)
        yield "" if isinstance(reply, float) else reply

    return answer


def notices(house: House) -> list[str]:
    return [event.text for event in house.events(gateway_pb2.Notice)]


@pytest.fixture(autouse=True)
def again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "AGAIN_S", 0.0)


async def test_a_cold_model_may_take_longer_than_a_turn() -> None:
    house = House(script(150.0), turn_timeout_s=100)
    running = asyncio.ensure_future(house.say())
    while not notices(house):
        await asyncio.sleep(0)
    assert "still loading, or reads about" in notices(house)[0]
    assert not running.done()
    running.cancel()
    outcome = await running
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code == "cancelled"


async def test_the_first_token_has_a_limit_too() -> None:
    house = House(script(250.0), turn_timeout_s=100)
    outcome = await house.say()
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code == "timeout"
    assert outcome.message == "the model has not begun to answer within 200 seconds"


async def test_a_server_that_loads_its_model_is_waited_for_and_told_once() -> None:
    house = House(script(*[LOADING] * 20, "Hello."), turn_timeout_s=100)
    outcome: Any = await house.say()
    assert outcome.text == "Hello."
    (notice,) = notices(house)
    assert "is still loading the model" in notice


@pytest.mark.parametrize("end", [asyncio.Task.cancel, lambda _: later(by_s=500)])
async def test_that_wait_ends_by_a_person_and_by_time(
    end: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "AGAIN_S", 300.0)
    house = House(script(*[LOADING] * 9), turn_timeout_s=100)
    running = asyncio.ensure_future(house.say())
    while not notices(house):
        await asyncio.sleep(0)
    end(running)
    outcome = await running
    assert isinstance(outcome, gateway_pb2.TurnFailed)
    assert outcome.code in ("cancelled", "timeout")


@pytest.mark.parametrize("words", MALFORMED)
async def test_a_model_is_told_that_its_call_could_not_be_read(words: str) -> None:
    failed = ModelHTTPError(500, "m", {"error": words})
    house = House(script(failed, calls(("look", {})), "Done."), tool("look", nothing))
    outcome: Any = await house.say()
    assert outcome.text == "Done."
    assert "could not be read" in prompts(house.seen[1])[-1] or "could not be read" in str(
        house.seen[1][-1]
    )
    house = House(script(*[failed] * 9), tool("look", nothing))
    ended = await house.say()
    assert isinstance(ended, gateway_pb2.TurnFailed)
    assert len(house.seen) == 2, "it is not asked the same three times"
    assert ended.code == "unavailable"

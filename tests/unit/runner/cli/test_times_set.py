"""Who sets a time beside a chat is told that the agent ends with it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from typer.testing import CliRunner
from wire.v1 import gateway_pb2 as pb

from runner.cli import agent, schedules
from runner.cli.app import app


class Agent:
    """One that ends with a chat."""

    hello = pb.HelloReply(passing="it ends with the chat")

    async def create_schedule(self, request: pb.CreateScheduleRequest) -> pb.Schedule:
        return pb.Schedule(text=request.text)

    async def change_schedule(self, request: pb.ChangeScheduleRequest) -> pb.Schedule:
        return pb.Schedule(name=request.name)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "every day", "look"], True),
        (["update", "build", "--when", "every day"], True),
        (["update", "build", "--name", "builds"], False),
    ],
)
def test_that_the_agent_ends_before_it_is_said_with_a_time(
    monkeypatch: pytest.MonkeyPatch, words: list[str], told: bool
) -> None:
    def ask(_: object, question: Callable[[Any], Awaitable[object]]) -> object:
        async def answer() -> object:
            return await question(Agent())

        return asyncio.run(answer())

    for module in (agent, schedules):
        monkeypatch.setattr(module, "ask_agent", ask)
    done = CliRunner().invoke(app, ["schedules", *words])
    assert done.exit_code == 0, done.output
    assert ("note: it ends with the chat" in done.stderr) is told

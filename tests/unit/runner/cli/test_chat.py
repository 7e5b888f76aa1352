"""Whose host a chat uses, and what it says when there is none to talk to."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pytest
from wire.errors import Code, WireError
from wire.identity import Peer
from wire.v1 import control_pb2

from runner.cli import agent as agent_module
from runner.cli.chat.chat import chat
from runner.cli.chat.hosting import Streams
from runner.cli.options import Options, program
from runner.config.models import Config
from runner.errors import HostError
from runner.host import host as host_module
from tests.support.gateway.fake_gateway import FakeGateway

BOB = Options(user_id="bob")


@dataclass
class Household:
    """What runs, as `runner.host.control` and `runner.host.host` would have it."""

    gateway: FakeGateway
    running: bool = False
    start_error: WireError | None = None
    agent_state: str = "ready"
    hosts: list[str] = field(default_factory=list)

    async def connect_control(self, config: Config, user_id: str) -> Any:
        return Control(self) if self.running else None


@dataclass
class Control:
    house: Household

    async def __aenter__(self) -> "Control":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        return

    async def gateway(self) -> Peer:
        if self.house.agent_state != "ready":
            raise WireError(Code.UNAVAILABLE, "the agent guest is down")
        return self.house.gateway.peer

    async def status(self) -> control_pb2.StatusReply:
        agent = control_pb2.GuestStatus(
            role="agent", state=self.house.agent_state, reason="the database is damaged"
        )
        return control_pb2.StatusReply(guests=[agent])


@pytest.fixture
def house(gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch) -> Household:
    made = Household(gateway)

    class Host:
        def __init__(self, config: Config, user_id: str, **_: object) -> None:
            self.notices = ["an earlier runner\nwas killed; runner stop"]
            self.user_id = user_id

        async def __aenter__(self) -> "Host":
            if made.start_error is not None:
                raise made.start_error
            made.hosts.append(f"start {self.user_id}")
            made.running = True
            return self

        async def __aexit__(self, *_: object) -> None:
            made.hosts.append("stop")
            made.running = False

    monkeypatch.setattr(host_module, "Host", Host)
    monkeypatch.setattr(agent_module, "connect_control", made.connect_control)
    return made


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[tuple[TextIO, TextIO, TextIO]]:
    (tmp_path / "in").write_text("hello\n")
    with (
        (tmp_path / "in").open() as stdin,
        (tmp_path / "out").open("w+") as stdout,
        (tmp_path / "err").open("w+") as stderr,
    ):
        yield stdin, stdout, stderr


async def say_hello(streams: tuple[TextIO, TextIO, TextIO]) -> tuple[int, str, str]:
    stdin, stdout, stderr = streams
    code = await chat(BOB, Config(), streams=Streams(stdin, stdout, stderr))
    return code, Path(stdout.name).read_text(), Path(stderr.name).read_text()


async def test_a_chat_without_a_host_starts_one_and_ends_it(
    house: Household, streams: tuple[TextIO, TextIO, TextIO]
) -> None:
    code, out, err = await say_hello(streams)
    assert code == 0
    assert "you said: hello" in out
    told = f"an earlier runner was killed; {program()} --user bob stop\n"
    assert err.startswith(f"starting the agent of user bob ...\n{told}")
    assert house.hosts == ["start bob", "stop"]


async def test_a_host_that_runs_is_used_and_left_running(
    house: Household, streams: tuple[TextIO, TextIO, TextIO]
) -> None:
    house.running = True
    code, out, err = await say_hello(streams)
    assert code == 0
    assert "you said: hello" in out
    assert "starting" not in err
    assert house.hosts == []


async def test_a_host_that_somebody_starts_meanwhile_is_used(
    house: Household, streams: tuple[TextIO, TextIO, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    class TooLate:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def __aenter__(self) -> None:
            house.running = True
            raise HostError(Code.ALREADY_EXISTS, "a runner for this user is there already")

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(host_module, "Host", TooLate)
    code, out, _ = await say_hello(streams)
    assert code == 0
    assert "you said: hello" in out


@pytest.mark.parametrize("code", [Code.ALREADY_EXISTS, Code.FAILED_PRECONDITION])
async def test_a_start_that_fails_is_raised(
    house: Household, streams: tuple[TextIO, TextIO, TextIO], code: Code
) -> None:
    house.start_error = HostError(code, "no room")
    with pytest.raises(HostError, match="no room"):
        await say_hello(streams)


async def test_an_agent_that_a_person_must_mend_is_not_waited_for(
    house: Household, streams: tuple[TextIO, TextIO, TextIO]
) -> None:
    house.running, house.agent_state = True, "failed"
    with pytest.raises(HostError, match="the agent cannot start: the database is damaged"):
        await say_hello(streams)


async def test_a_signal_ends_the_chat_and_its_host(house: Household, tmp_path: Path) -> None:
    given, give = os.pipe()
    with os.fdopen(given) as stdin, (tmp_path / "out").open("w") as stdout:
        running = asyncio.create_task(
            chat(BOB, Config(), streams=Streams(stdin, stdout, sys.stderr))
        )
        os.write(give, b"hello\n")
        while not house.gateway.turns:
            await asyncio.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await asyncio.wait_for(running, 60) == 128 + signal.SIGTERM
    os.close(give)
    assert house.hosts == ["start bob", "stop"]


async def test_closed_standard_streams_are_refused(
    house: Household, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(HostError, match="is closed"):
        await chat(BOB, Config())

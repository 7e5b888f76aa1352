"""`shell_exec` from the chat to a real shell daemon and back: turns, approval, failures."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any

import pytest
from wire.settings import ShellSettings
from wire.v1 import gateway_pb2 as pb

from guest.tools.command_policy import CommandPolicy
from guest.tools.shell.client import ShellClient, ShellTimeouts
from runner.cli.chat.conversation import Conversation
from runner.cli.chat.screen import Screen, Style
from runner.client.gateway import GatewayClient
from tests.support import parties
from tests.support.gateway.gateways import Gateways, open_gateways
from tests.support.guests.shell_backends import TOKEN, Daemon, left_behind, ready_daemon

GUARD_S = 60


@pytest.fixture
async def daemon() -> AsyncIterator[Daemon]:
    async with ready_daemon() as running:
        yield running


@asynccontextmanager
async def gateways_with_shell(
    daemon: Daemon, patience: ShellTimeouts | None = None, **options: Any
) -> AsyncIterator[Gateways]:
    client = ShellClient(parties.shell(daemon.endpoint, TOKEN), patience)
    async with open_gateways(shell=client, **options) as gateways:
        yield gateways
    await client.close()


class Watcher(Screen):
    """A screen that keeps what it shows and answers every question in one way."""

    def __init__(self, answer: bool) -> None:
        super().__init__(StringIO(), StringIO())
        self.answer = answer
        self.questions: list[str] = []
        self.said = ""
        self.lines: list[str] = []

    async def stream(self, text: str) -> None:
        self.said += text

    async def line(self, text: str, style: Style = Style.PLAIN) -> None:
        self.lines.append(text)

    async def ask(self, question: str, offers: int = 0) -> int:
        self.questions.append(question)
        return self.answer


async def chat(gateways: Gateways, screen: Watcher, text: str) -> bool:
    """Say one thing in the terminal chat of a new user."""
    alice = await gateways.serve("alice")

    async def connect() -> GatewayClient:
        return await GatewayClient.open(alice.peer, channel_name="test")

    async with Conversation(connect, screen) as conversation:
        return await conversation.turn(text)


async def test_a_command_has_the_clock_of_who_asks_and_a_day_its_date(daemon: Daemon) -> None:
    async with gateways_with_shell(daemon) as gateways:
        alice = await gateways.serve("alice")
        await alice.session("s")
        for zone, offset in (("Asia/Kathmandu", "+0545"), ("", "+0000"), ("Etc/GMT+12", "-1200")):
            asked = "run date +%z; date +%Y-%m-%d"
            said = (await alice.say("s", asked, time_zone=zone))[-1].completed.text.split()
            assert said[0] == offset
            saved = await alice.say("s", f"remember that on {offset} today is", time_zone=zone)
            assert f"today ({said[1]}) is" in saved[-1].completed.text


async def test_the_offline_model_runs_a_command(daemon: Daemon) -> None:
    async with gateways_with_shell(daemon) as gateways:
        alice = await gateways.serve("alice")
        session = await alice.session()
        assert (await alice.stub.Hello(pb.HelloRequest())).shell == "ready"
        assert await alice.answer(session, "run echo hi") == "hi"
        shown = await alice.answer(session, "run echo out; echo err >&2; exit 3")
        assert shown == "out\n(on standard error)\nerr\n(exit code 3)"
        assert await alice.answer(session, "run true") == "(no output)"
        await alice.answer(session, "run echo kept > note.txt")
        assert (daemon.root / "shared/note.txt").read_text() == "kept\n"
        assert "bytes left out" in await alice.answer(session, "run seq 1 100000")


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_is_asked_and_sees_the_command(daemon: Daemon, approved: bool) -> None:
    screen = Watcher(answer=approved)
    async with gateways_with_shell(daemon, approval="ask") as gateways:
        assert await chat(gateways, screen, "run touch 'a\x1b[31m b'; echo \"done\"")
    (question,) = screen.questions
    assert question.splitlines()[:3] == [
        "allow shell_exec?",
        "  command",
        "  │ touch 'a<U+001B>[31m b'; echo \"done\"",
    ]
    ran = any((daemon.root / "shared").iterdir())
    assert ran is approved
    assert ("done" if approved else "was not approved by the user") in screen.said


async def test_no_part_of_a_command_hides_from_who_approves_it(daemon: Daemon) -> None:
    """What is dressed up as a credential would be redacted anywhere else."""
    screen = Watcher(answer=False)
    async with gateways_with_shell(daemon, approval="ask") as gateways:
        await chat(gateways, screen, "run x='password: '; touch hidden; echo s3cret-t0ken")
    (question,) = screen.questions
    assert "touch hidden" in question
    assert "s3cret" not in question


async def test_a_command_that_the_operator_denies_is_not_run(daemon: Daemon) -> None:
    policy = CommandPolicy(ShellSettings(deny=("touch *",)))
    async with gateways_with_shell(daemon, commands=policy) as gateways:
        alice = await gateways.serve("alice")
        said = await alice.answer(await alice.session(), "run echo x; to'u'ch y")
        assert "the operator does not permit commands like touch *" in said
    assert not any((daemon.root / "shared").iterdir())


async def test_a_cancelled_turn_ends_its_command(daemon: Daemon) -> None:
    async with gateways_with_shell(daemon) as gateways:
        alice = await gateways.serve("alice")
        session = await alice.session()
        asked = asyncio.create_task(
            alice.say(session, "run touch begun; sleep 2001 & sleep 2002", "turn-1")
        )
        async with asyncio.timeout(GUARD_S):
            while not (daemon.root / "shared/begun").exists():
                await asyncio.sleep(0.01)
        await alice.stub.CancelTurn(pb.CancelTurnRequest(turn_id="turn-1"))
        assert (await asked)[-1].failed.code == "cancelled"
        async with asyncio.timeout(GUARD_S):
            while any("sleep" in line for line in left_behind(daemon.root)):
                await asyncio.sleep(0.01)
        assert await alice.answer(session, "run echo still here") == "still here"


async def test_a_shell_that_is_killed_is_reported_and_used_again_when_it_is_back(
    daemon: Daemon,
) -> None:
    async with gateways_with_shell(daemon, ShellTimeouts(reach_s=0.5, resume_s=0.5)) as gateways:
        alice = await gateways.serve("alice")
        session = await alice.session()
        asked = asyncio.create_task(alice.answer(session, "run touch begun; sleep 2003"))
        async with asyncio.timeout(GUARD_S):
            while not (daemon.root / "shared/begun").exists():
                await asyncio.sleep(0.01)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
        assert "the shell guest went away while the command ran" in await asked
        assert "the command was not started" in await alice.answer(session, "run echo x")
        assert (await alice.stub.Hello(pb.HelloRequest())).shell.startswith("unavailable: ")
        second = Daemon(daemon.root)
        try:
            async with asyncio.timeout(GUARD_S):
                while (await alice.stub.Hello(pb.HelloRequest())).shell != "ready":
                    await asyncio.sleep(0.05)
            assert await alice.answer(session, "run echo back") == "back"
        finally:
            second.stop()


async def test_users_and_turns_at_once_never_mix(daemon: Daemon) -> None:
    async with gateways_with_shell(daemon) as gateways:
        users = [await gateways.serve(name) for name in ("alice", "bob", "carol")]
        sessions = [(user, await user.session()) for user in users for _ in range(4)]

        async def ask(number: int, user: Any, session: str) -> str:
            text = f"run for i in 1 2 3; do echo of-{number}; sleep 0.05; done"
            return str(await user.answer(session, text))

        answers = await asyncio.gather(*(ask(number, *who) for number, who in enumerate(sessions)))
    assert answers == ["\n".join([f"of-{number}"] * 3) for number in range(12)]

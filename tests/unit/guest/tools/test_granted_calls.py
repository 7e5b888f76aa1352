"""What a person has allowed for more than one call, and what only looks like it."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from wire.settings import ShellSettings
from wire.v1 import gateway_pb2 as pb

from guest.errors import GuestError
from guest.tools.base import Arguments, Offer, Safety, Tool, ToolContext, ToolOutput
from guest.tools.command_policy import CommandPolicy
from guest.tools.grants import GRANTS_MAX, Grants, offers, schedule, session
from guest.tools.pipeline import Registry, ToolPipeline
from guest.tools.redaction.scrubber import Scrubber
from guest.tools.shell.tool import ShellArguments
from guest.watch import CallReporter
from tests.support.tools.pipelines import shell_exec
from tests.unit.guest.tools.grant_lines import GRANTED, KEPT_APART, MEANT, TUNED_ON

ALICE = ToolContext("alice", "session-1", "turn-1", "test")


class Fetch(Arguments):
    url: str
    depth: int = 1


async def done(_: ToolContext, __: Arguments) -> ToolOutput:
    return ToolOutput({}, summary="exit code 0")


SHELL = shell_exec(done)
FETCH = Tool("fetch", "", Fetch, Safety.PRIVILEGED, 5, done)


def offered(command: str, **given: object) -> tuple[Offer, ...]:
    return offers(SHELL, ShellArguments(command=command, **given), str)  # type: ignore[arg-type]


def words(command: str, **given: object) -> list[str]:
    return [each.text for each in offered(command, **given)]


class Person:
    """Answers with one of the offers, and counts the questions."""

    def __init__(self, grants: Grants, offer: str = "") -> None:
        self.grants, self.offer = grants, offer
        self.asked: list[str] = []

    async def __call__(self, context: ToolContext, _: Tool, question: str) -> bool:
        self.asked.append(question)
        chosen = [each for each in context.offers if self.offer and self.offer in each.text]
        if chosen:
            await self.grants.give(session(context.session_id), chosen[:1], channel="chat")
        return True


def pipeline(
    grants: Grants, settings: ShellSettings | None = None, **given: object
) -> ToolPipeline:
    made: dict[str, object] = {
        "approval": "ask",
        "commands": CommandPolicy(settings or ShellSettings()),
    }
    return ToolPipeline(
        Registry([SHELL, FETCH], {"shell": ("shell_exec", "fetch")}),
        scrubber=Scrubber(()),
        grants=grants,
        **(made | given),  # type: ignore[arg-type]
    )


@pytest.fixture
async def all_granted() -> Grants:
    grants = Grants()
    for command in GRANTED:
        await grants.give(session("session-1"), offered(command), channel="chat")
    return grants


@pytest.mark.parametrize("command", TUNED_ON)
async def test_a_command_that_only_looks_like_a_granted_one(
    all_granted: Grants, command: str
) -> None:
    assert all_granted.allowing(ALICE, offered(command)) is None


@pytest.mark.parametrize("command", KEPT_APART)
async def test_one_that_the_rules_were_not_made_on(all_granted: Grants, command: str) -> None:
    assert all_granted.allowing(ALICE, offered(command)) is None


@pytest.mark.parametrize("command", MEANT)
async def test_what_was_meant_is_not_asked_again(all_granted: Grants, command: str) -> None:
    assert all_granted.allowing(ALICE, offered(command)) is not None


def test_a_person_is_told_what_they_allow() -> None:
    assert words("git status -s") == [
        "commands that begin with `git status` in /shared",
        "`git status -s` in /shared",
    ]
    assert words("make deploy", cwd="/projects/app") == ["`make deploy` in /projects/app"]


@pytest.mark.parametrize(
    "command",
    [
        "cd src && npm test",
        "sudo ls",
        "bash x.sh",
        "env npm test",
        "ls > x",
        "X=1 make",
        "ls $X",
        "\\",
    ],
)
def test_nothing_is_offered_for_what_cannot_be_seen_through(command: str) -> None:
    assert words(command) == []


def test_nothing_is_offered_for_what_is_not_shown() -> None:
    assert words("cat", stdin="x") == []
    assert words("npm test", background=True) == []
    assert words("echo a\u00a0b") == []
    assert words("echo " + "a" * 400) == []
    arguments = ShellArguments(command="curl -H 'X: abcdef'")
    assert offers(SHELL, arguments, lambda text: text.replace("abcdef", "[redacted:key]")) == ()


def test_a_tool_is_allowed_for_its_target() -> None:
    def told(url: str) -> list[str]:
        return [each.text for each in offers(FETCH, Fetch(url=url), str)]

    assert told("https://a.example/x?y=1") == ["every call of fetch with url https://a.example"]
    for odd in ("https://a.example@b.example/", "https://a.example\\@b.example/", "file:///x"):
        assert told(odd) == [f"every call of fetch with url {json.dumps(odd)}"]


async def test_a_person_is_asked_once_and_told_why_it_ran() -> None:
    grants = Grants()
    calls, person = pipeline(grants), Person(grants, "begin with")
    first = await calls.call(ALICE, "shell_exec", {"command": "git status"}, person)
    then = await calls.call(ALICE, "shell_exec", {"command": "git status -s"}, person)
    other = await calls.call(ALICE, "shell_exec", {"command": "git push"}, person)
    assert (first.is_error, then.is_error, other.is_error) == (False, False, False)
    assert len(person.asked) == 2
    assert first.summary == "exit code 0"
    assert then.summary.startswith("exit code 0; allowed by your word of ")
    assert then.summary.endswith(": commands that begin with `git status` in /shared")
    assert "allowed" not in then.text


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"session_id": "session-2"},
        {"session_id": ""},
        {"session_id": "", "schedule": "session-1"},
    ],
)
async def test_it_holds_in_its_scope_alone(elsewhere: dict[str, str]) -> None:
    grants = Grants()
    await grants.give(session("session-1"), offered("make"), channel="chat")
    person = Person(grants)
    context = replace(ALICE, **elsewhere)  # type: ignore[arg-type]
    await pipeline(grants).call(context, "shell_exec", {"command": "make"}, person)
    assert len(person.asked) == 1


async def test_it_holds_for_a_directory_and_no_input() -> None:
    grants = Grants()
    await grants.give(session("session-1"), offered("git status"), channel="chat")
    person, calls = Person(grants), pipeline(grants)
    for given in ({"cwd": "/tmp"}, {"stdin": "x"}, {"timeout_s": 9}):
        await calls.call(ALICE, "shell_exec", {"command": "git status", **given}, person)
    assert len(person.asked) == 2


async def test_nobody_need_be_there_for_what_a_schedule_was_given() -> None:
    grants = Grants()
    await grants.give(schedule("s"), offered("make"), channel="chat", seal=True)
    calls, context = pipeline(grants), replace(ALICE, schedule="s", session_id="session-9")
    assert not (await calls.call(context, "shell_exec", {"command": "make"})).is_error
    assert (await calls.call(context, "shell_exec", {"command": "make x"})).is_error
    with pytest.raises(GuestError, match="gets no more"):
        await grants.give(schedule("s"), offered("ls"), channel="chat")


@pytest.mark.parametrize("rules", [ShellSettings(deny=("git *",)), ShellSettings(allow=("ls *",))])
async def test_a_policy_that_refuses_ends_it_for_good(tmp_path: Path, rules: ShellSettings) -> None:
    file = tmp_path / "grants.json"
    await Grants(file).give(session("session-1"), offered("git status"), channel="chat")
    strict = pipeline(Grants(file), rules)
    refused = await strict.call(ALICE, "shell_exec", {"command": "git status"}, Person(Grants()))
    assert refused.is_error
    assert "the operator" in refused.text
    person = Person(Grants())
    await pipeline(Grants(file)).call(ALICE, "shell_exec", {"command": "git status"}, person)
    assert len(person.asked) == 1


async def test_nothing_is_offered_that_policy_refuses() -> None:
    grants = Grants()
    person = Person(grants, "git")
    rules = ShellSettings(deny=("git *",))
    await pipeline(grants, rules).call(ALICE, "shell_exec", {"command": "git status"}, person)
    assert grants.list() == []


@pytest.mark.parametrize("gate", [{"approval": "deny"}, {"disabled": ("shell_exec",)}])
async def test_a_tool_that_is_off_stays_off(gate: dict[str, object]) -> None:
    grants = Grants()
    await grants.give(session("session-1"), offered("ls"), channel="chat")
    result = await pipeline(grants, None, **gate).call(ALICE, "shell_exec", {"command": "ls"})
    assert result.is_error


async def test_they_outlive_the_agent_and_end_with_their_session(tmp_path: Path) -> None:
    file = tmp_path / "grants.json"
    grants = Grants(file)
    await grants.give(session("session-1"), offered("make"), channel="chat")
    await grants.give(session("session-2"), offered("ls"), channel="web")
    await grants.give(schedule("s"), offered("make"), channel="web", seal=True)
    grants.drop(session("session-1"))
    left = Grants(file)
    assert [each.scope for each in left.list()] == [session("session-2")] * 2 + [schedule("s")]
    with pytest.raises(GuestError):
        await left.give(schedule("s"), offered("ls"), channel="chat")
    assert b"session-1" not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_one_is_withdrawn_at_once() -> None:
    grants = Grants()
    [given] = await grants.give(session("session-1"), offered("make"), channel="chat")
    assert await grants.withdraw(given.grant_id, "web")
    assert not await grants.withdraw(given.grant_id, "web")
    assert grants.allowing(ALICE, offered("make")) is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"grants": [{"text": 1}]}', '{"grants": 5}'])
def test_what_cannot_be_read_allows_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "grants.json"
    file.write_text(text)
    assert Grants(file).list() == []


async def test_there_are_never_too_many() -> None:
    grants = Grants()
    await grants.give(schedule("s"), offered("make first"), channel="chat")
    for number in range(GRANTS_MAX + 5):
        await grants.give(session("session-1"), offered(f"make {number}"), channel="chat")
    assert len(grants.list()) == GRANTS_MAX
    assert grants.list()[0].scope == schedule("s")
    many = [Offer(str(number), str(number), "") for number in range(GRANTS_MAX)]
    with pytest.raises(GuestError, match="stand already"):
        await grants.give(schedule("t"), many, channel="chat")


async def test_the_same_is_kept_once() -> None:
    grants = Grants()
    for _ in range(3):
        await grants.give(session("session-1"), offered("make"), channel="chat")
    assert len(grants.list()) == 1


async def test_who_gave_it_is_recorded_before_it_holds() -> None:
    witness = CallReporter(required=True)
    grants = Grants(witness=witness)
    giving = asyncio.ensure_future(
        grants.give(session("session-1"), offered("make"), channel="web")
    )
    await asyncio.sleep(0)
    assert not grants.list()

    async def replies() -> object:
        begun = await heard.get()
        yield pb.CallReportReply(call_id=begun.call_id)
        await asyncio.sleep(9)

    heard: asyncio.Queue[pb.CallBegun] = asyncio.Queue()
    stream = witness.stream(replies())  # type: ignore[arg-type]
    begun = (await anext(stream)).begun
    assert (begun.actor, begun.channel, begun.session_id) == ("person", "web", "session-1")
    assert begun.about == "allows `make` in /shared (session:session-1)"
    heard.put_nowait(begun)
    ended = asyncio.ensure_future(anext(stream))
    assert await giving
    assert (await ended).ended.outcome == "ok"
    giving.cancel()


async def test_what_cannot_be_recorded_is_not_given() -> None:
    grants = Grants(witness=CallReporter(required=True))
    with pytest.raises(GuestError, match="cannot be recorded"):
        await grants.give(session("session-1"), offered("make"), channel="web")
    assert not grants.list()

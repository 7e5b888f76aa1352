"""What egress lets out and refuses is written down by the host before it goes out."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from wire.egress.policy import Attempt, Verdict
from wire.errors import Code, WireError
from wire.identity import Party
from wire.transport import unix_endpoint
from wire.v1 import egress_pb2 as pb
from wire.v1 import egress_pb2_grpc, gateway_pb2

from egress import watch as watching
from egress.admission import admission as deciding
from egress.admission import record as recording
from egress.admission.admission import OPEN_MAX, Admission, Questions
from egress.admission.allowance import Allowance
from egress.admission.record import Caller, Record
from egress.configuration import State
from egress.server import Control
from egress.watch import NotReady, Watch
from runner.audit.log import AuditLog, LogLocation, opened
from runner.audit.reading import verify
from runner.egress.watcher import EgressWatcher
from runner.errors import HostError
from tests.support import parties

SHELL = Caller("shell", "session-1", "turn-1")
ATTEMPT = Attempt("https", "pypi.org", 443, "GET", "/simple/?secret=1")
YES = Verdict("allow", "preset pypi", "")
NO = Verdict("deny", "", "no rule allows files.example.org")
ASK = Verdict("ask", "", "nobody was asked yet", "https://files.example.org")


@dataclass
class House:
    """Egress and its runner, with what connects them."""

    place: LogLocation
    audit: AuditLog
    watch: Watch
    record: Record
    questions: Questions
    watcher: EgressWatcher
    endpoint: str
    attend: Callable[[], Awaitable[None]]
    asked: list[gateway_pb2.AskRequest] = field(default_factory=list)
    answers: asyncio.Queue[gateway_pb2.AskReply | WireError] = field(default_factory=asyncio.Queue)
    granted: list[tuple[str, pb.EgressGrant]] = field(default_factory=list)

    def lines(self) -> list[dict[str, Any]]:
        """What the log says, without what opens it."""
        content = b"".join(path.read_bytes() for path in self.place.files())
        links = [opened(line) for line in content.splitlines(keepends=True)]
        return [
            dict(link.entry, n=link.number) for link in links if "egress" in link.entry["event"]
        ]

    async def unheard(self) -> None:
        """Let the runner go, and egress notice it."""
        await self.watcher.close()
        async with asyncio.timeout(60):
            while self.watch.is_open:
                await asyncio.sleep(0.01)

    async def lines_once(self, count: int) -> list[dict[str, Any]]:
        """What the log says once there are so many lines."""
        async with asyncio.timeout(60):
            while len(found := self.lines()) < count:
                await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    place = LogLocation(tmp_path, "alice")
    audit = AuditLog(place, 365)
    audit.open()
    watch = Watch()
    endpoint = unix_endpoint(tmp_path / "egress.sock")
    server = parties.server(endpoint, "token", Party.EGRESS)
    state, allowance = State((Party.AGENT, Party.SHELL)), Allowance()
    control = Control(state, Admission(state, watch, allowance), allowance, watch)
    egress_pb2_grpc.add_EgressServicer_to_server(control, server.grpc)
    await server.start()

    async def ask(request: gateway_pb2.AskRequest) -> gateway_pb2.AskReply:
        made.asked.append(request)
        reply = await made.answers.get()
        if isinstance(reply, WireError):
            raise reply
        return reply

    async def attend() -> None:
        await made.watcher.attend(parties.peer(endpoint, Party.EGRESS, "token"))
        async with asyncio.timeout(60):
            while not watch.is_open:
                await asyncio.sleep(0.01)

    made = House(
        place,
        audit,
        watch,
        Record(watch),
        Questions(watch),
        EgressWatcher(audit, ask, lambda role, grant: made.granted.append((role, grant))),
        endpoint,
        attend,
    )
    await attend()
    yield made
    await made.watcher.close()
    await server.stop()
    audit.close()


async def test_a_request_is_written_down_before_it_goes_out_and_again_when_it_ends(
    house: House,
) -> None:
    entry = await house.record.begin(SHELL, ATTEMPT, YES, address="5.5.5.5")
    (begun,) = house.lines()
    assert begun | {"time": "", "prev": "", "n": 0} == {
        "event": "egress",
        "time": "",
        "prev": "",
        "n": 0,
        "user": "alice",
        "request": 1,
        "decision": "allowed",
        "role": "shell",
        "session": "session-1",
        "turn": "turn-1",
        "method": "GET",
        "scheme": "https",
        "host": "pypi.org",
        "port": 443,
        "path": "/simple/",
        "address": "5.5.5.5",
        "rule": "preset pypi",
    }
    entry.sent, entry.received, entry.status = 10, 20, 200
    await entry.end("done")
    await entry.end("cut")
    _, ended = await house.lines_once(2)
    assert ended["begin"] == begun["n"]
    assert (ended["outcome"], ended["sent"], ended["received"], ended["status"]) == (
        ("done", 10, 20, 200)
    )
    assert verify(house.place).findings == ()


async def test_a_refusal_is_one_line_with_its_reason(house: House) -> None:
    await house.record.begin(SHELL, ATTEMPT, NO)
    (line,) = house.lines()
    assert (line["decision"], line["reason"]) == ("refused", NO.reason)


async def test_nothing_goes_out_while_nobody_watches(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "OPEN_WAIT_S", 0.1)
    await house.unheard()
    with pytest.raises(NotReady, match="runner status"):
        await house.record.begin(SHELL, ATTEMPT, YES)
    assert house.lines() == []


async def test_a_request_waits_a_moment_for_the_runner(house: House) -> None:
    await house.unheard()
    waiting = asyncio.create_task(house.record.begin(SHELL, ATTEMPT, YES))
    await asyncio.sleep(0.05)
    await house.attend()
    assert not (await waiting).ended
    assert len(house.lines()) == 1


async def test_a_request_waits_also_while_the_last_stream_is_ending() -> None:
    async def replies(until: asyncio.Event) -> AsyncIterator[pb.EgressReply]:
        await until.wait()
        return
        yield

    watch, left, never = Watch(), asyncio.Event(), asyncio.Event()
    watch.tell(pb.EgressEvent(ended=pb.EgressEnded(id=1)))
    async with aclosing(watch.stream(replies(left))) as last, asyncio.timeout(60):
        await anext(last)
        left.set()
        while watch.is_open:
            await asyncio.sleep(0)
        waiting = asyncio.create_task(watch.ready())
        await asyncio.sleep(0.05)
        async with aclosing(watch.stream(replies(never))) as following:
            reading = asyncio.create_task(anext(following))
            await waiting
            reading.cancel()
            await asyncio.wait({reading})


async def test_what_cannot_be_written_down_does_not_go_out(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: str, **__: object) -> int:
        raise HostError(Code.UNAVAILABLE, "the disk is full")

    monkeypatch.setattr(house.audit, "note", full)
    with pytest.raises(NotReady, match="the disk is full"):
        await house.record.begin(SHELL, ATTEMPT, YES)


async def test_what_was_open_when_egress_died_is_written_down_as_cut(house: House) -> None:
    entry = await house.record.begin(SHELL, ATTEMPT, YES)
    house.watcher.ended()
    _, ended = house.lines()
    assert (ended["begin"], ended["outcome"]) == (house.lines()[0]["n"], "cut")
    await entry.end("done")


async def test_what_was_open_when_the_runner_died_is_written_down_at_its_next_start(
    house: House,
) -> None:
    await house.record.begin(SHELL, ATTEMPT, NO)
    await house.record.begin(SHELL, ATTEMPT, YES)
    again = AuditLog(house.place, 365)
    again.open()
    again.close()
    refused, begun, ended = house.lines()
    assert (ended["begin"], ended["outcome"]) == (begun["n"], "cut")
    assert refused["decision"] == "refused"


async def test_the_end_of_a_request_waits_for_the_next_stream() -> None:
    watch = Watch()
    replies: asyncio.Queue[pb.EgressReply] = asyncio.Queue()

    async def said() -> AsyncIterator[pb.EgressReply]:
        while True:
            yield await replies.get()

    async with aclosing(watch.stream(said())) as first:
        beginning = asyncio.create_task(Record(watch).begin(SHELL, ATTEMPT, YES))
        replies.put_nowait(pb.EgressReply(recorded=(await anext(first)).begun.id))
        entry = await beginning
    await entry.end("done")
    async with aclosing(watch.stream(said())) as second:
        ended = (await anext(second)).ended
    assert (ended.id, ended.outcome) == (entry.id, "done")


async def test_of_a_guest_that_is_refused_again_and_again_most_is_counted_only(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the next that is written down says how many were left out."""
    monkeypatch.setattr(recording, "REFUSALS_AT_ONCE", 3)
    monkeypatch.setattr(recording, "REFUSALS_PER_S", 0.0)
    monkeypatch.setattr(recording, "LEFT_OUT_S", 0.0)
    for _ in range(10):
        await house.record.begin(SHELL, ATTEMPT, NO)
    await house.record.begin(Caller("agent"), ATTEMPT, NO)
    await house.record.begin(SHELL, ATTEMPT, YES)
    assert [each.refused for each in house.record.counters().counts] == [10, 1]
    monkeypatch.setattr(recording, "REFUSALS_PER_S", 1_000_000.0)
    await house.record.begin(SHELL, ATTEMPT, NO)
    told = [line for line in house.lines() if line.get("role") == "shell"]
    reasons = [line["reason"] for line in told if line["decision"] == "refused"]
    assert len(reasons) == 4
    assert "7 refusals before it are left out; no rule allows" in " ".join(reasons)


@pytest.mark.parametrize("char", ["x", "\N{GRINNING FACE}", "ä", "\x1b", '"', "\\"])
async def test_no_line_is_long_whatever_a_guest_writes(house: House, char: str) -> None:
    host, long = f"{char * 20}.example", char * 5_000
    entry = await house.record.begin(
        SHELL, Attempt("https", host, 443, "GET", "/" + long), Verdict("allow", long, "")
    )
    await entry.end("cut", long)
    await house.record.begin(
        SHELL, Attempt("https", long, 443, "GET", "/" + long), Verdict("deny", long, long)
    )
    lines = [line for path in house.place.files() for line in path.read_bytes().splitlines()]
    assert len(lines) >= 4
    assert max(map(len, lines)) < 2_500


async def test_counters_tell_what_went_and_is_going_out_by_host(house: House) -> None:
    done = await house.record.begin(SHELL, ATTEMPT, YES)
    done.sent, done.received = 1, 2
    await done.end("done")
    running = await house.record.begin(SHELL, ATTEMPT, YES)
    running.sent, running.received = 10, 20
    await house.record.begin(SHELL, Attempt("tunnel", "other.example", 443), NO)
    reply = house.record.counters()
    assert reply.open == 1
    assert [
        (each.host, each.requests, each.refused, each.sent, each.received) for each in reply.counts
    ] == [
        ("pypi.org", 2, 0, 11, 22),
        ("other.example", 0, 1, 0, 0),
    ]


async def test_hosts_that_a_guest_makes_up_do_not_fill_the_memory(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "HOSTS_MAX", 2)
    for number in range(5):
        await house.record.begin(SHELL, Attempt("tunnel", f"{number}.example", 443), NO)
    await house.record.begin(Caller("agent"), ATTEMPT, YES)
    counts = {(each.role, each.host): each.refused for each in house.record.counters().counts}
    assert counts == {
        ("shell", "0.example"): 1,
        ("shell", "1.example"): 1,
        ("shell", recording.OTHERS): 3,
        ("agent", "pypi.org"): 0,
    }


async def test_nothing_that_a_guest_says_deceives_a_reader(house: House) -> None:
    host = "evil.example\x1b[2J\n<b>\u202e" + "x" * 500
    await house.record.begin(
        Caller("shell", "s" * 500, "turn\n1"),
        Attempt("https", host, 443, "get\n", "/\x1b[31m\u2028<script>" + "y" * 5000),
        Verdict("deny", "", host),
    )
    (line,) = house.lines()
    told = "".join(map(str, line.values()))
    assert not any(each in told for each in ("\x1b", "\n", "\u2028", "\u202e"))
    assert len(told) < 3000
    assert (line["session"], line["turn"], line["method"]) == ("?", "?", "?")
    assert verify(house.place).findings == ()


async def test_an_egress_that_was_taken_over_cannot_write_what_it_likes(house: House) -> None:
    odd = "x\x1b[2J\n\u202e" * 500
    names = ("role", "session_id", "turn_id", "upstream", "method", "scheme", "host", "path")
    texts = dict.fromkeys((*names, "rule", "reason", "at", "address"), odd)
    await house.watch.record(pb.EgressBegun(id=1, port=2**31, decision="allowed", **texts))
    with pytest.raises(NotReady, match="more requests than it can have"):
        await house.watch.record(pb.EgressBegun(id=1, decision="allowed"))
    (line,) = house.lines()
    assert {line[name] for name in ("role", "session", "turn", "method", "scheme", "address")} == {
        "?"
    }
    told = "".join(map(str, line.values()))
    assert not any(each in told for each in ("\x1b", "\n", "\u202e"))
    assert len(told) < 20_000
    assert "port" not in line
    assert (line["user"], verify(house.place).findings) == ("alice", ())


async def test_a_hundred_connections_put_one_question(house: House) -> None:
    waiting = [asyncio.create_task(house.questions.ask(SHELL, ATTEMPT, ASK)) for _ in range(100)]
    house.answers.put_nowait(gateway_pb2.AskReply(approved=True, by="person"))
    async with asyncio.timeout(60):
        found = await asyncio.gather(*waiting)
    assert {each.decision for each in found} == {"allow"}
    (asked,) = house.asked
    assert asked.question == "allow https://files.example.org for this session?"
    assert (asked.tool, asked.session_id, asked.turn_id) == ("network", "session-1", "turn-1")
    grant = pb.EgressGrant(rule="https://files.example.org", session_id="session-1")
    assert house.granted == [("shell", grant)]


async def test_a_no_counts_for_the_rest_of_the_turn(house: House) -> None:
    house.answers.put_nowait(gateway_pb2.AskReply(approved=False, by="person"))
    for _ in range(5):
        verdict = await house.questions.ask(SHELL, ATTEMPT, ASK)
        assert (verdict.decision, verdict.reason) == ("deny", "a person said no")
    assert len(house.asked) == 1
    house.answers.put_nowait(gateway_pb2.AskReply(approved=True, by="person"))
    next_turn = Caller("shell", "session-1", "turn-2")
    assert (await house.questions.ask(next_turn, ATTEMPT, ASK)).decision == "allow"
    assert len(house.asked) == 2


async def test_why_nobody_could_be_asked_is_told(house: House) -> None:
    house.answers.put_nowait(WireError(Code.FAILED_PRECONDITION, "turn-1 has ended"))
    verdict = await house.questions.ask(SHELL, ATTEMPT, ASK)
    assert verdict.reason == "nobody could be asked: turn-1 has ended"
    without_session = await house.questions.ask(Caller("shell"), ATTEMPT, ASK)
    assert "no session" in without_session.reason
    assert len(house.asked) == 1


async def test_a_client_that_gives_up_and_tries_again_finds_the_same_question(house: House) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(house.questions.ask(SHELL, ATTEMPT, ASK), 0.2)
    again = asyncio.create_task(house.questions.ask(SHELL, ATTEMPT, ASK))
    house.answers.put_nowait(gateway_pb2.AskReply(approved=True, by="person"))
    assert (await again).decision == "allow"
    assert len(house.asked) == 1


async def test_a_question_that_nobody_waits_for_is_withdrawn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "LINGER_S", 0.05)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(house.questions.ask(SHELL, ATTEMPT, ASK), 0.2)
    async with asyncio.timeout(30):
        while house.watcher.questions:
            await asyncio.sleep(0.01)
    assert house.granted == []


async def test_many_questions_of_one_session_do_not_flood_a_person(house: House) -> None:
    def asking(number: int, session: str = "session-1") -> asyncio.Task[Verdict]:
        verdict = Verdict("ask", "", "", f"https://{number}.example")
        caller = Caller("shell", session, "turn-1")
        return asyncio.create_task(house.questions.ask(caller, ATTEMPT, verdict))

    waiting = [asking(number) for number in range(OPEN_MAX)]
    await asyncio.sleep(0)
    assert "other questions" in (await asking(99)).reason
    other = asking(1, "session-2")
    for _ in range(OPEN_MAX + 1):
        house.answers.put_nowait(gateway_pb2.AskReply(approved=False, by="expiry"))
    for each in (*waiting, other):
        assert (await each).reason == "a person was asked and did not answer in time"


async def test_a_question_is_answered_with_why_when_the_runner_goes(house: House) -> None:
    waiting = asyncio.create_task(house.questions.ask(SHELL, ATTEMPT, ASK))
    async with asyncio.timeout(60):
        while not house.asked:
            await asyncio.sleep(0.01)
    await house.watcher.close()
    with pytest.raises(NotReady, match="was lost"):
        await waiting


@pytest.mark.parametrize("rule", ["<b>x</b>", "a b", "preset evil", "*.example", "", "x\n"])
async def test_no_question_is_put_that_could_deceive(house: House, rule: str) -> None:
    verdict = await house.questions.ask(SHELL, ATTEMPT, Verdict("ask", "", "", rule))
    assert verdict.decision == "deny"
    assert house.asked == []


async def test_who_follows_hears_what_begins_and_ends(house: House) -> None:
    following = house.watcher.follow()
    first = asyncio.create_task(anext(following))
    await asyncio.sleep(0)
    entry = await house.record.begin(SHELL, ATTEMPT, YES)
    await entry.end("done")
    assert (await first).begun.host == "pypi.org"
    assert (await anext(following)).ended.outcome == "done"
    await following.aclose()

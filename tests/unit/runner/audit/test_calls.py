"""Calls are listed newest first, by pages and filters, and followed as they happen."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from wire.errors import Code

from runner.audit import log as audit_log
from runner.audit.calls import Call, Calls, Filter
from runner.audit.log import AuditLog, LogLocation
from runner.errors import HostError

TOOLS = ("memory_save", "shell_exec", "file_read")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AuditLog:
    monkeypatch.setattr(audit_log, "ROTATE_BYTES", 3_000)
    made = AuditLog(LogLocation(tmp_path, "alice"), 365)
    made.open()
    return made


@pytest.fixture
def calls(log: AuditLog, tmp_path: Path) -> Calls:
    return Calls(LogLocation(tmp_path, "alice"))


def call(log: AuditLog, number: int, outcome: str = "ok") -> None:
    begun = log.note(
        "begin", call=f"call-{number}", tool=TOOLS[number % 3], session=f"session-{number % 2}"
    )
    if outcome:
        log.note("end", begin=begun, call=f"call-{number}", outcome=outcome, duration_ms=number)


def test_pages_join_to_the_whole(log: AuditLog, calls: Calls) -> None:
    for number in range(50):
        call(log, number)
    found: list[Call] = []
    cursor = 0
    while True:
        page = calls.list(limit=7, cursor=cursor)
        found += page.calls
        if not (cursor := page.next_cursor):
            break
    assert [each.call_id for each in found] == [f"call-{number}" for number in range(49, -1, -1)]
    assert {each.outcome for each in found} == {"ok"}
    assert {each.user_id for each in found} == {"alice"}


def test_an_end_in_a_later_file_belongs_to_its_call(log: AuditLog, calls: Calls) -> None:
    slow = log.note("begin", call="call-slow", tool="shell_exec")
    for number in range(50):
        call(log, number)
    log.note("end", begin=slow, call="call-slow", outcome="cancelled", duration_ms=9)
    first = calls.list(limit=49)
    rest = calls.list(limit=10, cursor=first.next_cursor)
    assert [(each.call_id, each.outcome) for each in rest.calls] == [
        ("call-0", "ok"),
        ("call-slow", "cancelled"),
    ]


def test_filters(log: AuditLog, calls: Calls) -> None:
    for number in range(6):
        call(log, number, "" if number == 5 else "ok" if number else "failed")

    def ids(**wanted: str) -> list[str]:
        return [each.call_id for each in calls.list(Filter(**wanted)).calls]

    assert ids(tool="shell_exec") == ["call-4", "call-1"]
    assert ids(outcome="running") == ["call-5"]
    assert ids(outcome="failed", session_id="session-0") == ["call-0"]
    assert ids(since="2026-01-01") == [f"call-{number}" for number in range(5, -1, -1)]
    assert ids(since="2999-01-01T00:00:00Z") == []


@pytest.mark.parametrize("wrong", [{"outcome": "fine"}, {"since": "yesterday"}])
def test_a_bad_filter_is_refused_with_what_is_accepted(wrong: dict[str, str]) -> None:
    with pytest.raises(HostError) as raised:
        Filter(**wrong)
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert raised.value.details.startswith("accepted: ")


@pytest.mark.parametrize("limit", [0, 1001])
def test_a_bad_limit_is_refused(calls: Calls, limit: int) -> None:
    with pytest.raises(HostError, match="limit"):
        calls.list(limit=limit)


async def test_calls_are_followed_as_they_begin_and_end(log: AuditLog, calls: Calls) -> None:
    before = log.note("begin", call="call-before", tool="file_read")
    seen: list[tuple[str, str]] = []

    async def follow() -> None:
        async with aclosing(calls.follow()) as found:  # type: ignore[type-var]
            async for each in found:
                seen.append((each.call_id, each.outcome))
                if len(seen) == 41:
                    return

    following = asyncio.create_task(follow())
    await asyncio.sleep(0.1)
    log.note("end", begin=before, call="call-before", outcome="ok", duration_ms=1)
    for number in range(20):
        call(log, number)
    await asyncio.wait_for(following, 60)
    assert seen[0] == ("call-before", "ok")
    assert seen[1:3] == [("call-0", "running"), ("call-0", "ok")]


def test_a_user_without_a_record_has_no_calls(tmp_path: Path) -> None:
    assert Calls(LogLocation(tmp_path, "bob")).list().calls == ()

"""What left is read from the audit log: as requests, among the calls, and for limits of a day."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from wire import zones

from runner.audit.calls import Calls, Filter
from runner.audit.log import AuditLog, LogLocation
from runner.audit.reading import verify
from runner.egress.log import Requests, Spent, Wanted

PYPI: dict[str, Any] = {
    "decision": "allowed",
    "role": "shell",
    "session": "session-1",
    "method": "GET",
    "scheme": "https",
    "host": "pypi.org",
    "port": 443,
    "path": "/simple/",
    "rule": "preset pypi",
}


@pytest.fixture
def place(tmp_path: Path) -> LogLocation:
    return LogLocation(tmp_path, "alice")


@pytest.fixture
def log(place: LogLocation) -> Iterator[AuditLog]:
    made = AuditLog(place, 365)
    made.open()
    yield made
    made.close()


def ended(log: AuditLog, began: int, outcome: str = "done", **fields: Any) -> None:
    log.note("egress-end", begin=began, outcome=outcome, duration_ms=7, **fields)


def test_a_request_is_one_line_for_people(log: AuditLog, place: LogLocation) -> None:
    began = log.note("egress", **PYPI)
    (running,) = Requests(place).list()
    assert (running.outcome, running.place) == ("running", "https://pypi.org/simple/")
    ended(log, began, status=200, sent=10, received=20)
    (done,) = Requests(place).list()
    assert (done.outcome, done.status, done.sent, done.received) == ("done", 200, 10, 20)
    assert verify(place).findings == ()


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "https://pypi.org/simple/"),
        ({"port": 8443}, "https://pypi.org:8443/simple/"),
        ({"scheme": "http", "port": 80}, "http://pypi.org/simple/"),
        ({"scheme": "tunnel", "path": "", "method": "CONNECT"}, "pypi.org:443"),
    ],
)
def test_a_place_is_told_as_an_address(
    log: AuditLog, place: LogLocation, fields: dict[str, Any], shown: str
) -> None:
    log.note("egress", **PYPI | fields)
    (request,) = Requests(place).list()
    assert request.place == shown


def test_requests_are_found_by_role_host_session_and_refusal(
    log: AuditLog, place: LogLocation
) -> None:
    log.note("egress", **PYPI)
    log.note("egress", **PYPI | {"role": "agent", "host": "files.pypi.org"})
    log.note("egress", **PYPI | {"decision": "refused", "reason": "no rule", "session": "two"})
    limited = log.note("egress", **PYPI | {"host": "evilpypi.org"})
    ended(log, limited, "limit")

    def hosts(**wanted: Any) -> list[str]:
        return [each.host for each in Requests(place).list(Wanted(**wanted))]

    assert len(hosts()) == 4
    assert hosts(role="agent") == ["files.pypi.org"]
    assert hosts(host="pypi.org") == ["pypi.org", "files.pypi.org", "pypi.org"]
    assert hosts(session_id="two") == ["pypi.org"]
    assert hosts(refused=True) == ["evilpypi.org", "pypi.org"]
    assert len(Requests(place).list(limit=2)) == 2


async def test_requests_are_followed_when_they_end(log: AuditLog, place: LogLocation) -> None:
    async with aclosing(Requests(place).follow()) as following:
        first = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.05)
        began = log.note("egress", **PYPI)
        log.note("egress", **PYPI | {"decision": "refused", "host": "evil.example"})
        ended(log, began)
        assert (await first).host == "evil.example"
        assert (await anext(following)).outcome == "done"


def test_the_record_of_calls_has_requests_where_they_are_asked_for(
    log: AuditLog, place: LogLocation
) -> None:
    call = log.note("begin", call="call-1", tool="shell_exec")
    began = log.note("egress", **PYPI)
    ended(log, began, "cut")
    log.note("egress", **PYPI | {"decision": "refused"})
    log.note("end", begin=call, call="call-1", outcome="ok")
    assert [each.tool for each in Calls(place).list().calls] == ["shell_exec"]
    found = Calls(place).list(Filter(tool="network")).calls
    assert [each.outcome for each in found] == ["refused", "interrupted"]
    assert {each.about for each in found} == {"GET https://pypi.org/simple/"}
    assert {each.actor for each in found} == {"shell"}


def test_what_a_day_has_taken_is_read_from_the_record(log: AuditLog, place: LogLocation) -> None:
    ended(log, log.note("egress", **PYPI), sent=1, received=2)
    log.note("egress", **PYPI)
    log.note("egress", **PYPI | {"decision": "refused"})
    spent = Spent(place)
    spent.add("agent", "api.example.org", 1, 50)
    assert [(each.role, each.host, each.requests, each.bytes) for each in spent.today()] == [
        ("shell", "pypi.org", 2, 3),
        ("agent", "api.example.org", 1, 50),
    ]


def test_what_was_taken_yesterday_does_not_count(log: AuditLog, place: LogLocation) -> None:
    log.note("egress", **PYPI)
    days = [zones.today()]
    spent = Spent(place, lambda: days[-1])
    assert spent.today()
    days.append(days[-1] + timedelta(days=1))
    assert Spent(place, lambda: days[-1]).today() == []
    assert spent.today() == []

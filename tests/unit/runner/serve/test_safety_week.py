"""What an agent did in a week is counted from its record."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from runner.audit import log as audit_log
from runner.audit.log import AuditLog, LogLocation
from runner.serve.safety import DAYS, week


def call(log: AuditLog, number: int, **end: Any) -> None:
    began = log.note("begin", call=f"call-{number}", tool="shell_exec")
    log.note("end", begin=began, call=f"call-{number}", duration_ms=1, **end)


def request(log: AuditLog, role: str, host: str, decision: str, **end: int) -> None:
    began = log.note("egress", role=role, host=host, decision=decision)
    if end:
        log.note("egress-end", begin=began, outcome="done", duration_ms=1, **end)


def test_calls_questions_and_hosts_of_seven_days_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "ROTATE_BYTES", 600)
    place = LogLocation(tmp_path, "alice")
    log = AuditLog(place, 365)
    log.open()
    call(log, 1, outcome="ok")
    call(log, 2, outcome="ok", asked=True)
    call(log, 3, outcome="refused", asked=True)
    call(log, 4, outcome="refused")
    request(log, "shell", "pypi.org", "refused")
    request(log, "agent", "api.example", "allowed", sent=10, received=20)
    request(log, "agent", "api.example", "allowed", sent=1, received=2)
    log.close()
    now = datetime.now(UTC)
    counted = week(place, now)
    assert (counted["calls"], counted["asked"], counted["refused"]) == (4, 2, 1)
    assert counted["reached"] == [
        {"host": "api.example", "role": "agent", "requests": 2, "refused": 0, "bytes": 33},
        {"host": "pypi.org", "role": "shell", "requests": 1, "refused": 1, "bytes": 0},
    ]
    later = week(place, now + timedelta(days=DAYS, minutes=1))
    assert (later["calls"], later["reached"]) == (0, [])

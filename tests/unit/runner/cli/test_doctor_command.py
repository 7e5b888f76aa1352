"""`runner doctor` as people and programs see it."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from wire.errors import Code
from wire.v1 import control_pb2

from runner.cli import app as app_module
from runner.cli.operation import doctor
from runner.doctor.finding import Finding, ok, problem, warning
from runner.errors import HostError

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    root = Path(tempfile.mkdtemp(dir="/tmp", prefix="oxd-"))
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))
    monkeypatch.setenv("OXYDRA_WORKSPACE_ROOT", str(root / "ws"))
    monkeypatch.setenv("OXYDRA_RUNTIME_DIR", str(root / "rt"))
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["runner", *words])
        with pytest.raises(SystemExit) as raised:
            app_module.main()
        assert isinstance(raised.value.code, int)
        return raised.value.code, capsys.readouterr().out

    yield command
    shutil.rmtree(root)


def finds(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: list(findings))


FINE, SLOW = ok("engine", "answers"), warning("disk", "is filling up", "make room")
BROKEN = problem("images", "are missing", "runner images build")


@pytest.mark.parametrize(
    ("findings", "code", "count"),
    [
        ([FINE], 0, "0 problems, 0 warnings"),
        ([FINE, SLOW], 0, "0 problems, 1 warning"),
        ([FINE, SLOW, BROKEN], 1, "1 problem, 1 warning"),
    ],
)
def test_only_problems_make_it_fail(
    run: Run, monkeypatch: pytest.MonkeyPatch, findings: list[Finding], code: int, count: str
) -> None:
    finds(monkeypatch, *findings)
    done, out = run("doctor")
    assert done == code
    assert count in out
    for each in findings:
        assert each.what in out
        assert not each.fix or f"fix: {each.fix}" in out


def test_programs_get_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, FINE, BROKEN)
    code, out = run("doctor", "--json")
    assert code == 1
    told = json.loads(out)
    assert (told["ok"], told["boundary"]) == (False, None)
    assert [each["state"] for each in told["findings"]] == ["ok", "problem"]


def test_what_was_found_cannot_drive_the_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, problem("model", "no \x1b[2Jmodel", "rm '\x1b]0;x\x07'"))
    assert "\x1b" not in run("doctor")[1]


def test_a_broken_file_is_one_finding_among_others(run: Run) -> None:
    Path("runner.toml").write_text("tier = \n")
    code, out = run("doctor", "--json")
    findings = json.loads(out)["findings"]
    assert code == 1
    assert findings[0]["name"] == "configuration"
    assert "is not valid TOML: line 1" in findings[0]["what"]
    assert len(findings) > 8


class FakeControl:
    def __init__(self, answer: control_pb2.BoundaryReport | HostError) -> None:
        self._answer = answer

    async def __aenter__(self) -> "FakeControl":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def check_boundary(self) -> control_pb2.BoundaryReport:
        if isinstance(self._answer, HostError):
            raise self._answer
        return self._answer


def hosts(monkeypatch: pytest.MonkeyPatch, control: FakeControl) -> None:
    async def connect(*_: object) -> Any:
        return control

    monkeypatch.setattr(doctor, "connect_if_running", connect)


def report(*, passed: bool) -> control_pb2.BoundaryReport:
    checks = [
        control_pb2.BoundaryCheck(name="uid", passed=True, details="10001"),
        control_pb2.BoundaryCheck(name="vault", passed=passed, details="not there"),
    ]
    return control_pb2.BoundaryReport(passed=passed, checked_at="2026-01-01T12:00Z", checks=checks)


@pytest.mark.parametrize("passed", [True, False])
def test_the_boundary_is_shown_probe_by_probe(
    run: Run, monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    hosts(monkeypatch, FakeControl(report(passed=passed)))
    code, out = run("doctor", "--boundary")
    assert code == (0 if passed else 1)
    assert "vault" in out
    assert ("NO" in out) is not passed
    assert ("the boundary holds" in out) is passed
    assert "T12:00" not in out
    code, out = run("doctor", "--boundary", "--json")
    assert code == (0 if passed else 1)
    told = json.loads(out)
    assert told["ok"] is told["boundary"]["passed"] is passed
    assert told["boundary"]["checks"][1]["passed"] is passed


def test_without_a_host_the_boundary_says_how_to_start_one(run: Run) -> None:
    code, out = run("--user", "alice", "doctor", "--boundary")
    assert code == 1
    assert "no host runs for user alice" in out
    assert "fix: runner --user alice start --detach" in out


def test_a_host_that_cannot_probe_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = HostError(Code.FAILED_PRECONDITION, "there is no shell guest", resolution="get one")
    hosts(monkeypatch, FakeControl(error))
    code, out = run("doctor", "--boundary")
    assert code == 1
    assert "there is no shell guest" in out
    assert "fix: get one" in out

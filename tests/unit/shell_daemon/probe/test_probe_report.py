"""The probe as a program."""

import json
import re
import subprocess
import sys

import pytest
from wire.boundary import CHECKS, POLICIES, PROJECTS

from shell_daemon.probe.report import PROBES, run
from shell_daemon.probe.world import BoundaryHit, World
from tests.support.boundary.probed_guest import ProbedGuest


def test_every_check_has_a_probe() -> None:
    assert tuple(PROBES) == (*CHECKS, POLICIES, PROJECTS)


def test_one_probe_does_not_take_the_others_down(guest: ProbedGuest) -> None:
    def crashes(_world: World) -> str:
        raise RuntimeError("unexpected")

    def hits(_world: World) -> str:
        raise BoundaryHit("found " + "x" * 5000)

    probes = {"a": crashes, "b": hits, "c": lambda _world: "fine"}
    first, second, third = run(guest.look(), probes)
    assert first["passed"] is False
    assert first["details"] == "could not be checked: RuntimeError('unexpected')"
    assert second["passed"] is False
    assert len(second["details"]) == 1000
    assert third == {"name": "c", "passed": True, "details": "fine"}


@pytest.mark.parametrize("missing", ["self/status", "self/mountinfo", "net/unix", "net/dev"])
def test_what_cannot_be_read_has_failed(guest: ProbedGuest, missing: str) -> None:
    world = guest.look()
    (guest.proc / missing).unlink()
    safe = {name: check for name, check in PROBES.items() if name != "mounting"}
    failed = [
        row for row in run(world, safe) if re.search("could not be (checked|tried)", row["details"])
    ]
    assert failed
    assert not any(row["passed"] for row in failed)


@pytest.mark.parametrize("content", [b"", b"{}", b"no json"])
def test_a_specification_that_cannot_be_read_is_no_report(content: bytes) -> None:
    script = "import sys; from shell_daemon.probe import report; sys.exit(report.main())"
    command = [sys.executable, "-P", "-c", script]
    ran = subprocess.run(command, input=content, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr


def test_it_starts_without_what_takes_long() -> None:
    script = "import json, sys, shell_daemon.probe.report; print(json.dumps(list(sys.modules)))"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, check=True)
    assert not {"grpc", "google.protobuf", "pydantic", "asyncio"} & set(json.loads(ran.stdout))

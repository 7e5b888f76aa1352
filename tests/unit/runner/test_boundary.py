"""What the runner asks, and what it makes of answers from a guest that may be hostile."""

import json
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from wire import transport
from wire.boundary import CANARY, CHECKS, BoundarySpec
from wire.errors import Code
from wire.v1 import control_pb2

from runner.boundary import check as boundary
from runner.boundary.check import check_boundary, require_passed
from runner.boundary.spec import build_spec, new_canary
from runner.errors import TierError
from runner.tiers.base import Confinement, LaunchSpec
from runner.workspace.mounts import Role, bind, workspace_directories
from tests.support import parties
from tests.support.boundary.probed_guest import ProbedGuest
from tests.support.guests.shell_backends import Daemon, new_root

HEALTHY = [{"name": name, "passed": True, "details": "fine"} for name in CHECKS]


@pytest_asyncio.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    """To a real shell daemon without any confinement."""
    root = new_root()
    daemon = Daemon(root)
    try:
        async with daemon.channel() as channel:
            await daemon.ready(channel)
            yield channel
    finally:
        daemon.stop()
        shutil.rmtree(root)


async def answered(
    channel: grpc.aio.Channel, tmp_path: Path, script: str
) -> control_pb2.BoundaryReport:
    """The report where this Python is what runs in place of the probe."""
    spec = ProbedGuest(tmp_path).spec
    return await check_boundary(channel, spec, [sys.executable, "-c", script])


def failure(report: control_pb2.BoundaryReport) -> str:
    """The only check of a report about a probe that did not work."""
    (check,) = report.checks
    assert (check.name, check.passed, report.passed) == ("probe", False, False)
    return check.details


async def test_a_healthy_answer_passes(channel: grpc.aio.Channel, tmp_path: Path) -> None:
    report = await answered(channel, tmp_path, f"print({json.dumps(HEALTHY)!r})")
    assert report.passed
    assert [check.name for check in report.checks] == list(CHECKS)
    assert report.checked_at.endswith("+00:00")
    require_passed(report)


async def test_the_specification_arrives_with_listeners_on_the_host(
    channel: grpc.aio.Channel, tmp_path: Path
) -> None:
    """Both can be reached here, where nothing is confined."""
    script = """
import json, socket, sys
from wire.boundary import CHECKS, BoundarySpec
from tests.support import parties
spec = BoundarySpec.from_json(sys.stdin.buffer.read())
socket.create_connection(("127.0.0.1", spec.listener_port)).close()
with socket.socket(socket.AF_UNIX) as client: client.connect("\\0" + spec.listener_name)
print(json.dumps([{"name": name, "passed": True, "details": ""} for name in CHECKS]))
"""
    assert (await answered(channel, tmp_path, script)).passed


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('all is well')", "it wrote no report"),
        ("print('{}')", "it wrote no report"),
        ("print('[1]')", "it wrote no report"),
        ("print('[' * 100000)", "it wrote no report"),
        ("", "it wrote no report"),
        ("print('x' * 1000000)", "it wrote more than a report"),
        ("import sys; sys.exit('broken')", "it ended with code 1: broken"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with code 137"),
        (f"print({json.dumps([*HEALTHY, HEALTHY[0]])!r})", "answered twice"),
        (f"print({json.dumps([{**HEALTHY[0], 'name': 'extra'}])!r})", "unknown"),
        (f"print({json.dumps([{**HEALTHY[0], 'passed': 1}])!r})", "malformed"),
        (f"print({json.dumps([{**HEALTHY[0], 'details': None}])!r})", "malformed"),
        (f"print({json.dumps([{**HEALTHY[0], 'name': []}])!r})", "unknown"),
    ],
)
async def test_nonsense_is_a_failed_probe(
    channel: grpc.aio.Channel, tmp_path: Path, script: str, why: str
) -> None:
    assert why in failure(await answered(channel, tmp_path, script))


async def test_a_check_that_is_not_answered_has_failed(
    channel: grpc.aio.Channel, tmp_path: Path
) -> None:
    report = await answered(channel, tmp_path, f"print({json.dumps(HEALTHY[1:])!r})")
    assert not report.passed
    assert [check.name for check in report.checks if not check.passed] == [CHECKS[0]]


async def test_a_hit_is_passed_on_without_what_a_terminal_would_obey(
    channel: grpc.aio.Channel, tmp_path: Path
) -> None:
    hostile = {**HEALTHY[0], "passed": False, "details": "\x1b[2J\nfound" + "x" * 5000}
    report = await answered(channel, tmp_path, f"print({json.dumps([hostile, *HEALTHY[1:]])!r})")
    assert not report.passed
    assert report.checks[0].details.startswith("\\x1b[2J\\nfound")
    assert len(report.checks[0].details) == 1000


async def test_a_probe_that_hangs_has_failed(
    channel: grpc.aio.Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "TIMEOUT_S", 0.5)
    report = await answered(channel, tmp_path, "import time; time.sleep(1000)")
    assert "no answer within" in failure(report)


async def test_a_missing_program_is_a_failed_probe(
    channel: grpc.aio.Channel, tmp_path: Path
) -> None:
    report = await check_boundary(channel, ProbedGuest(tmp_path).spec, ["/no/such/python"])
    assert "it ended with code 127" in failure(report)


async def test_a_shell_that_does_not_answer_is_a_failed_probe(tmp_path: Path) -> None:
    async with transport.open_channel(parties.shell("unix:/tmp/no-such.sock", "token")) as channel:
        report = await check_boundary(channel, ProbedGuest(tmp_path).spec, ["python3"])
    assert failure(report)


def test_hits_stop_the_start() -> None:
    bad = control_pb2.BoundaryCheck(name="mounts", passed=False, details="/vault is mounted")
    good = control_pb2.BoundaryCheck(name="identity", passed=True, details="uid 5")
    with pytest.raises(TierError) as raised:
        require_passed(control_pb2.BoundaryReport(passed=False, checks=[good, bad]))
    assert raised.value.code is Code.FAILED_PRECONDITION
    assert raised.value.details == "mounts: /vault is mounted"
    assert "runner doctor --boundary" in raised.value.resolution


def test_an_empty_report_stops_the_start() -> None:
    with pytest.raises(TierError):
        require_passed(control_pb2.BoundaryReport())


@pytest.fixture
def workspaces(tmp_path: Path) -> Path:
    for user in ("alice", "bob-with-a-name"):
        for directory in ("", *workspace_directories()):
            (tmp_path / "ws" / user / directory).mkdir(parents=True, exist_ok=True)
    (tmp_path / "runtime/bob-with-a-name").mkdir(parents=True)
    (tmp_path / "runtime/bob-with-a-name/control.token").write_text("x")
    (tmp_path / "ws/alice/.oxydra/memory.db").write_text("x")
    return tmp_path / "ws"


def specified(workspaces: Path, **changes: Any) -> BoundarySpec:
    alice = workspaces / "alice"
    launch = LaunchSpec(
        role=Role.SHELL,
        user_id="alice",
        home=alice,
        launch_id="x",
        command=("oxydra-shell-daemon", "--socket", "/ipc/shell.sock"),
        mounts=bind(Role.SHELL, alice),
        environment={},
        envelope=b"",
        log_path=alice / "logs/shell/x",
        working_directory=Path("/shared"),
        owner=(5, 5),
    )
    given = {"secrets": {"the token": "a-secret-of-some-length"}, "canary": new_canary(), **changes}
    confinement = Confinement(uid=5, gid=6, python="python3")
    runtime = workspaces.parent / "runtime"
    return build_spec(launch, confinement, workspace=alice, runtime=runtime, **given)


def test_a_specification_survives_its_way(workspaces: Path) -> None:
    spec = specified(workspaces)
    assert BoundarySpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"uid": 1}', b"\xff"])
def test_what_is_no_specification_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        BoundarySpec.from_json(content)


def test_neither_secrets_nor_other_users_names_are_told(workspaces: Path) -> None:
    text = specified(workspaces, canary="the-canary-of-this-test").to_json().decode()
    assert "a-secret-of-some-length" not in text
    assert "the-canary-of-this-test" not in text
    assert "bob" not in text


def test_what_is_private_is_named_with_its_numbers(workspaces: Path) -> None:
    spec = specified(workspaces, private=[workspaces / "nothing"])
    found = {place.path.removeprefix(f"{workspaces.parent}/"): place for place in spec.private}
    database = (workspaces / "alice/.oxydra/memory.db").stat()
    assert found["ws/alice/.oxydra/memory.db"][2:] == (database.st_dev, database.st_ino)
    assert {"ws", "ws/alice", "ws/alice/vault", "ws/alice/ipc", "runtime"} <= found.keys()
    token = (workspaces.parent / "runtime/bob-with-a-name/control.token").stat()
    assert token.st_ino in {place.inode for place in spec.private if not place.path}
    assert found["ws/nothing"].inode == 0
    assert not {"ws/alice/shared", "ws/alice/tmp", "ws/alice/ipc/shell"} & found.keys()
    bobs = (workspaces / "bob-with-a-name/.oxydra").stat()
    assert (bobs.st_dev, bobs.st_ino) in spec.other_users


def test_secrets_that_could_be_guessed_are_left_out(workspaces: Path) -> None:
    spec = specified(workspaces, secrets={"short": "hunter2", "long": "x" * 12}, canary="")
    assert [secret.label for secret in spec.secrets] == ["long"]
    labels = [secret.label for secret in specified(workspaces).secrets]
    assert labels == ["the token", CANARY]


def test_every_start_has_a_salt_of_its_own(workspaces: Path) -> None:
    assert specified(workspaces).salt != specified(workspaces).salt
